package main

// ofTopicIDs has the mutants that break the rules by which rows of a deleted topic and of a new one with its name are
// distinguished.
var ofTopicIDs = []mutant{
	{
		name: "a row of another topic id counts as a row of the record",
		file: "internal/lookup/places.go",
		old:  "if row.TopicID == p.TopicID.String() {", new: "if row.TopicID != \"\" {",
		pkg: "./internal/replay", test: "^TestAdd_CreatedAgain$",
	},
	{
		name: "a row without a topic id counts as one of another topic",
		file: "internal/lookup/places.go",
		old:  "	return UnknownRow\n}", new: "	return OtherRow\n}",
		pkg: "./internal/replay", test: "^TestAdd_CreatedAgain$",
	},
	{
		name: "a replay after a re-creation needs no column for topic ids",
		file: "internal/replay/rows.go",
		old:  "|| topicIDs && of.TopicID", new: "|| (topicIDs || !topicIDs) && of.TopicID",
		pkg: "./internal/replay", test: "^TestAdd_LeavesOut$",
	},
	{
		name: "a dead letter without a topic id is replayed after a re-creation",
		file: "internal/replay/rows.go",
		old:  "|| topicIDs && of.TopicID != (idempotency.TopicID{})", new: "|| topicIDs",
		pkg: "./internal/replay", test: "^TestAdd_CreatedAgain$",
	},
	{
		name: "offsets of another topic id below the first are not searched",
		file: "internal/lookup/places.go",
		old:  "&& all[n-1].From <= offset &&", new: "&&",
		pkg: "./internal/replay", test: "^TestAdd_CreatedAgain$",
	},
	{
		name: "a row gets the topic id of the row before",
		file: "connector/decode/kafka.go",
		old:  "|| p.TopicID != k.id ||", new: "||",
		pkg: "./connector/decode", test: "^TestTopicIDs$",
	},
	{
		name: "a chunk begins inside of a run of the chunk before",
		file: "connector/decode/kafka.go",
		old:  "|| p.TopicID != k.id || row == 0 {", new: "|| p.TopicID != k.id {",
		pkg: "./connector/decode", test: "^TestTopicIDs$",
	},
	{
		name: "a table from before the column for topic ids gets it unasked",
		file: "sink/delta/table.go",
		old:  "h.schema.ForRows(configured)", new: "h.schema.Extended(configured)",
		pkg: "./cmd/connector", test: "^TestRun_TableWithoutTopicIDs$",
	},
	{
		name: "rows of a deleted topic are in the dedup window of the new one",
		file: "sink/delta/fingerprints.go",
		old:  "if of.TopicID != \"\" && !claims[of.TopicID] {", new: "if of.TopicID == \"-\" {",
		pkg: "./sink/delta", test: "^TestReadFingerprints_CreatedAgain$",
	},
	{
		name: "verify checks the rows of all topic ids together",
		file: "internal/admin/verify_ranges.go",
		old:  "if id == \"\" || len(r.ids) == 0 || r.only(id) {", new: "if id != \"-\" {",
		pkg: "./internal/admin", test: "^TestTopicIDs$",
	},
}
