package main

// ofSurface breaks the rules for endpoints that strangers can reach and texts that operators read.
var ofSurface = []mutant{
	{
		name: "connections to the health server have no limit",
		file: "health/ops/connections.go",
		old:  "if len(l.open) >= l.limit {", new: "if false {",
		pkg: "./health/ops", test: "^TestConnections_Flood$",
	},
	{
		name: "a request under way is closed before idle connections",
		file: "health/ops/connections.go",
		old:  "o.state < victim.state ||", new: "o.state > victim.state ||",
		pkg: "./health/ops", test: "^TestConnections_Order$",
	},
	{
		name: "handlers that hang keep new connections out",
		file: "health/ops/connections.go",
		old:  "if !busy {", new: "if busy || !busy {",
		pkg: "./health/ops", test: "^TestConnections_HandlerHangs$", args: "-timeout=60s",
	},
	{
		name: "the number of large responses in flight has no limit",
		file: "health/ops/server.go",
		old:  `"GET /health", s.few(s.reports, s.serveReport)`, new: `"GET /health", s.serveReport`,
		pkg: "./health/ops", test: "^TestConnections_LargeAnswers$",
	},
	{
		name: "the output of commands can control terminals",
		file: "cmd/connector/main.go",
		old:  "c := &cli{env: os.LookupEnv, stdin: os.Stdin, stdout: out,", new: "c := &cli{env: os.LookupEnv, stdin: os.Stdin, stdout: stdout,",
		pkg: "./cmd/connector", test: "^TestHostileText_Lake$",
	},
	{
		name: "a value can begin a new line of output",
		file: "internal/terminal/screen.go",
		old:  "text = lineBreaks.Replace(text)", new: "",
		pkg: "./internal/terminal", test: "^TestPrintf$",
	},
	{
		name: "max_topics does not limit a pattern",
		file: "internal/config/patterns.go",
		old:  "names[min(len(names), p.MaxTopics):]", new: "names[len(names):]",
		pkg: "./internal/config", test: "^TestBeyond$",
	},
	{
		name: "a new topic takes the place of one that is read",
		file: "connector/kafka/toomany.go",
		old:  "case committed[name]:", new: "case committed[name] && false:",
		pkg: "./connector/kafka", test: "^TestTooManyTopics$",
	},
	{
		name: "a new topic takes the place of one without an offset yet",
		file: "connector/kafka/toomany.go",
		old:  "case subscribed[name]:", new: "case subscribed[name] && false:",
		pkg: "./connector/kafka", test: "^TestTooManyTopics$",
	},
	{
		name: "problems of a configuration show credentials",
		file: "internal/config/load.go",
		old:  "l.check()\n\tl.mask()", new: "l.check()",
		pkg: "./internal/config", test: "^TestMasks_Problems$",
	},
	{
		name: "a problem shows a part of the value of a variable",
		file: "internal/config/masks.go",
		old:  "f.key == p.Key && f.shows(p.Text)", new: "false",
		pkg: "./internal/config", test: "^TestMasks_Problems$",
	},
	{
		name: "a secret in place of the name of its file is shown",
		file: "internal/config/kafka.go",
		old:  `"%v", unnamed(err))`, new: `"%v", err)`,
		pkg: "./internal/config", test: "^TestMasks_Files$",
	},
	{
		name: "config print shows a password in the text of another key",
		file: "internal/config/print.go",
		old:  "n.Value = WithoutPasswords(n.Value)", new: "",
		pkg: "./internal/config", test: "^TestMasks_Problems$",
	},
	{
		name: "members cleanup leaves no entry in the operations log",
		file: "internal/admin/members.go",
		old:  "_, err := log.append(ctx, by, body, nil); err != nil", new: "_, err := log.State(ctx); err != nil",
		pkg: "./cmd/connector", test: "^TestMembersCommand$",
	},
	{
		name: "members cleanup forgets without an entry",
		file: "internal/admin/members.go",
		old:  "_, err := log.append(ctx, by, body, nil); err != nil", new: "_, err := log.append(ctx, by, body, nil); false",
		pkg: "./cmd/connector", test: "^TestMembersCleanup_BrokenLog$",
	},
	{
		name: "a release links the broker of the demo",
		file: "test/licences/modules.go",
		old:  `releaseTags = "nodemo"`, new: `releaseTags = "demo"`,
		pkg: "./test/licences", test: "^TestRelease$",
	},
	{
		name: "a copyleft licence is allowed beside another one",
		file: "test/licences/identify.go",
		old:  "if strings.Contains(words, passage) {", new: "if false {",
		pkg: "./test/licences", test: "^TestIdentify$",
	},
	{
		name: "the notices of modules are left out",
		file: "test/licences/modules.go",
		old:  "m.notices = append(m.notices, t)", new: "_ = t",
		pkg: "./test/licences", test: "^TestFiles$",
	},
	{
		name: "a build without a repository claims to be a version",
		file: "cmd/connector/version.go",
		old:  `if b.Version == "" || b.Version == "devel" {`, new: "if false {",
		pkg: "./cmd/connector", test: "^TestVersion_Build$",
	},
	{
		name: "SECURITY.md names a key that does not exist",
		file: "SECURITY.md",
		old:  "`storage.s3.ca_file`", new: "`storage.ca_file`",
		pkg: "./cmd/connector", test: "^TestSecurityPage_Keys$",
	},
	{
		name: "SECURITY.md leaves out a right that the canary needs",
		file: "SECURITY.md",
		old:  "| `Create`, `Write`, `Read` |", new: "| `Create`, `Write` |",
		pkg: "./cmd/connector", test: "^TestSecurityPage_KafkaRights$",
	},
}
