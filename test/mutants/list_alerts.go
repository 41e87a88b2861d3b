package main

// ofAlerts has the mutants that break the rules of figures from which alerts and benchmarks are computed.
var ofAlerts = []mutant{
	{
		name: "a canceled request ends a failure",
		file: "reliability/guard.go",
		old:  "if !answered && classify.Of(err) == classify.Canceled {", new: "if !answered && classify.Of(err) == classify.Fenced {",
		pkg: "./reliability", test: "^TestCancelledCallsDoNotCount$",
	},
	{
		name: "the lag of a topic is that of its worst partition, not the sum",
		file: "health/monitor.go",
		old:  "lags[p.Topic] += max(0, h.lag.Adjusted)", new: "lags[p.Topic] = max(lags[p.Topic], h.lag.Adjusted)",
		pkg: "./health", test: "^TestLagOfPartitions$",
	},
	{
		name: "work is canceled before the signal to stop is logged",
		file: "internal/app/run.go",
		old:  "\t\tsay(ctx)\n\t\tcancel(context.Cause(ctx))\n", new: "\t\tcancel(context.Cause(ctx))\n\t\tsay(ctx)\n",
		pkg: "./internal/app", test: "^TestUntilSaid$",
	},
	{
		name: "a member's status counts from its last heartbeat, not from its change",
		file: "health/membership/metrics.go",
		old:  "seconds(last.at.Add(-m.InStatus)), m.ID)", new: "seconds(last.at.Add(-m.Age)), m.ID)",
		pkg: "./health/membership", test: "^TestWatch$",
	},
	{
		name: "the peak of a process is that of its parent",
		file: "test/lab/process.go",
		old:  "\treturn p.peak.Load()\n", new: "\treturn p.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10\n",
		pkg: "./test/lab", test: "^TestProcess_PeakRSS$",
	},
}
