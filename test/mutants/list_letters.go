package main

// ofLetters has the mutants that break the rules for records that cannot, or must not, become rows.
var ofLetters = []mutant{
	// Dead letters.
	{
		name: "a transient error makes a dead letter",
		file: "connector/lane/candidate.go",
		old:  "classify.Of(err) == classify.Poison", new: "classify.Of(err) <= classify.Poison",
		pkg: "./connector/lane", test: "^TestReject_OnlyPoisonHasLetter$",
	},
	{
		name: "a fatal error makes a dead letter",
		file: "connector/lane/candidate.go",
		old:  "classify.Of(err) == classify.Poison", new: "classify.Of(err) == classify.Poison || classify.Of(err) == classify.Fatal",
		pkg: "./connector/lane", test: "^TestReject_OnlyPoisonHasLetter$",
	},
	{
		name: "a commit passes a bad record before its dead letter is durable",
		file: "connector/commit/commit.go",
		old:  "if err := c.letters.Write(ctx, p.Letters); err != nil {",
		new:  "late := p.Letters\n\t\tgo func() { _ = c.letters.Write(ctx, late) }()\n\t\tif err := ctx.Err(); err != nil {",
		pkg:  "./test/story", test: "^TestSchedules_Letters$",
	},
	{
		name: "a produce response with an error counts as a durable dead letter",
		file: "connector/kafka/deadletters.go",
		old:  "if answers[i].err == 0 {", new: "if answers[i].err > -100 {",
		pkg: "./connector/kafka", test: "^TestLettersCodes$",
	},
	{
		name: "a dead letter is acknowledged by the leader alone",
		file: "connector/kafka/produce.go",
		old:  "const allReplicas int16 = -1", new: "const allReplicas int16 = 1",
		pkg: "./connector/kafka", test: "^TestLettersAreSentInParts$",
	},
	{
		name: "the record's headers are mistaken for those of its dead letter",
		file: "reliability/deadletter/record.go",
		old:  "i := len(r.Headers) - 1\n\tfor i >= 0 && r.Headers[i].Key != versionHeader {\n\t\ti--\n\t}", new: "i := 0\n\tfor i < len(r.Headers) && r.Headers[i].Key != versionHeader {\n\t\ti++\n\t}\n\tif i == len(r.Headers) {\n\t\ti = -1\n\t}",
		pkg: "./reliability/deadletter", test: "^TestLetterOfALetter$",
	},
	{
		name: "a dead letter of a lost or fenced session is written",
		file: "connector/plan/batch.go",
		old:  "return ok && span.Session == c.Session && c.Offset < span.Next", new: "return ok && c.Offset < span.Next",
		pkg: "./connector/plan", test: "^TestDecide_Letters$",
	},
	{
		name: "dead letters of a flood are written before it is held",
		file: "connector/plan/decide.go",
		old:  "for _, h := range holds {\n\t\t\tp.hold(h)", new: "for _, h := range holds {\n\t\t\tp.Holds = append(p.Holds, h)",
		pkg: "./connector/plan", test: "^TestDecide_Floods$",
	},
	{
		name: "a run spans a bad record",
		file: "connector/lane/lane.go",
		old:  "n > 0 && !o.breakRun && o.runs", new: "n > 0 && o.runs",
		pkg: "./test/story", test: "^TestFlood_StopsInTheMiddle$",
	},
	{
		name: "a dead letter shares the memory of the fetch result",
		file: "connector/lane/candidate.go",
		old:  "c.Record, c.Allocated = clone(r), Weight(r)", new: "shared := *r\n\t\tc.Record, c.Allocated = &shared, Weight(r)",
		pkg: "./test/story", test: "^TestLetters_LittleMemory$",
	},
	{
		name: "bad records do not count as memory",
		file: "connector/lane/lane.go",
		old:  "allocated := o.sealedAllocated + o.letterBytes\n", new: "allocated := o.sealedAllocated\n",
		pkg: "./test/story", test: "^TestLetters_LittleMemory$",
	},

	// Duplicates that producers make.
	{
		name: "fingerprints are remembered before the commit",
		file: "connector/commit/commit.go",
		old:  "\tp.Commit.Staged = staged\n", new: "\tp.Commit.Staged = staged\n\tc.window.remember(ctx, p)\n",
		pkg: "./connector/commit", test: "^TestWindow_RemembersAfterCommit$",
	},
	{
		name: "a dedup window that ends before the position counts as complete",
		file: "connector/commit/window.go",
		old:  "\t\tif through == position {", new: "\t\tif through == position || through > 0 {",
		pkg: "./test/story", test: "^TestSchedules_Duplicates$",
	},

	// Dead letters after they are in their topic.
	{
		name: "an allowance of a flood never ends",
		file: "sink/opslog/state.go",
		old:  "return ok && now.Before(a.Until)", new: "return ok && (now.Before(a.Until) || a.Seq > 0)",
		pkg: "./sink/opslog", test: "^TestState_FloodAllowances$",
	},
	{
		name: "a dead letter whose record has a row is not void",
		file: "internal/admin/letters_state.go",
		old:  "b.set(l, LetterVoid, \"\")", new: "b.set(l, LetterUnresolved, \"\")",
		pkg: "./cmd/connector", test: "^TestDeadLettersList$",
	},
	{
		name: "a list takes the facts of an older copy of a dead letter",
		file: "internal/admin/letters_book.go",
		old:  "cmp.Compare(x.failed, y.failed), cmp.Compare(x.dead, y.dead)", new: "cmp.Compare(x.dead, y.dead)",
		pkg: "./internal/admin", test: "^TestLetterBook_EqualsMap$",
	},
	{
		name: "copies of a dead letter take memory",
		file: "internal/admin/letters_book.go",
		old:  "s.settle()\n\tif n := cap", new: "if n := cap",
		pkg: "./internal/admin", test: "^TestLetterBook_Bound$",
	},
	{
		name: "other dead letters at the same offsets are shown",
		file: "internal/admin/letters_read.go",
		old:  "if topic.ID != p.TopicID {", new: "if p.TopicID = topic.ID; topic.Name == \"\" {",
		pkg: "./internal/admin", test: "^TestLetterBook_TopicCreatedAgain$",
	},
	{
		name: "a decision about very many dead letters leaves some out",
		file: "internal/admin/letters_select.go",
		old:  "n := min(len(rest), room)", new: "n := min(len(rest), room, 40_000)\n\t\t\trest = rest[:n]",
		pkg: "./internal/admin", test: "^TestChosenLetters_Entries$",
	},
	{
		name: "a letter table keeps a value as text, not as bytes",
		file: "connector/decode/letter.go",
		old:  "if utf8.Valid(b) {", new: "if utf8.Valid(b) || len(b) > 0 {",
		pkg: "./connector/decode", test: "^TestLettersKeepEverything$",
	},
	{
		name: "a record without a value in a dead-letter topic is left out",
		file: "connector/lane/lane.go",
		old:  "err == nil && b.Refuse.LeaveOut(r)", new: "err == nil && r.Value == nil",
		pkg: "./cmd/connector", test: "^TestLetterTables$",
	},

	// Failures of the connector's own work.
	{
		name: "records that fail together are isolated",
		file: "connector/commit/isolate.go",
		old:  "connector.IsLocal(stopped) {\n\t\t\treturn nil, nil", new: "connector.IsLocal(stopped) {\n\t\t\tstopped = nil",
		pkg: "./test/story", test: "^TestIsolate_OnlyWithOthers$",
	},
	{
		name: "records are isolated although all of them fail",
		file: "connector/commit/isolate.go",
		old:  "} else if !c.encoded || len(s.found) > 1 {", new: "} else if c.lanes < 0 {",
		pkg: "./test/story", test: "^TestIsolate_NoRecordAtFault$",
	},
	{
		name: "rows beside a failure of the decoder are committed",
		file: "connector/commit/write.go",
		old:  "if _, err := batch.FailedAt(); err != nil {", new: "if _, err := batch.FailedAt(); err != nil && c.lanes < 0 {",
		pkg: "./test/story", test: "^TestIsolate_RecordAtFault$",
	},
	{
		name: "jitter is added to a schedule of pauses",
		file: "reliability/recordretry.go",
		old:  "return max(r.Schedule[n-1], 0)", new: "return Backoff{Initial: r.Schedule[n-1], Max: r.Schedule[n-1], Jitter: 0.25}.Pause(1)",
		pkg: "./reliability", test: "^TestWorkers$",
	},
	{
		name: "verify excuses lost records once another program has deleted rows",
		file: "internal/admin/verify_topic.go",
		old:  "n := min(c.lost, max(rows, 0))", new: "n := c.lost",
		pkg: "./cmd/connector", test: "^TestVerifyKafka_LostBesideDeleted$",
	},
}
