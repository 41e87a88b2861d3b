package main

// ofAlerts are the rules of what raises a page, and of the figures that are measured.
var ofAlerts = []mutant{
	{
		name: "a canceled request ends a failure",
		file: "reliability/guard.go",
		old:  "if !answered && classify.Of(err) == classify.Canceled {", new: "if !answered && classify.Of(err) == classify.Fenced {",
		pkg: "./reliability", test: "^TestCancelledCallsDoNotCount$",
	},
	{
		name: "the peak of a process is that of its parent",
		file: "test/lab/process.go",
		old:  "\treturn p.peak.Load()\n", new: "\treturn p.cmd.ProcessState.SysUsage().(*syscall.Rusage).Maxrss << 10\n",
		pkg: "./test/lab", test: "^TestProcess_PeakRSS$",
	},
}
