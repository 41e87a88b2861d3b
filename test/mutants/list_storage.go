package main

// ofStorage breaks the rules for objects that other programs put into the bucket.
var ofStorage = []mutant{
	{
		name: "a version that no log reaches is believed",
		file: "sink/delta/deltalog/path.go",
		old:  "!ok || f.version > maxVersion {", new: "!ok {",
		pkg: "./sink/delta/deltalog", test: "^TestNames_AbsurdVersion$",
	},
	{
		name: "a name that no version fits into is passed over",
		file: "sink/delta/deltalog/path.go",
		old:  "if f.version, ok = number(name[:20]); !ok || f.version > maxVersion {",
		new:  "if f.version, ok = number(name[:20]); !ok {\n\t\treturn f, false, nil\n\t} else if f.version > maxVersion {",
		pkg:  "./sink/delta/deltalog", test: "^TestNames_AbsurdVersion$",
	},
	{
		name: "a checkpoint behind the newest commit is believed",
		file: "sink/delta/deltalog/load.go",
		old:  "case s != nil && 0 <= dir.newest && dir.newest < s.Version:", new: "case false:",
		pkg: "./sink/delta/deltalog", test: "^TestCheckpoint_BehindTheNewestCommit$",
	},
	{
		name: "a hint hides the commits before a checkpoint that stands alone",
		file: "sink/delta/deltalog/load.go",
		old:  "hint > 0 && (s == nil || dir.newest < 0)", new: "hint > 0 && s == nil",
		pkg: "./sink/delta/deltalog", test: "^TestCheckpoint_BehindTheNewestCommit$",
	},
	{
		name: "a hint to a checkpoint that does not exist is believed",
		file: "sink/delta/deltalog/load.go",
		old:  "errors.Is(err, objstore.ErrNotFound) {\n\t\treturn Checkpoint{}, false", new: "errors.Is(err, objstore.ErrExists) {\n\t\treturn Checkpoint{}, false",
		pkg: "./sink/delta/deltalog", test: "^TestHint_Absurd$",
	},
	{
		name: "a panic of the Parquet reader is none of its file's",
		file: "sink/delta/bounded/parquet.go",
		old:  "if r := recover(); r != nil {", new: "if r := error(nil); r != nil {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Do$",
	},
	{
		name: "a store that fails is a damaged file",
		file: "sink/delta/bounded/parquet.go",
		old:  "failed != nil {", new: "failed != nil && err == nil {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Do$",
	},
	{
		name: "a failure of the store that the Parquet reader hides is none",
		file: "sink/delta/bounded/parquet.go",
		old:  "failed != nil {", new: "failed != nil && err != nil {",
		pkg: "./sink/delta/bounded", test: "^TestParquet_Do$",
	},
	{
		name: "the footer of a file takes what memory it likes",
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
		name: "the pages of a file take what memory they like",
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
		name: "a seq that no log reaches is an entry",
		file: "sink/opslog/entry.go",
		old:  "1 <= seq && seq <= maxSeq", new: "1 <= seq",
		pkg: "./sink/opslog", test: "^TestVerify_AbsurdSeq$",
	},
	{
		name: "a panic of a command has the code of a wrong command line",
		file: "cmd/connector/main.go",
		old:  "\t\treturn exitInternal", new: "\t\treturn exitUsage",
		pkg: "./cmd/connector", test: "^TestExitCode_Panic$",
	},
	{
		name: "a hint is read whole, however large",
		file: "sink/delta/deltalog/load.go",
		old:  "readHead(ctx, store, lastCheckpoint, maxHint+1)", new: "readHead(ctx, store, lastCheckpoint, 1<<30)",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_Hint$",
	},
	{
		name: "commits side by side hold what they like",
		file: "sink/delta/deltalog/bounds.go",
		old:  "n > 0 && used > maxTogether", new: "n > 0 && used > 100*maxTogether",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_SideBySide$",
	},
	{
		name: "the positions of a table have no bound",
		file: "sink/delta/deltalog/state.go",
		old:  "case s.size() > maxState:", new: "case false:",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_Positions$",
	},
	{
		name: "a checkpoint takes what memory it likes",
		file: "sink/delta/deltalog/bounds.go",
		old:  "checkpointBytes = 64 << 20", new: "checkpointBytes = 64 << 30",
		pkg: "./sink/delta/deltalog", test: "^TestBounds_Checkpoint$",
	},
	{
		name: "a checkpoint that fails is told with every try",
		file: "sink/delta/checkpoint.go",
		old:  "if t.checkpoints.failed != cause(err) {", new: "if t.checkpoints.failed != \"-\" {",
		pkg: "./sink/delta", test: "^TestCheckpoints_NoTemporaryFile$",
	},
	{
		name: "the body of an answer keeps its slot",
		file: "sink/delta/objstore/s3.go",
		old:  "r.pause()\n\tr.gotResponse()\n\treturn &s3Body", new: "r.pause()\n\treturn &s3Body",
		pkg: "./sink/delta/objstore", test: "^TestS3Slots_OpenBodies$",
	},
	{
		name: "a HEAD waits for a second slot",
		file: "sink/delta/objstore/s3.go",
		old:  "r.gotResponse()\n\tif status, _", new: "if status, _",
		pkg: "./sink/delta/objstore", test: "^TestS3Slots_HeadNotFound$",
	},
	{
		name: "requests have no slots",
		file: "sink/delta/objstore/s3.go",
		old:  "slots: make(chan struct{}, maxInFlight)", new: "slots: make(chan struct{}, 1<<20)",
		pkg: "./sink/delta/objstore", test: "^TestS3Slots$",
	},
}
