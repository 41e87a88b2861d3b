package main

// ofArchive has the mutants that break the rules by which dead letters that retention has deleted are read from the
// letter table.
var ofArchive = []mutant{
	{
		name: "dead letters before the log start are not read from the letter table",
		file: "internal/admin/letters_source.go",
		old:  "s.expired(ctx, p, from, min(next, bounds.LogStart), each)", new: "s.expired(ctx, p, from, min(next, bounds.LogStart, 0), each)",
		pkg: "./cmd/connector", test: "^TestDeadLetters_Archived$",
	},
	{
		name: "a dead letter comes from the topic and from the letter table",
		file: "internal/admin/letters_source.go",
		old:  "s.expired(ctx, p, from, min(next, bounds.LogStart), each)", new: "s.expired(ctx, p, from, next, each)",
		pkg: "./internal/admin", test: "^TestLetterReader_RetentionDuringARead$",
	},
	{
		name: "dead letters that retention deletes during a read are missing",
		file: "internal/admin/letters_source.go",
		old:  "\t\terr := passed(offset)", new: "\t\terr := passed(at)",
		pkg: "./internal/admin", test: "^TestLetterReader_RetentionDuringARead$",
	},
	{
		name: "the last dead letters that retention deletes during a read are missing",
		file: "internal/admin/letters_source.go",
		old:  "err := passed(end)", new: "err := passed(at)",
		pkg: "./internal/admin", test: "^TestLetterReader_RetentionDuringARead$",
	},
	{
		name: "a chosen dead letter before the log start is missing",
		file: "internal/admin/letters_source.go",
		old:  "s.expiredAt(ctx, p, sorted[:gone], each)", new: "s.expiredAt(ctx, p, sorted[:0], each)",
		pkg: "./internal/admin", test: "^TestLetterReader_At$",
	},
	{
		name: "a chosen dead letter that retention deletes during the read is missing",
		file: "internal/admin/letters_source.go",
		old:  "s.expiredAt(ctx, p, skipped[:gone], each)", new: "s.expiredAt(ctx, p, skipped[:0], each)",
		pkg: "./internal/admin", test: "^TestLetterReader_At$",
	},
	{
		name: "the letter table's rows of an earlier dead-letter topic count",
		file: "internal/lookup/letters.go",
		old:  "l.TopicID == \"\" || l.TopicID == p.TopicID.String() {", new: "l.TopicID != \"-\" {",
		pkg: "./internal/admin", test: "^TestLetterSources$",
	},
	{
		name: "dead letters that members did not archive are not named",
		file: "internal/admin/letters_source.go",
		old:  "err == nil && archived < next {", new: "err == nil && archived < 0 {",
		pkg: "./cmd/connector", test: "^TestDeadLetters_NotArchived$",
	},
	{
		name: "a missing letter table is not named",
		file: "internal/admin/letters_source.go",
		old:  "if of.missing != \"\" {", new: "if len(of.missing) < 0 {",
		pkg: "./cmd/connector", test: "^TestDeadLetters_NotArchived$",
	},
	{
		name: "a dead letter from the letter table loses its headers",
		file: "connector/decode/letter_read.go",
		old:  "if content || !isContent(f.Name) {", new: "if content && f.Name != \"original_headers\" || !isContent(f.Name) {",
		pkg: "./internal/admin", test: "^TestLetterSources$",
	},
}
