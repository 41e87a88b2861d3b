package main

// ofPipeline has the mutants that break the rules of memory, backpressure and internal failures between Kafka and the
// writer.
var ofPipeline = []mutant{
	{
		name: "a codec that panics ends the process",
		file: "connector/kafka/recordbatch/recordbatch.go",
		old:  "if v := recover(); v != nil {", new: "if v := any(nil); v != nil {",
		pkg: "./connector/kafka/recordbatch", test: "^TestOpen_CodecPanics$",
	},
	{
		name: "a codec is used again after its panic",
		file: "connector/kafka/recordbatch/recordbatch.go",
		old:  "o.codecs = codecs{} //", new: "_ = codecs{} //",
		pkg: "./connector/kafka/recordbatch", test: "^TestOpen_CodecPanics$",
	},
	{
		name: "a chunk that cannot be sealed ends the process",
		file: "connector/lane/lane.go",
		old:  "c, err = plan.Chunk{}, connector.Recovered(decoding, v)", new: "panic(v)",
		pkg: "./test/story", test: "^TestSeal_Panics$",
	},
	{
		name: "no record of a chunk that cannot be sealed is found",
		file: "connector/commit/isolate.go",
		old:  "c.verdicts.Suspect(failures)", new: "_ = failures",
		pkg: "./test/story", test: "^TestSeal_Panics$",
	},
	{
		name: "a claim whose rows fail stays in the batch",
		file: "connector/commit/isolate.go",
		old:  "delete(passing.Claims, p)", new: "_ = passing.Claims",
		pkg: "./test/story", test: "^TestClaimLeavesBatch$",
	},
	{
		name: "a claim whose records failed does not wait",
		file: "connector/intake/holds.go",
		old:  "wait := time.Now().Before(l.Until)", new: "wait := time.Now().Before(time.Time{})",
		pkg: "./test/story", test: "^TestClaimLeavesBatch$",
	},
	{
		name: "a commit of earlier rows resets the count of attempts",
		file: "connector/commit/isolate.go",
		old:  "t != nil && span.Next >= t.next", new: "t != nil && span.Next >= 0",
		pkg: "./connector/commit", test: "^TestCommitter_PrefixKeepsTrouble$",
	},
	{
		name: "rows that fail only together are given up",
		file: "connector/lane/lane.go",
		old:  "Runs: o.runs, Sealing: true}", new: "Runs: o.runs, Sealing: true, Alone: true}",
		pkg: "./test/story", test: "^TestSeal_PanicsOnRowsTogether$",
	},

	// The states of a claim.
	{
		name: "a held claim without uncommitted rows stays finishing",
		file: "connector/intake/outcomes.go",
		old:  "if c.state == finishing && c.next == c.from {", new: "if c.state == finishing && c.next < c.from {",
		pkg: "./test/story", test: "^TestPause_CommitsAtOnce$",
	},
	{
		name: "a successful commit does not end a hold that a commit began",
		file: "connector/intake/holds.go",
		old:  "if c.fences = 0; c.state == proving {", new: "if c.fences = 0; c.state == proving && c.fences > 0 {",
		pkg: "./test/story", test: "^TestTableDown_HoldUntilCommit$",
	},
	{
		name: "a lost claim may be resumed",
		file: "connector/intake/state.go",
		old:  "\tcase lost:\n\t}\n", new: "\tcase lost:\n\t\treturn []state{resuming}\n\t}\n",
		pkg: "./connector/intake", test: "^TestState_Transitions$",
	},

	// Memory between tables.
	{
		name: "all tables wait for the memory of a slow commit",
		file: "connector/intake/table.go",
		old:  "return t.sealed != nil && now.Sub(t.sealed.Began) >= patience", new: "return t.sealed != nil && patience < 0",
		pkg: "./test/story", test: "^TestMemory_HeldByALateCommit$",
	},
	{
		name: "small blocks keep a large block waiting forever",
		file: "connector/intake/room.go",
		old:  "return c.wantsBytes <= rm.freeable(now, c.patience(now))", new: "return false",
		pkg: "./test/story", test: "^TestMemory_LargeBesideSmall$",
	},
	{
		name: "the patience with slow commits does not grow",
		file: "connector/intake/room.go",
		old:  "return min(max(now.Sub(c.wantsSince)/2, minPatience), maxPatience)", new: "return minPatience",
		pkg: "./connector/intake", test: "^TestRoom_FirstWaiting$",
	},
	{
		name: "claims that wait for the batch pool keep fetch results",
		file: "connector/intake/fetch.go",
		old:  "fs.shedWaiting(short)", new: "fs.shedWaiting(false)",
		pkg: "./test/story", test: "^TestMemory_HeldByALateCommit$",
	},
	{
		name: "others take memory for which an earlier request waits",
		file: "reliability/bytepool/bytepool.go",
		old:  "if p.first != nil || p.used+n > p.size {", new: "if p.used+n > p.size {",
		pkg: "./reliability/bytepool", test: "^TestOrder$",
	},

	// The order of records in a lane, of a batch's pieces, and of a commit's files.
	{
		name: "a lane keeps the buffers of a bad record between two batches",
		file: "connector/lane/lane.go",
		old:  "if p.Chunks == nil || o.failed != nil || o.counted.allocated > 0 {", new: "if p.Chunks == nil || o.failed != nil {",
		pkg: "./connector/lane", test: "^TestLane_SealedBatchLeavesNothing$",
	},
	{
		name: "records of a partition pass through several lanes",
		file: "connector/intake/dispatch.go",
		old:  "if c.lane.Enqueue(b) {", new: "if d.lanes[d.turn%len(d.lanes)].Enqueue(b) {",
		pkg: "./test/story", test: "^TestSchedules$", args: "-story.seeds=50",
	},
	{
		name: "pieces are not in the order of chunks",
		file: "connector/plan/decide.go",
		old:  "p.Pieces = append(p.Pieces, pieces...)", new: "p.Pieces = append(pieces, p.Pieces...)",
		pkg: "./test/story", test: "^TestSchedules$", args: "-story.seeds=50",
	},
	{
		name: "adds are not in the order of pieces",
		file: "sink/delta/stage.go",
		old:  "for _, add := range files.adds {", new: "for i := range files.adds {\n\t\t\tadd := files.adds[len(files.adds)-1-i]",
		pkg: "./sink/delta", test: "^TestStageSeveralFiles$",
	},

	// Backpressure and what it counts.
	{
		name: "a full batch behind a commit does not count as backpressure",
		file: "connector/intake/pauselog.go",
		old:  "on := t.full && t.behindEnd();", new: "on := false;",
		pkg: "./test/story", test: "^TestBackpressure_Commit$",
	},
	{
		name: "backpressure is counted only once it is over",
		file: "connector/intake/pauselog.go",
		old:  "\tpl.count(time.Now())\n}", new: "}",
		pkg: "./test/story", test: "^TestBackpressure_Commit$",
	},
	{
		name: "short backpressure is logged",
		file: "connector/intake/pauselog.go",
		old:  "lasted >= longPause:", new: "lasted >= 0:",
		pkg: "./test/story", test: "^TestBackpressure_Commit$",
	},

	{
		name: "a run until current measures all tables again and again",
		file: "connector/intake/current.go",
		old:  "if t.measured.IsZero() || t.behind == nil {", new: "if time.Since(t.measured) >= 50*time.Millisecond || t.behind == nil {",
		pkg: "./test/story", test: "^TestUntilCurrent_ManyTables$",
	},
}
