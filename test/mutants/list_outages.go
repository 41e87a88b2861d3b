package main

// ofOutages are the rules of what is done, counted, said and logged while a dependency does not answer.
var ofOutages = []mutant{
	// The breaker.
	{
		name: "a question without an answer in time is no failure",
		file: "reliability/guard.go",
		old:  "errors.Is(ctx.Err(), context.Canceled) && !g.answer(err)", new: "ctx.Err() != nil && !g.answer(err)",
		pkg: "./reliability", test: "^TestGuard_NoAnswerInTime$",
	},
	{
		name: "a caller that gives up is a failure",
		file: "reliability/guard.go",
		old:  "errors.Is(ctx.Err(), context.Canceled) && !g.answer(err)", new: "err == nil && !g.answer(err)",
		pkg: "./reliability", test: "^TestGuard_NoAnswerInTime$",
	},
	{
		name: "an open breaker does not say why",
		file: "reliability/guard.go",
		old:  "if last := g.Status().Err; last != nil {", new: "if last := g.Status().Err; last == errOpen {",
		pkg: "./reliability", test: "^TestGuard_OpenBreakerNamesTheFailure$",
	},
	{
		name: "the lag's question waits as long as a request may take",
		file: "cmd/connector/lagwatch.go",
		old:  "askEnds = 5 * time.Second", new: "askEnds = 15 * time.Second",
		pkg: "./cmd/connector", test: "^TestLagWatch_OutageOpensTheBreaker$",
	},

	// The command holds.
	{
		name: "holds: one dependency takes the time of all",
		file: "cmd/connector/holds_ask.go",
		old:  "\teach := timeout / 2", new: "\teach := timeout",
		pkg: "./cmd/connector", test: "^TestHolds_NothingKnown$",
	},
	{
		name: "holds: a member that hangs is taken for none",
		file: "cmd/connector/holds_ask.go",
		old:  "named || !errors.Is(err, syscall.ECONNREFUSED)", new: "named",
		pkg: "./cmd/connector", test: "^TestHolds_NothingKnown$",
	},
	{
		name: "holds: what did not answer hides what is held",
		file: "cmd/connector/holds.go",
		old:  "case len(found.all) > 0:", new: "case len(found.all) > 0 && len(missed) == 0:",
		pkg: "./cmd/connector", test: "^TestHolds_Outages$",
	},
}
