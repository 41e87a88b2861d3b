package main

// ofEpochs are the rules of leader epochs: how a log that was truncated and grew again is found.
var ofEpochs = []mutant{
	{
		name: "a commit keeps no leader epochs",
		file: "connector/decide.go",
		old:  ", Txn{partition.EpochAppID(p.pipeline), int64(span.Epoch)})", new: ")",
		pkg: "./test/story", test: "^TestTruncatedLog_OffsetNotCommitted$",
	},
	{
		name: "a resume does not ask the table for the leader epoch",
		file: "connector/resume.go",
		old:  "w.snapshot.Epoch(w.pipeline, p); kept {", new: "w.snapshot.Epoch(w.pipeline, p); kept && epoch > 1000 {",
		pkg: "./test/story", test: "^TestTruncatedLog_OffsetNotCommitted$",
	},
	{
		name: "the committed offset's leader epoch counts for another position",
		file: "connector/resume.go",
		old:  "o, ok := offsets[p.ID]; ok && o.Next == next {", new: "o, ok := offsets[p.ID]; ok {",
		pkg: "./connector", test: "^TestEpochBefore$",
	},
	{
		name: "the committed offset's leader epoch goes before the table's",
		file: "connector/resume.go",
		old:  "w.snapshot.Epoch(w.pipeline, p); kept {", new: "w.snapshot.Epoch(w.pipeline, p); kept && epoch >= 0 {",
		pkg: "./connector", test: "^TestEpochBefore$",
	},
	{
		name: "a leader epoch counts for the position of another commit",
		file: "sink/delta/table.go",
		old:  "ok && !sameTime(txn, txns[position]) {", new: "ok && !sameTime(txn, txns[position]) && false {",
		pkg: "./sink/delta", test: "^TestSnapshot_EpochOfItsPosition$",
	},
	{
		name: "an operator's move keeps the leader epoch of the old position",
		file: "connector/move.go",
		old:  "Next: move.Next, Epoch: -1}", new: "Next: move.Next, Epoch: 7}",
		pkg: "./connector", test: "^TestMoves_EpochUnknown$",
	},
	{
		name: "a claim that a hold truncates keeps the leader epoch of the batch's end",
		file: "connector/decide.go",
		old:  "if next <= e.Until {", new: "if next < 0 {",
		pkg: "./test/story", test: "^TestTruncatedHold_EpochOfItsPlace$",
	},
	{
		name: "a leader epoch holds for all of the batch in which it began",
		file: "connector/claim.go",
		old:  "\tif c.epoch != epoch {\n\t\tc.earlier = append(c.earlier, EpochUntil{c.epoch, first})\n\t}\n", new: "",
		pkg: "./test/story", test: "^TestTruncatedHold_EpochOfItsPlace$",
	},
}
