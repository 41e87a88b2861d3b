package main

// ofTypes has the mutants that break the rules by which JSON values become values of columns.
var ofTypes = []mutant{
	{
		name: "types: an integer drops its fraction",
		file: "connector/decode/exact.go",
		old:  "	if s.rest != nothing {\n		return 0, end, NotIntegral\n	}\n", new: "",
		pkg: "./connector/decode", test: "^TestTypes$",
	},
	{
		name: "types: a decimal drops digits after its scale",
		file: "connector/decode/walk.go",
		old:  "	if s.rest != nothing {\n		return d.fail(TooPrecise, p)\n	}\n", new: "",
		pkg: "./connector/decode", test: "^TestTypes$",
	},
	{
		name: "types: a decimal takes more digits than its precision",
		file: "connector/decode/walk.go",
		old:  "!s.below(c.decimal.hi, c.decimal.lo)", new: "s.overflow",
		pkg: "./connector/decode", test: "^TestTypes$",
	},
	{
		name: "types: a long number loses a digit that was cut off",
		file: "connector/decode/exact.go",
		old:  "digit > 0 && s.rest == nothing:", new: "digit > 5 && s.rest == nothing:",
		pkg: "./connector/decode", test: "^TestScale$",
	},
	{
		name: "types: base64 with line ends is accepted",
		file: "connector/decode/options.go",
		old:  "if bytes.ContainsAny(text, \"\\r\\n\") {", new: "if len(text) < 0 {",
		pkg: "./connector/decode", test: "^TestSeeds$",
	},
	{
		name: "types: two base64 texts become the same bytes",
		file: "connector/decode/options.go",
		old:  "base64.StdEncoding.Strict()", new: "base64.StdEncoding",
		pkg: "./connector/decode", test: "^TestSeeds$",
	},
	{
		name: "types: a map keeps two values of one key",
		file: "connector/decode/walk.go",
		old:  "d.names.add(serial, d.names.hash(name), name) {\n			return d.fail(DuplicateKey, p)", new: "d.names.add(serial, d.names.hash(name), name) && len(name) > 1 {\n			return d.fail(DuplicateKey, p)",
		pkg: "./connector/decode", test: "^TestTypes$",
	},
	{
		name: "types: a refused record leaves keys in a map",
		file: "connector/decode/column.go",
		old:  "c.key.truncate(c.elems)", new: "c.key.truncate(c.key.n)",
		pkg: "./connector/decode", test: "^TestRollback$",
	},
	{
		name: "types: a time without a zone is in UTC unasked",
		file: "connector/decode/timestamp.go",
		old:  "	case !o.UTC:\n", new: "	case !o.UTC && b[p] != '\"':\n",
		pkg: "./connector/decode", test: "^TestSeeds$",
	},
	{
		name: "types: a number since 1970 in another unit becomes a year beyond 9999",
		file: "connector/decode/walk.go",
		old:  "if !ok || v < minMicros || v > maxMicros {", new: "if !ok {",
		pkg: "./connector/decode", test: "^TestSeeds$",
	},
	{
		name: "types: rounding down moves times before 1970 towards it",
		file: "connector/decode/exact.go",
		old:  "away = s.negative\n", new: "away = false\n",
		pkg: "./connector/decode", test: "^TestScale$",
	},
	{
		name: "types: an option for another type is ignored",
		file: "connector/decode/options.go",
		old:  "	case option.kind() == t.Kind:\n		return option, nil\n", new: "	case option.kind() == t.Kind:\n		return option, nil\n	default:\n		return ColumnOption{}, nil\n",
		pkg: "./connector/decode", test: "^TestColumnOptions_OtherTypes$",
	},
	{
		name: "types: topics of one table may have other column options",
		file: "internal/config/tables.go",
		old:  "n.Kind == yaml.SequenceNode || n.Kind == yaml.MappingNode", new: "n.Kind == yaml.SequenceNode",
		pkg: "./internal/config", test: "^TestBadConfigs$",
	},
	{
		name: "types: rows of decimals fit a table with another scale",
		file: "connector/schema/fits.go",
		old:  ", table.Scale != rows.Scale:", new: ":",
		pkg: "./connector/schema", test: "^TestFitsDecimalsAndMaps$",
	},
}
