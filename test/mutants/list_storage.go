package main

// ofStorage has the mutants that break the rules for objects that other programs put into the bucket.
var ofStorage = []mutant{
	{
		name: "an impossible version number is accepted",
		file: "sink/delta/deltalog/path.go",
		old:  "!ok || f.version > maxVersion {", new: "!ok {",
		pkg: "./sink/delta/deltalog", test: "^TestNames_AbsurdVersion$",
	},
	{
		name: "a file name with an impossible version number is ignored",
		file: "sink/delta/deltalog/path.go",
		old:  "if f.version, ok = number(name[:20]); !ok || f.version > maxVersion {",
		new:  "if f.version, ok = number(name[:20]); !ok {\n\t\treturn f, false, nil\n\t} else if f.version > maxVersion {",
		pkg:  "./sink/delta/deltalog", test: "^TestNames_AbsurdVersion$",
	},
	{
		name: "a checkpoint after the newest commit is accepted",
		file: "sink/delta/deltalog/load.go",
		old:  "case s != nil && 0 <= dir.newest && dir.newest < s.Version:", new: "case false:",
		pkg: "./sink/delta/deltalog", test: "^TestCheckpoint_BehindTheNewestCommit$",
	},
	{
		name: "the hint hides commits before a checkpoint without log entries",
		file: "sink/delta/deltalog/load.go",
		old:  "hint > 0 && (s == nil || dir.newest < 0)", new: "hint > 0 && s == nil",
		pkg: "./sink/delta/deltalog", test: "^TestCheckpoint_BehindTheNewestCommit$",
	},
	{
		name: "a hint to a missing checkpoint is accepted",
		file: "sink/delta/deltalog/load.go",
		old:  "errors.Is(err, objstore.ErrNotFound) {\n\t\treturn Checkpoint{}, false", new: "errors.Is(err, objstore.ErrExists) {\n\t\treturn Checkpoint{}, false",
		pkg: "./sink/delta/deltalog", test: "^TestHint_Absurd$",
	},
	{
		name: "a panic of the Parquet reader is not an error of the file",
		file: "sink/delta/bounded/parquet.go",
		old:  "if r := recover(); r != nil {", new: "if r := error(nil); r != nil {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Do$",
	},
	{
		name: "a failure of the store counts as a damaged file",
		file: "sink/delta/bounded/parquet.go",
		old:  "failed != nil {", new: "failed != nil && err == nil {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Do$",
	},
	{
		name: "a failure of the store that the Parquet reader hides is lost",
		file: "sink/delta/bounded/parquet.go",
		old:  "failed != nil {", new: "failed != nil && err != nil {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Do$",
	},
	{
		name: "the memory of a Parquet footer has no limit",
		file: "sink/delta/bounded/parquet.go",
		old:  "if err := p.memory.checkFooter(p.source); err != nil {", new: "if err := error(nil); err != nil {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Bounds$",
	},
	{
		name: "a page that is too large is read",
		file: "sink/delta/bounded/parquet.go",
		old:  "props.MaxCompressedPageSize, props.MaxUncompressedPageSize =", new: "_, _ =",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Bounds$",
	},
	{
		name: "the memory of Parquet pages has no limit",
		file: "sink/delta/bounded/bounded.go",
		old:  "if n > 0 && used > a.limit {", new: "if n > 0 && used > 1<<40 {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Bounds$",
	},
	{
		name: "a panic of a table ends the process",
		file: "connector/commit/waitingtable.go",
		old:  "return panics.Catch(op) }", new: "return op() }",
		pkg: "./connector/commit", test: "^TestWaitingTable_PanicIsHold$",
	},
	{
		name: "the stack of a panic is logged with each check",
		file: "connector/commit/waitingtable.go",
		old:  "\tif anew {", new: "\tif anew || true {",
		pkg: "./connector/commit", test: "^TestWaitingTable_PanicIsHold$",
	},
	{
		name: "an impossible seq counts as an entry",
		file: "sink/opslog/entry.go",
		old:  "1 <= seq && seq <= maxSeq", new: "1 <= seq",
		pkg: "./sink/opslog", test: "^TestVerify_AbsurdSeq$",
	},
	{
		name: "a panic has the exit code of a usage error",
		file: "cmd/connector/main.go",
		old:  "\t\treturn exitInternal", new: "\t\treturn exitUsage",
		pkg: "./cmd/connector", test: "^TestExitCode_Panic$",
	},
	{
		name: "a hint of any size is read completely",
		file: "sink/delta/deltalog/load.go",
		old:  "readHead(ctx, store, lastCheckpoint, maxHint+1)", new: "readHead(ctx, store, lastCheckpoint, 1<<30)",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_Hint$",
	},
	{
		name: "the memory of log entries read in parallel has no limit",
		file: "sink/delta/deltalog/bounds.go",
		old:  "n > 0 && used > maxTogether", new: "n > 0 && used > 100*maxTogether",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_SideBySide$",
	},
	{
		name: "the memory of a table's positions has no limit",
		file: "sink/delta/deltalog/state.go",
		old:  "case s.size() > maxState:", new: "case false:",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_Positions$",
	},
	{
		name: "the memory of a checkpoint has no limit",
		file: "sink/delta/deltalog/bounds.go",
		old:  "checkpointBytes = 64 << 20", new: "checkpointBytes = 64 << 30",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_Checkpoint$",
	},
	{
		name: "each failure of the same checkpoint is logged",
		file: "sink/delta/checkpoint.go",
		old:  "if t.checkpoints.failed != cause(err) {", new: "if t.checkpoints.failed != \"-\" {",
		pkg: "./sink/delta", test: "^TestCheckpoints_NoTemporaryFile$",
	},
	{
		name: "an open response body keeps its slot for requests",
		file: "sink/delta/objstore/s3.go",
		old:  "r.pause()\n\tr.gotResponse()\n\treturn &s3Body", new: "r.pause()\n\treturn &s3Body",
		pkg: "./sink/delta/objstore", test: "^TestS3Slots_OpenBodies$",
	},
	{
		name: "a HEAD keeps its slot while it checks the bucket",
		file: "sink/delta/objstore/s3.go",
		old:  "r.gotResponse()\n\tif status, _", new: "if status, _",
		pkg: "./sink/delta/objstore", test: "^TestS3Slots_HeadNotFound$",
	},
	{
		name: "the number of parallel requests has no limit",
		file: "sink/delta/objstore/s3.go",
		old:  "slots: make(chan struct{}, maxInFlight)", new: "slots: make(chan struct{}, 1<<20)",
		pkg: "./sink/delta/objstore", test: "^TestS3Slots$",
	},
}
