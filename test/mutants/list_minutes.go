package main

// ofFirstMinutes has the mutants that break what a new user meets first: init, lists, completion, progress.
var ofFirstMinutes = []mutant{
	{
		name: "init writes a secret into the configuration",
		file: "internal/config/draft.go",
		old:  "if k.secret && !onlyVariable.MatchString(text) {", new: "if k.secret && !onlyVariable.MatchString(text) && text == \"\" {",
		pkg: "./internal/config", test: "^TestDraft_SetConnection$",
	},
	{
		name: "init accepts a secret as the default of a variable",
		file: "internal/config/draft.go",
		old:  "regexp.MustCompile(`^\\$\\{[A-Za-z_][A-Za-z0-9_]*\\}$`)", new: "regexp.MustCompile(`^\\$\\{[^}]*\\}$`)",
		pkg: "./internal/config", test: "^TestDraft_SetConnection$",
	},
	{
		name: "init writes keys that have their defaults",
		file: "internal/config/draft.go",
		old:  "if !k.list && k.node().Value == before {", new: "if k.list && k.node().Value == before {",
		pkg: "./internal/config", test: "^TestDraft_SetConnection$",
	},
	{
		name: "a field name that looks like a variable is filled in from the environment",
		file: "internal/config/draft.go",
		old:  "return strings.ReplaceAll(text, \"${\", \"$${\")", new: "return text",
		pkg: "./internal/config", test: "^TestDraft_Text$",
	},
	{
		name: "init overwrites a file that another program has written meanwhile",
		file: "cmd/connector/init.go",
		old:  "return os.Link(f.Name(), o.file)", new: "return os.Rename(f.Name(), o.file)",
		pkg: "./cmd/connector", test: "^TestInit_WriteOnce$",
	},
	{
		name: "init makes dead letters of fields with values of several kinds",
		file: "internal/admin/setup.go",
		old:  "if !c.Raw || c.DDL == \"\" {", new: "if c.Raw || c.DDL == \"\" {",
		pkg: "./cmd/connector", test: "^TestInit$",
	},
	{
		name: "init misses tables whose names begin with that of another",
		file: "internal/admin/setup.go",
		old:  "after = folder + \"0\"", new: "after = folder + \"1\"",
		pkg: "./internal/admin", test: "^TestFoldersWithLogs$",
	},
	{
		name: "a table has the columns of a wide list",
		file: "cmd/connector/list.go",
		old:  "return c.wide })", new: "return !c.wide })",
		pkg: "./cmd/connector", test: "^TestLists$",
	},
	{
		name: "a wide list is cut to the width of the terminal",
		file: "internal/terminal/columns.go",
		old:  "ok && !c.whole && s.terminal", new: "ok && s.terminal",
		pkg: "./cmd/connector", test: "^TestPrintList_Terminal$",
	},
	{
		name: "the shell offers a topic twice",
		file: "cmd/connector/completion.go",
		old:  "return slices.Contains(args, topic) })", new: "return slices.Contains(args, cmd.Use) })",
		pkg: "./cmd/connector", test: "^TestCompletion_Bash$",
	},
	{
		name: "work that ends soon flickers on the terminal",
		file: "internal/terminal/progress.go",
		old:  "time.NewTimer(patience)", new: "time.NewTimer(0)",
		pkg: "./internal/terminal", test: "^TestProgress_Patience$",
	},
	{
		name: "a progress stays on the terminal",
		file: "internal/terminal/progress.go",
		old:  "if p.shown > 0 {", new: "if p.shown < 0 {",
		pkg: "./internal/terminal", test: "^TestProgress_Patience$",
	},
	{
		name: "demo --keep leaves its configuration behind",
		file: "cmd/connector/demo_keep.go",
		old:  "os.Remove(tokens), ignoreMissing(os.Remove(file))", new: "os.Remove(tokens)",
		pkg: "./cmd/connector", test: "^TestDemo_KeepStopped$",
	},
}
