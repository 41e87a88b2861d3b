package main

// ofEpochs has the mutants that break the rules of leader epochs, which detect a log that was truncated and grew again.
var ofEpochs = []mutant{
	{
		name: "a commit keeps no leader epochs",
		file: "connector/plan/decide.go",
		old:  ", connector.Txn{AppID: partition.EpochAppID(p.pipeline), Version: int64(span.Epoch)})", new: ")",
		pkg: "./test/story", test: "^TestTruncatedLog_OffsetNotCommitted$",
	},
	{
		name: "a resume does not ask the table for the leader epoch",
		file: "connector/commit/resume.go",
		old:  "r.snapshot.Epoch(r.pipeline, p); kept {", new: "r.snapshot.Epoch(r.pipeline, p); kept && epoch > 1000 {",
		pkg: "./test/story", test: "^TestTruncatedLog_OffsetNotCommitted$",
	},
	{
		name: "the committed offset's leader epoch counts for another position",
		file: "connector/commit/resume.go",
		old:  "o, ok := offsets[p.ID]; ok && o.Next == next {", new: "o, ok := offsets[p.ID]; ok {",
		pkg: "./connector/commit", test: "^TestEpochBefore$",
	},
	{
		name: "the committed offset's leader epoch is used before the table's",
		file: "connector/commit/resume.go",
		old:  "r.snapshot.Epoch(r.pipeline, p); kept {", new: "r.snapshot.Epoch(r.pipeline, p); kept && epoch >= 0 {",
		pkg: "./connector/commit", test: "^TestEpochBefore$",
	},
	{
		name: "a leader epoch counts for the position of another commit",
		file: "sink/delta/table.go",
		old:  "ok && !sameTime(txn, txns[position]) {", new: "ok && !sameTime(txn, txns[position]) && false {",
		pkg: "./sink/delta", test: "^TestSnapshot_EpochOfItsPosition$",
	},
	{
		name: "an operator's move keeps the leader epoch of the old position",
		file: "connector/plan/moves.go",
		old:  "Next: move.Next, Epoch: -1}", new: "Next: move.Next, Epoch: 7}",
		pkg: "./connector/plan", test: "^TestMoves_EpochUnknown$",
	},
	{
		name: "a claim shortened by a hold keeps the leader epoch of the batch's end",
		file: "connector/plan/batch.go",
		old:  "if next <= e.Until {", new: "if next < 0 {",
		pkg: "./test/story", test: "^TestTruncatedHold_EpochOfItsPlace$",
	},
	{
		name: "a batch keeps only one leader epoch",
		file: "connector/intake/claim.go",
		old:  "\tif c.epoch != epoch {\n", new: "\tif c.epoch != epoch && next < 0 {\n",
		pkg: "./test/story", test: "^TestTruncatedHold_EpochOfItsPlace$",
	},
	{
		name: "a truncated log is read on in some schedule of elections",
		file: "connector/commit/resume.go",
		old:  "r.snapshot.Epoch(r.pipeline, p); kept {", new: "r.snapshot.Epoch(r.pipeline, p); kept && epoch > 1000 {",
		pkg: "./test/story", test: "^TestElections$",
	},
	{
		name: "control records at the start of a leader epoch belong to the one before",
		file: "connector/intake/claim.go",
		old:  "plan.EpochUntil{Epoch: -1, Until: first}", new: "plan.EpochUntil{Epoch: c.earlier[len(c.earlier)-1].Epoch, Until: first}",
		pkg: "./test/story", test: "^TestTruncatedHold_BehindMarkers$",
	},
	{
		name: "the leader epoch of an older position is repeated with the newer one",
		file: "sink/delta/keep.go",
		old:  "beside && !sameTime(txn, t.head.Txns[position]) {", new: "beside && false && !sameTime(txn, t.head.Txns[position]) {",
		pkg: "./sink/delta", test: "^TestTable_RepeatsTxns_NotAnOldEpoch$",
	},

	// Two reads at one leader, and batches that could not be read.
	{
		name: "a finding is confirmed by two different leaders",
		file: "connector/commit/resume.go",
		old:  "sighting{f.Hold.Reason, b.LeaderEpoch}", new: "sighting{f.Hold.Reason, 0}",
		pkg: "./connector/commit", test: "^TestFindings_TwoReadingsAtOneLeader$",
	},
	{
		name: "a finding of a fetch is confirmed by two different leaders",
		file: "connector/kafka/cursor.go",
		old:  " || c.findingEpoch != epoch {", new: " {",
		pkg: "./connector/kafka", test: "^TestLogFinding_LeaderMoves$",
	},
	{
		name: "log ends are requested from a leader in old metadata",
		file: "connector/kafka/locate.go",
		old:  "ok && epoch < seen {", new: "ok && epoch < seen && false {",
		pkg: "./connector/kafka", test: "^TestBounds_OldMetadata$",
	},
	{
		name: "log ends from a deposed leader count",
		file: "connector/kafka/bounds.go",
		old:  "ok && led.Epoch > asked:", new: "ok && led.Epoch > asked+1000:",
		pkg: "./connector/kafka", test: "^TestBounds_DeposedLeader$",
	},
	{
		name: "a partition without a leader opens the breaker of Kafka",
		file: "connector/commit/resume.go",
		old:  "return nil // the cluster answers", new: "return err // the cluster answers",
		pkg: "./connector/commit", test: "^TestFindings_PartitionWithoutLeader$",
	},
	{
		name: "a partition without a leader hides the log ends of the others",
		file: "connector/kafka/bounds.go",
		old:  "\t\tmaps.Copy(all, read)\n", new: "\t\tif len(unread(positions, read)) == 0 {\n\t\t\tmaps.Copy(all, read)\n\t\t}\n",
		pkg: "./connector/kafka", test: "^TestBounds_PartitionWithoutLeader$",
	},
	{
		name: "an added partition does not begin because another has no leader",
		file: "connector/commit/initial.go",
		old:  "if added && len(bounds) > 0 {", new: "if added && err == nil {",
		pkg: "./test/story", test: "^TestLateStart_PartitionWithoutLeader$",
	},

	// The fields of requests to Kafka, and the conditions that forbid an initial commit.
	{
		name: "a fetch does not send the epoch of the record before the position",
		file: "connector/kafka/fetch.go",
		old:  "e.i32(p.lastEpoch)", new: "e.i32(-1)",
		pkg: "./connector/kafka", test: "^TestLogTruncated$",
	},
	{
		name: "a fetch reads uncommitted records",
		file: "connector/kafka/fetch.go",
		old:  "e.i8(1)   // read_committed", new: "e.i8(0)   // read_uncommitted",
		pkg: "./connector/kafka", test: "^TestLogTruncated$",
	},
	{
		name: "offsets are committed without the generation",
		file: "connector/kafka/offsets.go",
		old:  "GenerationID: last.id, MemberID: last.member,", new: "GenerationID: max(last.id, 1), MemberID: last.member,",
		pkg: "./connector/kafka", test: "^TestGroup$",
	},
	{
		name: "offsets are committed without the member id",
		file: "connector/kafka/offsets.go",
		old:  "GenerationID: last.id, MemberID: last.member,", new: "GenerationID: -1,",
		pkg: "./connector/kafka", test: "^TestGroup$",
	},
	{
		name: "a topic with committed offsets but no txn gets an initial commit",
		file: "connector/plan/positions.go",
		old:  "if len(offsets) > 0 {", new: "if len(offsets) > 1000 {",
		pkg: "./connector/plan", test: "^TestDerive$",
	},
	{
		name: "an added partition with a committed offset gets an initial commit",
		file: "connector/plan/positions.go",
		old:  "if o, ok := offsets[p.ID]; ok {\n\t\t\treturn hold.UnknownHistory", new: "if o, ok := offsets[p.ID]; ok && false {\n\t\t\treturn hold.UnknownHistory",
		pkg: "./connector/plan", test: "^TestDerive$",
	},
}
