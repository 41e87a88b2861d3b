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
}
