package main

// ofMetadata has the mutants that break the rules for columns of the record, names that columns cannot have, tombstones
// as rows, and properties of new tables.
var ofMetadata = []mutant{
	{
		name: "columns may differ in case only",
		file: "connector/schema/names.go",
		old:  "used[caseless(name)] = true\n\t}\n\tnames", new: "used[name] = true\n\t}\n\tnames",
		pkg: "./connector/schema", test: "^TestColumnNames$",
	},
	{
		name: "two fields get one column",
		file: "connector/schema/names.go",
		old:  "names[i], used[caseless(name)] = name, true", new: "names[i] = name",
		pkg: "./connector/schema", test: "^TestColumnNames$",
	},
	{
		name: "a renamed column is filled from a field of its own name",
		file: "connector/decode/object.go",
		old:  "member{newKey(c.source), c", new: "member{newKey(f.Name), c",
		pkg: "./connector/decode", test: "^TestRenamedFields$",
	},
	{
		name: "a table may fill a column from another field than the configuration says",
		file: "connector/schema/names.go",
		old:  "want != is {", new: "want != is && c.Name == want {",
		pkg: "./connector/schema", test: "Sources$",
	},
	{
		name: "a tombstone becomes a row in a topic that skips them",
		file: "connector/refusal.go",
		old:  "r.Value == nil && f.Tombstones != TombstoneRows", new: "r.Value == nil && f.Tombstones == TombstonesRefused",
		pkg: "./connector", test: "^TestRefusals_LeaveOut$",
	},
	{
		name: "a tombstone becomes a row without a required column",
		file: "connector/decode/tombstone.go",
		old:  "return d.complete(d.root, 0) >= 0", new: "return true",
		pkg: "./connector/decode", test: "^TestTombstone$",
	},
	{
		name: "a null header value becomes an empty one",
		file: "connector/decode/keyheaders.go",
		old:  "if h.Value != nil {", new: "if h.Key != \"\" || h.Value != nil {",
		pkg: "./connector/decode", test: "^TestKeyAndHeaders$",
	},
	{
		name: "an empty key becomes null",
		file: "connector/decode/keyheaders.go",
		old:  "if k.key != nil && r.Key != nil {", new: "if k.key != nil && len(r.Key) > 0 {",
		pkg: "./connector/decode", test: "^TestKeyAndHeaders$",
	},
	{
		name: "a key that is not UTF-8 becomes text",
		file: "connector/decode/keyheaders.go",
		old:  "k.key.kind == schema.String && !utf8.Valid(r.Key)", new: "k.key.kind == schema.Boolean && !utf8.Valid(r.Key)",
		pkg: "./connector/decode", test: "^TestKeyAndHeaders_Refused$",
	},
	{
		name: "a timestamp of the broker counts as the producer's",
		file: "connector/kafka/recordbatch/recordbatch.go",
		old:  "r.Timestamp, r.SetBy = cur.time, connector.LogAppendTime;", new: "r.Timestamp, r.SetBy = cur.time, connector.CreateTime;",
		pkg: "./connector/kafka/recordbatch", test: "^TestTimestamps$",
	},
	{
		name: "a new table gets a property that needs a feature",
		file: "sink/delta/properties/properties.go",
		old:  "if value != \"false\" {", new: "if value == \"\" {",
		pkg: "./sink/delta/properties", test: "^TestCheck$",
	},
	{
		name: "a new table lacks the configured properties",
		file: "sink/delta/create.go",
		old:  "Configuration: configuration,", new: "Configuration: map[string]string{\"owner\": configuration[\"owner\"]},",
		pkg: "./sink/delta", test: "^TestCreate_Properties$",
	},
}
