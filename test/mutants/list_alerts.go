package main

// ofAlerts are the rules of what raises a page, and of the figures that are measured.
var ofAlerts = []mutant{
	{
		name: "a canceled request ends a failure",
		file: "reliability/guard.go",
		old:  "if !answered && classify.Of(err) == classify.Canceled {", new: "if !answered && classify.Of(err) == classify.Fenced {",
		pkg: "./reliability", test: "^TestCancelledCallsDoNotCount$",
	},
}
