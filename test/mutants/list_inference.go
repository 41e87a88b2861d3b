package main

// ofInference has the mutants that break the rules for columns that are made from records.
var ofInference = []mutant{
	{
		name: "a value that does not fit an inferred column makes a bad record",
		file: "connector/decode/rescue.go",
		old:  "if !m.lenient || !m.nullable {", new: "if m.lenient || !m.nullable {",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "a value that does not fit leaves a part of it in its column",
		file: "connector/decode/rescue.go",
		old:  "\tm.truncate(row)\n", new: "",
		pkg: "./connector/decode", test: "^TestGrow_(AllValuesBack|Columns)$",
	},
	{
		name: "new fields in a value that does not fit are kept twice",
		file: "connector/decode/rescue.go",
		old:  "\td.rescue.dropFrom(value)\n", new: "",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "a value that does not fit a declared column is kept",
		file: "connector/decode/object.go",
		old:  "own < 0 && d.lenient(f)", new: "d.lenient(f)",
		pkg: "./connector/decode", test: "^TestGrow_Strict$",
	},
	{
		name: "the paths of kept fields have the names of columns",
		file: "connector/decode/rescue.go",
		old:  "step{name: c.source}", new: "step{name: c.name}",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "an inferred double column rounds integers",
		file: "connector/decode/walk.go",
		old:  "k != schema.IntegerValue && k != schema.FractionValue", new: "k == schema.NullValue",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "a column with the text of any value takes only strings",
		file: "connector/decode/object.go",
		old:  "if f.Raw() && c.form == schema.String {", new: "if f.Raw() && c.form == schema.Other {",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "rows of before a column do not fill it",
		file: "connector/decode/grow.go",
		old:  "if grown != table || seen.late {", new: "if grown != table {",
		pkg: "./connector/decode", test: "^TestGrow_Late$",
	},
	{
		name: "each table gets the column for kept fields",
		file: "connector/decode/grow.go",
		old:  "\t\tif rest {\n\t\t\tgrown", new: "\t\tif rest || seen.any {\n\t\t\tgrown",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "new fields in a column that the row lacks get no column",
		file: "connector/schema/grow.go",
		old:  "return true, g.inside(", new: "return true, error(nil) //",
		pkg: "./connector/decode", test: "^TestGrow_OrderOfBatches$",
	},
	{
		name: "new_columns.per_hour counts nothing of before",
		file: "connector/schema/grow.go",
		old:  "bounds.PerHour-addedSince(g.table.fields, now.Add(-time.Hour)),", new: "bounds.PerHour,",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "new_columns.per_hour counts for ever",
		file: "connector/schema/grow.go",
		old:  "now.Add(-time.Hour)", new: "now.Add(-1000 * time.Hour)",
		pkg: "./connector/decode", test: "^TestGrow_NextHour$",
	},
	{
		name: "the columns of a table are not counted in all",
		file: "connector/schema/grow.go",
		old:  "MaxColumns-countColumns(Type{Kind: Struct, Fields: g.table.fields}),", new: "MaxColumns,",
		pkg: "./connector/schema", test: "^TestGrowth_Total$",
	},
	{
		name: "rare fields get the columns of frequent ones",
		file: "connector/schema/infer.go",
		old:  "cmp.Compare(s.fields[b].Values(), s.fields[a].Values())", new: "cmp.Compare(s.fields[a].Values(), s.fields[b].Values())",
		pkg: "./connector/decode", test: "^TestGrow_Columns$",
	},
	{
		name: "a column of another member for another field counts as the same",
		file: "sink/delta/evolve.go",
		old:  "if err := table.SameValues(e.to); err != nil {", new: "if err := table.SameValues(e.to); err != nil && table == nil {",
		pkg: "./sink/delta", test: "^TestInfer_SameColumn$",
	},
	{
		name: "rows are staged without the columns for their fields",
		file: "connector/commit/commit.go",
		old:  "if s, err = c.table.Stage(ctx, snapshot,", new: "if s, err = c.table.Stage(ctx, c.snapshot,",
		pkg: "./connector/commit", test: "^TestGrow$",
	},
	{
		name: "rows are rehearsed without the columns for their fields",
		file: "connector/commit/isolate.go",
		old:  "return c.table.Rehearse(ctx, snapshot, pieces)", new: "return c.table.Rehearse(ctx, c.snapshot, pieces)",
		pkg: "./connector/commit", test: "^TestGrow$",
	},
	{
		name: "a replay makes no columns of fields",
		file: "internal/replay/replay.go",
		old:  "t.Table.Stage(ctx, grown, batch", new: "t.Table.Stage(ctx, s, batch",
		pkg: "./cmd/connector", test: "^TestInfer_DeclaredColumns$",
	},
	{
		name: "inferred columns with fields that no column can get are accepted",
		file: "internal/config/check.go",
		old:  "if !t.Infers() || t.Unknown() == unknownAdd || l.failed(at) {", new: "if !t.Infers() || t.Unknown() != \"\" || l.failed(at) {",
		pkg: "./internal/config", test: "^TestBadConfigs$",
	},
}
