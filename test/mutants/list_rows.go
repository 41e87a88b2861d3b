package main

// ofRows has the mutants that break the rules for fields without a column, and for partitions without a position whose
// rows are in the table.
var ofRows = []mutant{
	// Fields without a column.
	{
		name: "fields of a refused record are kept with the next record",
		file: "connector/decode/json.go",
		old:  "\td.rescue.drop()\n", new: "",
		pkg: "./connector/decode", test: "^TestRescue$",
	},
	{
		name: "the path of a field without a column has no index",
		file: "connector/decode/rescue.go",
		old:  "int64(s.list.elems-s.list.first)", new: "0",
		pkg: "./connector/decode", test: "^TestRescue$",
	},
	{
		name: "a name with a dot is not quoted in a path",
		file: "connector/decode/rescue.go",
		old:  "strings.ContainsAny(name, \".[]`\")", new: "strings.ContainsAny(name, \"[]`\")",
		pkg: "./connector/decode", test: "^TestRescue_Paths$",
	},
	{
		name: "fields without a column are not counted against the size of a chunk",
		file: "connector/decode/json.go",
		old:  "return len(value) + d.limits.MaxBytes", new: "return len(value)",
		pkg: "./connector/decode", test: "^TestRescue_Bounds$",
	},
	{
		name: "an integer that no double holds joins a fraction",
		file: "connector/schema/infer.go",
		old:  " || has(LongValue) && has(FractionValue)", new: "",
		pkg: "./connector/schema", test: "^TestShape_Column$",
	},

	{
		name: "a partition with rows begins because its siblings have positions",
		file: "connector/commit/searchrows.go",
		old:  "case found && i.Added:\n", new: "case found && i.Added && false:\n",
		pkg: "./test/story", test: "^TestRowsWithoutAPosition_BesidePositions$",
	},
	{
		name: "the table is not searched for rows of an added partition",
		file: "connector/commit/searchrows.go",
		old:  "\t\tif i == nil {\n\t\t\tcontinue\n\t\t}\n\t\tfor p := range i.Positions {\n\t\t\tof := plan.BlockingRows(p, i.Added)\n\t\t\tif f", new: "\t\tif i == nil || i.Added {\n\t\t\tcontinue\n\t\t}\n\t\tfor p := range i.Positions {\n\t\t\tof := plan.BlockingRows(p, i.Added)\n\t\t\tif f",
		pkg: "./test/story", test: "^TestRowsWithoutAPosition_BesidePositions$",
	},
	{
		name: "an added partition is held because of rows of its siblings",
		file: "connector/plan/positions.go",
		old:  "return connector.RowsOf{Topic: p.Topic, Partition: p.ID}", new: "return connector.RowsOf{Topic: p.Topic, Partition: connector.AnyPartition}",
		pkg: "./test/story", test: "^TestRowsWithoutAPosition$",
	},
	{
		name: "a partition with rows holds the partitions added beside it",
		file: "connector/commit/searchrows.go",
		old:  "\t\t\t\tholdOne(p, hold.UnknownHistory, plan.RowsDetail(of))\n", new: "\t\t\t\tfailures[name] = hold.New(hold.UnknownHistory, plan.RowsDetail(of), nil)\n",
		pkg: "./test/story", test: "^TestRowsWithoutAPosition_BesidePositions$",
	},
	{
		name: "a committed offset of one partition holds those added beside it",
		file: "connector/plan/positions.go",
		old:  "if o, ok := offsets[p.ID]; ok {\n\t\t\treturn hold.UnknownHistory", new: "for _, o := range offsets {\n\t\t\treturn hold.UnknownHistory",
		pkg: "./connector/plan", test: "^TestDerive$",
	},
	{
		name: "commands do not show rows without a position",
		file: "connector/plan/positions.go",
		old:  "Added(p, known, pipeline)); rows[of] {", new: "Added(p, known, pipeline)); rows[of] && of.Partition == connector.AnyPartition {",
		pkg: "./connector/plan", test: "^TestDerive$",
	},
	{
		name: "single partitions are searched only by statistics",
		file: "sink/delta/scan/present.go",
		old:  "if thorough || of.Partition != AnyPartition {", new: "if thorough {",
		pkg: "./sink/delta", test: "^TestTable_HasRows_OfPartitions$",
	},
	{
		name: "rows of a partition are searched under another number",
		file: "sink/delta/scan/present.go",
		old:  "if p.left[of] {", new: "if of.Partition = max(of.Partition, 3); p.left[of] {",
		pkg: "./sink/delta", test: "^TestTable_HasRows_OfPartitions$",
	},
	{
		name: "a search continues for partitions that were found",
		file: "sink/delta/scan/present.go",
		old:  "if s.filter.where = p.where(); len(p.left) == 0 {", new: "if len(p.left) == 0 {",
		pkg: "./sink/delta", test: "^TestTable_HasRows_StopsAtTheFirst$",
	},
	{
		name: "impossible statistics rule files out",
		file: "sink/delta/scan/prune.go",
		old:  "return s.sound()", new: "return s",
		pkg: "./sink/delta", test: "^TestTable_HasRows_OfPartitions$",
	},
	{
		name: "a topic whose name is longer than the bounds is in no file",
		file: "sink/delta/scan/prune.go",
		old:  "(topic <= b.topicHigh || strings.HasPrefix(topic, b.topicHigh))", new: "(topic <= b.topicHigh || strings.HasPrefix(b.topicHigh, topic+\"~\"))",
		pkg: "./sink/delta", test: "^TestTable_HasRows_OfPartitions$",
	},
}
