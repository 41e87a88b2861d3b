package main

// ofRecords are the rules on the path of a record into its table.
var ofRecords = []mutant{
	// The compare-and-set of positions.
	{
		name: "PRE does not compare positions",
		file: "connector/plan/decide.go",
		old:  "if at != want {", new: "if at != want && at < 0 {",
		pkg: "./connector/plan", test: "^TestPlan_Precondition$",
	},
	{
		name: "PRE is judged on the first prefix only",
		file: "sink/delta/commit.go",
		old:  "if err := pre(t.head.snapshot); err != nil {", new: "if err := pre(t.head.snapshot); err != nil && losses == 0 {",
		pkg: "./sink/delta", test: "^TestLostRace$",
	},
	{
		name: "a START ignores the topic's history",
		file: "connector/plan/decide.go",
		old:  "len(past) > 0 {\n\t\t\treturn classify.Mark(", new: "len(past) > 1000 {\n\t\t\treturn classify.Mark(",
		pkg: "./connector/plan", test: "^TestPlan_Precondition$",
	},
	{
		name: "the table's mark is not looked at before a commit",
		file: "connector/plan/decide.go",
		old:  "detail != \"\" && !p.accepts {", new: "detail != \"\" && len(detail) < 0 {",
		pkg: "./test/story", test: "^TestReplacedTable_TakesNoRows$",
	},
	{
		name: "a position is known by the topic's name alone",
		file: "idempotency/coordinates.go",
		old:  "escape(p.Topic), p.TopicID.String(), strconv", new: "escape(p.Topic), TopicID{}.String(), strconv",
		pkg: "./idempotency", test: ".",
	},

	// The outcome of a commit.
	{
		name: "a commit overwrites the version",
		file: "sink/logappend/entry.go",
		old:  "bytes.NewReader(e.Body), objstore.IfAbsent)", new: "bytes.NewReader(e.Body), objstore.Replace)",
		pkg: "./sink/delta", test: "^TestLostRace$",
	},
	{
		name: "an existing version is always another's",
		file: "sink/logappend/entry.go",
		old:  "case mine:\n\t\treturn true, nil", new: "case mine:\n\t\treturn false, nil",
		pkg: "./sink/delta", test: "^TestOutcomes$",
	},
	{
		name: "412 as success: an existing version is always ours",
		file: "sink/logappend/entry.go",
		old:  "case mine:", new: "case mine, err == nil:",
		pkg: "./sink/delta", test: "^TestLostRace$",
	},
	{
		name: "the next version while the outcome is unknown",
		file: "sink/logappend/entry.go",
		old:  "return false, e.retryable(put)\n\tcase err != nil:", new: "return false, nil\n\tcase err != nil:",
		pkg: "./sink/delta", test: "^TestOutcomes$",
	},
	{
		name: "a new id for a version that is not there yet",
		file: "sink/delta/append.go",
		old:  "return id == p.txnID, err",
		new:  "if errors.Is(err, objstore.ErrNotFound) {\n\t\t\t\tp.txnID += \"-again\"\n\t\t\t}\n\t\t\treturn id == p.txnID, err",
		pkg:  "./sink/delta", test: "^TestOutcomes$",
	},
	{
		name: "a commit on a snapshot of any age",
		file: "sink/logappend/entry.go",
		old:  "return mono < maxAge && wall < maxAge && wall > -time.Second", new: "return mono <= mono+maxAge && wall <= wall+maxAge",
		pkg: "./sink/delta", test: "^Test(OldSnapshot|SleptPastCleanup)$",
	},
	{
		name: "files of an undecided commit are deleted",
		file: "sink/delta/stage.go",
		old:  "case f.mayBeNamed:", new: "case f.mayBeNamed && f.discarded:",
		pkg: "./sink/delta", test: "^TestOldSnapshot$",
	},

	// The fate of a batch.
	{
		name: "rows of a lost or fenced session are committed",
		file: "connector/plan/batch.go",
		old:  "return ok && span.Session == r.Session && r.First < span.Next", new: "return ok && r.First < span.Next",
		pkg: "./connector/plan", test: "^TestDecide$",
	},
	{
		name: "a hold keeps the batch behind it",
		file: "connector/intake/holds.go",
		old:  "c.session = hs.sessions\n", new: "if c.session == 0 {\n\t\tc.session = hs.sessions\n\t}\n",
		pkg: "./test/story", test: "^TestHold_RecordsReadBehindIt$",
	},
	{
		name: "what waits for a lane is consumed",
		file: "connector/intake/progress.go",
		old:  "if c.dropDecoded(); len(c.inFlight) > 0 {", new: "if c.dropDecoded(); len(c.inFlight) > maxInFlight {",
		pkg: "./connector/intake", test: "^TestClaim_Consumed$",
	},
	{
		name: "rows that are in the table are waited for",
		file: "connector/lane/progress.go",
		old:  "func (p *Progress) ClearSealed() { p.sealed.clear() }", new: "func (p *Progress) ClearSealed() {}",
		pkg: "./test/story", test: "^TestStatus_Batch$",
	},
	{
		name: "a bad record is skipped",
		file: "connector/plan/decide.go",
		old:  "span.EndAt(h.Offset)", new: "span.EndAt(h.Offset + 1)",
		pkg: "./connector/plan", test: "^TestDecide$",
	},

	// The first position of a claim.
	{
		name: "the group's offset goes before the table's position",
		file: "connector/commit/resume.go",
		old:  "at = append(at, connector.Position{Partition: p, Next: next, Epoch: r.epoch",
		new:  "if o, ok := offsets[p.Topic][p.ID]; ok {\n\t\t\t\tnext = o.Next\n\t\t\t}\n\t\t\tat = append(at, connector.Position{Partition: p, Next: next, Epoch: r.epoch",
		pkg:  "./test/story", test: "^TestCommittedOffsets_FollowTable$",
	},
	{
		name: "group offsets are written before the commit",
		file: "connector/intake/dispatch.go",
		old:  "c.pass(last+1, epoch, first)\n",
		new:  "c.pass(last+1, epoch, first)\n\tearly := pendingOffset{}\n\tearly.Next, early.Epoch = c.next, c.epoch\n\td.Offsets.note(c.Partition, early.GroupOffset, \"\")\n",
		pkg:  "./test/story", test: "^TestSchedules$",
	},
	{
		name: "a position is told to the group when its batch is cut",
		file: "connector/intake/batch.go",
		old:  "\t\t\tc.from, c.earlier = c.next, nil\n",
		new:  "\t\t\tc.from, c.earlier = c.next, nil\n\t\t\tb.Offsets.note(p, connector.GroupOffset{c.next, c.epoch}, \"\")\n",
		pkg:  "./test/story", test: "^TestSchedules_Letters$",
	},
	{
		name: "what retention deleted is skipped",
		file: "connector/commit/resume.go",
		old:  "b, there := bounds[p]\n",
		new:  "b, there := bounds[p]\n\t\t\tpos.Next = max(pos.Next, b.LogStart)\n",
		pkg:  "./test/story", test: "^TestHold_PositionOutsideLog$",
	},

	// The view of a read-committed reader.
	{
		name: "checksums are not looked at",
		file: "connector/kafka/recordbatch/recordbatch.go",
		old:  "castagnoli) != h.crc {", new: "castagnoli) != h.crc && h.crc == 0 {",
		pkg: "./connector/kafka/recordbatch", test: "^TestRefusals$",
	},
	{
		name: "records of aborted transactions are delivered",
		file: "connector/kafka/recordbatch/recordbatch.go",
		old:  "case h.last < b.Next, dead && h.attrs&attrTxn != 0:", new: "case h.last < b.Next:",
		pkg: "./connector/kafka/recordbatch", test: "^TestOracle$",
	},
	{
		name: "a topic that was created again is read on by its name",
		file: "connector/kafka/fetch.go",
		old:  "return c.compareTopics(ctx, req, f)", new: "return nil",
		pkg: "./connector/kafka", test: "^TestLogByNameRecreatedUnseen$",
	},
	{
		name: "an old broker's word is taken for a log that was truncated",
		file: "connector/kafka/fetcher.go",
		old:  "case p.unchecked && p.err == 0 &&", new: "case false && p.unchecked && p.err == 0 &&",
		pkg: "./connector/kafka", test: "^TestLogTruncatedUnseenByBroker$",
	},
	{
		name: "growth of the log ends a hold of what it lost",
		file: "connector/intake/holds.go",
		old:  "return f.At.Next != c.hold.Offset || f.At.Epoch >= 0", new: "return true",
		pkg: "./test/story", test: "^TestTruncatedLog_GrownPastPosition$",
	},

	// Decisions of operators.
	{
		name: "an operation of unknown outcome gives way",
		file: "sink/logappend/entry.go",
		old:  "return false, e.retryable(put)\n\tcase err != nil:", new: "return false, nil\n\tcase err != nil:",
		pkg: "./sink/opslog", test: "^TestRaces$",
	},
	{
		name: "an operation is put behind an old look",
		file: "sink/logappend/entry.go",
		old:  "if Recent(e.PreviousSeen, time.Now()) {", new: "if !e.PreviousSeen.IsZero() {",
		pkg: "./sink/opslog", test: "^TestAppend_WriterWokeUp$",
	},
	{
		name: "the chain of operations is not checked",
		file: "sink/opslog/chain.go",
		old:  "case e.Prev != head.Hash:", new: "case e.Prev == e.hash:",
		pkg: "./sink/opslog", test: "^TestVerify_RewrittenEntry$",
	},
	{
		name: "a broken operations log ends all pauses",
		file: "sink/opslog/follow.go",
		old:  "f.state = f.chain.state // the", new: "f.state = &State{} // the",
		pkg: "./sink/opslog", test: "^TestFollower_KeepsPausesInTrouble$",
	},
	{
		name: "a claim assigned while it is paused is read",
		file: "connector/intake/outcomes.go",
		old:  "oc.holds.pause(c, h)\n\t\treturn", new: "_ = h",
		pkg: "./test/story", test: "^TestPause_AssignedWhilePaused$",
	},
	{
		name: "reading begins before it is known what is paused",
		file: "internal/app/operations.go",
		old:  "case <-s.operations.Ready():", new: "case <-ctx.Done():\n\t\treturn nil\n\tcase <-s.operations.Ready():",
		pkg: "./internal/app", test: "^TestMember_AwaitsOperations$",
	},

	// Topics that are added or deleted.
	{
		name: "a topic that appeared begins at its end",
		file: "connector/intake/assignment.go",
		old:  "conf.Start = conf.Start.ForNewTopic()", new: "_ = conf.Start.ForNewTopic()",
		pkg: "./test/story", test: "^TestTopic_Appeared",
	},
	{
		name: "a pattern stands for dead letters",
		file: "internal/config/patterns.go",
		old:  "p.matches.MatchString(topic) && !neverMatches(topic) &&", new: "p.matches.MatchString(topic) &&",
		pkg: "./internal/config", test: "^TestRoute$",
	},
	{
		name: "topics of one table need not agree on it",
		file: "internal/config/tables.go",
		old:  "if sameValue(ka[i], kb[i]) {", new: "if sameValue(ka[i], kb[i]) || true {",
		pkg: "./internal/config", test: "^TestBadConfigs$",
	},

	// Failures.
	{
		name: "poison is counted by the breaker",
		file: "reliability/guard.go",
		old:  "return err == nil || g.answer(err) || classify.Of(err) != classify.Transient\n\t\t},", new: "return err == nil || g.answer(err)\n\t\t},",
		pkg: "./reliability", test: "^TestPoisonNeverCounts$",
	},
	{
		name: "jitter comes before the cap",
		file: "reliability/backoff.go",
		old:  "return max(0, d+time.Duration(spread))", new: "return max(0, min(d+time.Duration(spread), b.Max))",
		pkg: "./reliability", test: "^TestBackoffIsSpreadAtTheCapToo$",
	},
	{
		name: "a cancelled request counts as a success",
		file: "reliability/guard.go",
		old:  "return err != nil && classify.Of(err) == classify.Canceled }", new: "return err != nil && classify.Of(err) == classify.Canceled && err == nil }",
		pkg: "./reliability", test: "^TestCancelledCallsDoNotCount$",
	},

	// The wire protocol.
	{
		name: "certificates are not verified",
		file: "connector/kafka/dial/open.go",
		old:  "InsecureSkipVerify: t.InsecureSkipVerify,", new: "InsecureSkipVerify: true,",
		pkg: "./connector/kafka/dial", test: "^TestCauses$",
	},
	{
		name: "the server need not know the password",
		file: "connector/kafka/dial/scram.go",
		old:  "subtle.ConstantTimeCompare(shown, s.signature) != 1 {", new: "len(shown) == 1 {",
		pkg: "./connector/kafka/dial", test: "^TestScram$",
	},
	{
		name: "refused credentials are tried again at once",
		file: "connector/kafka/dial/dial.go",
		old:  "time.Since(p.at) >= refusalTTL {", new: "time.Since(p.at) >= 0 {",
		pkg: "./connector/kafka/dial", test: "^TestRemembered$",
	},
	{
		name: "a half written file takes the good one out of force",
		file: "connector/kafka/dial/files.go",
		old:  "case p.apply == nil:\n\t\treturn err", new: "default:\n\t\treturn err",
		pkg: "./connector/kafka/dial", test: "^TestRotation$",
	},
	{
		name: "sessions end",
		file: "connector/kafka/dial/conn.go",
		old:  "return !c.renew.IsZero() &&", new: "return false && !c.renew.IsZero() &&",
		pkg: "./connector/kafka", test: "^TestSessionsEnd$",
	},

	// Positions that operators move, and tables that change while a member runs.
	{
		name: "an operator's move is not compared with what was shown",
		file: "connector/plan/moves.go",
		old:  "p.add(move.Partition, move.From, Span{", new: "p.add(move.Partition, s.Positions[move.Partition.AppID(m.Pipeline)], Span{",
		pkg: "./test/story", test: "^TestMove_ComparesWhatWasShown$",
	},
	{
		name: "the group's offsets are read after the snapshot",
		file: "connector/commit/resume.go",
		old:  "offsets, unanswered := r.kafka.groupOffsets(ctx, claims)\n\ts, err := r.table.Load(ctx)",
		new:  "s, err := r.table.Load(ctx)\n\toffsets, unanswered := r.kafka.groupOffsets(ctx, claims)",
		pkg:  "./test/story", test: "^TestStart_OffsetsBeforeSnapshot$",
	},
	{
		name: "a log that was set back is gone on with",
		file: "sink/delta/refresh.go",
		old:  "if errors.Is(err, objstore.ErrNotFound) {\n\t\treturn false, nil\n\t}\n\tif err != nil {", new: "if errors.Is(err, objstore.ErrNotFound) {\n\t\treturn true, nil\n\t}\n\tif err != nil {",
		pkg: "./sink/delta", test: "^TestTable_OlderCopyRestored$",
	},
	{
		name: "a version that was written anew counts as the one before",
		file: "sink/delta/refresh.go",
		old:  "now.Size == t.head.stamp.Size && now.Modified.Equal(t.head.stamp.Modified), nil", new: "now.Size >= 0, nil",
		pkg: "./sink/delta", test: "^TestTable_OlderCopyRestored$",
	},
	{
		name: "a position is adopted from the last record instead of behind it",
		file: "internal/admin/adopt.go",
		old:  "= version + 1", new: "= version + 0",
		pkg: "./cmd/connector", test: "^TestOffsetsAdoptFromIngest$",
	},

	// Memory.
	{
		name: "a lane gives an answer back before it has decoded it",
		file: "connector/lane/lane.go",
		old:  "\to := l.open[b.Table]\n\tif o == nil {\n\t\to = &openPart{stopped", new: "\tb.Result.Release()\n\tdefer b.Result.retain()\n\to := l.open[b.Table]\n\tif o == nil {\n\t\to = &openPart{stopped",
		pkg: "./test/story", test: "^TestSchedules_LittleMemory$",
	},
	{
		name: "answers of before a shedding are taken",
		file: "connector/intake/fetch.go",
		old:  " || c.ahead != f.From {", new: " {",
		pkg: "./connector/intake", test: "^TestFetches_Accept$",
	},
	{
		name: "a table that can take no more keeps what waits",
		file: "connector/intake/fetch.go",
		old:  "case short && c.state.reads() &&", new: "case short && len(c.queue) < 0 &&",
		pkg: "./test/story", test: "^TestMemory_StoppedTableStarvesNone$",
	},
	{
		name: "a full batch pool cuts nothing",
		file: "connector/intake/batch.go",
		old:  ", b.sealForMemory == t:", new: ", b.sealForMemory == t && b.draining:",
		pkg: "./test/story", test: "^TestMemory_FullPoolSeals$",
	},
	{
		name: "a dropped cut keeps its memory",
		file: "connector/commit/write.go",
		old:  "c.reserve(barrier, batch).end()", new: "_ = batch",
		pkg: "./connector/commit", test: "^TestReservation$",
	},
	{
		name: "a batch is decompressed beyond the pool",
		file: "connector/kafka/memory.go",
		old:  "if n > l.Max(held) {\n\t\treturn nil, recordbatch.ErrNeverRoom", new: "if n > l.Max(held) {\n\t\treturn make([]byte, 0, n), nil",
		pkg: "./connector/kafka", test: "^TestLogOversize$",
	},
}
