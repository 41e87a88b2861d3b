package main

// ofTranscripts has the mutants that break rules that were added after runs on real servers showed that they were
// missing.
var ofTranscripts = []mutant{
	{
		name: "holds: a failing dependency is not named if nothing is held",
		file: "internal/admin/holds_ask.go",
		old:  "if d.Failing == nil || named[name] || explained {", new: "if d.Failing == nil || named[name] || explained || len(holds) == 0 {",
		pkg: "./cmd/connector", test: "^TestHolds_FailingDependency$",
	},
	{
		name: "holds: a failing dependency is not named beside a hold",
		file: "internal/admin/holds_ask.go",
		old:  "if d.Failing == nil || named[name] || explained {", new: "if d.Failing == nil || named[name] || explained || len(holds) > 0 {",
		pkg: "./cmd/connector", test: "^TestHolds_FailingDependency$",
	},
	{
		name: "holds: a store without a response hides an outage of Kafka",
		file: "internal/admin/holds_ask.go",
		old:  "if len(tables) == 0 || silent {", new: "if len(looks) == 0 || silent {",
		pkg: "./cmd/connector", test: "^TestHolds_TwoOutages$",
	},
}
