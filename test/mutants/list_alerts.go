package main

// ofAlerts breaks the rules of alerts that page, and of measured figures.
var ofAlerts = []mutant{
	{
		name: "a canceled request ends a failure",
		file: "reliability/guard.go",
		old:  "if !answered && classify.Of(err) == classify.Canceled {", new: "if !answered && classify.Of(err) == classify.Fenced {",
		pkg: "./reliability", test: "^TestCancelledCallsDoNotCount$",
	},
	{
		name: "a topic is as late as its last partition",
		file: "health/monitor.go",
		old:  "lags[p.Topic] += max(0, h.lag.Adjusted)", new: "lags[p.Topic] = max(lags[p.Topic], h.lag.Adjusted)",
		pkg: "./health", test: "^TestLagOfPartitions$",
	},
	{
		name: "the work learns of the signal to stop before the log",
		file: "internal/app/run.go",
		old:  "\t\tsay(ctx)\n\t\tcancel(context.Cause(ctx))\n", new: "\t\tcancel(context.Cause(ctx))\n\t\tsay(ctx)\n",
		pkg: "./internal/app", test: "^TestUntilSaid$",
	},
	{
		name: "a member is ending since its last heartbeat",
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
