package main

// ofColumns has the mutants that break the rules for commits that add columns to a table.
var ofColumns = []mutant{
	{
		name: "a commit that adds columns drops the properties of the table",
		file: "sink/delta/evolve.go",
		old:  "m.SchemaString = columns.DeltaJSON()", new: "m.SchemaString, m.Configuration = columns.DeltaJSON(), nil",
		pkg: "./sink/delta", test: "^TestAddColumns$",
	},
	{
		name: "a commit that adds columns gives the table another id",
		file: "sink/delta/evolve.go",
		old:  "m.SchemaString = columns.DeltaJSON()", new: "m.SchemaString, m.ID = columns.DeltaJSON(), \"another\"",
		pkg: "./sink/delta", test: "^TestAddColumns$",
	},
	{
		name: "a commit after a conflict drops the columns of the winner",
		file: "sink/delta/evolve.go",
		old:  "return table.Extended(e.to)", new: "return e.to, nil",
		pkg: "./sink/delta", test: "^TestAddColumns_Members$",
	},
	{
		name: "a column that was dropped comes back with files of before",
		file: "sink/delta/evolve.go",
		old:  "if err := table.Fits(e.from); err != nil {", new: "if err := table.Fits(e.from); err != nil && table == nil {",
		pkg: "./sink/delta", test: "^TestAddColumns_Dropped$",
	},
	{
		name: "a column with another type than in the table counts as the same",
		file: "connector/schema/extend.go",
		old:  "case table.Kind != add.Kind,", new: "case table.Kind != add.Kind && path == \"\",",
		pkg: "./sink/delta", test: "^TestAddColumns_(Conflict|Members)$",
	},
	{
		name: "columns of files are not added",
		file: "sink/delta/stage.go",
		old:  "if !changes.None() {", new: "if len(changes.Relaxed) > 9 {",
		pkg: "./sink/delta", test: "^TestAddColumns$",
	},
	{
		name: "a commit that adds the columns of rows makes lanes build for another schema",
		file: "sink/delta/table.go",
		old:  "h.rows != nil && h.rows.Equal(old.rows)", new: "h.rows == nil && h.rows.Equal(old.rows)",
		pkg: "./sink/delta", test: "^TestAddColumns$",
	},
	{
		name: "a schema that does not fit the table is no hold",
		file: "sink/delta/table.go",
		old:  "if t.head.unfit != nil {", new: "if t.head.unfit != nil && t.head.rows == nil {",
		pkg: "./sink/delta", test: "^TestAddColumns_Unfit$",
	},
	{
		name: "fingerprints are read from a column that the table does not have yet",
		file: "sink/delta/fingerprints.go",
		old:  "if !table.Has(identifier.Path()) {", new: "if !rows.Has(identifier.Path()) {",
		pkg: "./sink/delta", test: "^TestAddColumns_Fingerprints$",
	},
	{
		name: "a NOT NULL column is added to rows that have no value",
		file: "connector/schema/extend.go",
		old:  "case !ok && !a.Nullable:", new: "case !ok && !a.Nullable && above != \"\":",
		pkg: "./connector/schema", test: "^TestExtended_Conflicts$",
	},
	{
		name: "a column is added whose name differs in case only",
		file: "connector/schema/extend.go",
		old:  "case fields[i].Name != a.Name:", new: "case fields[i].Name != a.Name && above != \"\":",
		pkg: "./connector/schema", test: "^TestExtended_Conflicts$",
	},
	{
		name: "fields of a list's elements are not added",
		file: "connector/schema/extend.go",
		old:  "case table.Element == nil:", new: "case table.Element == nil, add.Element.Kind == Struct:",
		pkg: "./connector/schema", test: "^TestExtended",
	},
	{
		name: "a schema that adds nothing counts as another one",
		file: "connector/schema/extend.go",
		old:  "case !changed:", new: "case !changed && len(fields) == 0:",
		pkg: "./connector/schema", test: "^TestExtended",
	},
	{
		name: "a table that needs another protocol since the files were put is committed to",
		file: "sink/delta/commit.go",
		old:  "case t.head.refusal != nil:\n		return nil, t.head.refusal\n	}\n	if err := t.retained()", new: "}\n	if err := t.retained()",
		pkg: "./internal/app", test: "^TestAlteredDuringFlush$",
	},
	{
		name: "a batch that does not fit an altered table counts as committed",
		file: "sink/delta/commit.go",
		old:  "columns, err := change.on(t.head.schema)\n	if err != nil {", new: "columns, err := change.on(t.head.schema)\n	if err != nil {\n		return t.head.schema, nil\n	}\n	if err != nil {",
		pkg: "./internal/app", test: "^TestAlteredDuringFlush$",
	},
	{
		name: "an option of a field applies to a column whose name has a dot",
		file: "connector/decode/options.go",
		old:  "path := schema.JoinPath(at)", new: "path := strings.Join(at, \".\")",
		pkg: "./internal/config", test: "^TestColumnOptions$",
	},
}
