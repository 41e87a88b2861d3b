package main

// ofRecords has the mutants that break the rules on the path of a record into its table.
var ofRecords = []mutant{
	// The compare-and-set of positions.
	{
		name: "the precondition does not compare positions",
		file: "connector/plan/decide.go",
		old:  "if at != want {", new: "if at != want && at < 0 {",
		pkg: "./connector/plan", test: "^TestPlan_Precondition$",
	},
	{
		name: "the precondition is checked on the first prefix only",
		file: "sink/delta/commit.go",
		old:  "if err := pre(t.head.snapshot); err != nil {", new: "if err := pre(t.head.snapshot); err != nil && losses == 0 {",
		pkg: "./sink/delta", test: "^TestLostRace$",
	},
	{
		name: "an initial commit ignores the topic's history",
		file: "connector/plan/decide.go",
		old:  "len(past) > 0 {\n\t\t\treturn classify.Mark(", new: "len(past) > 1000 {\n\t\t\treturn classify.Mark(",
		pkg: "./connector/plan", test: "^TestPlan_Precondition$",
	},
	{
		name: "the table's id is not checked before a commit",
		file: "connector/plan/decide.go",
		old:  "detail != \"\" && !p.accepts {", new: "detail != \"\" && len(detail) < 0 {",
		pkg: "./test/story", test: "^TestReplacedTable_TakesNoRows$",
	},
	{
		name: "the key of a position lacks the topic id",
		file: "idempotency/coordinates.go",
		old:  "escape(p.Topic), p.TopicID.String(), strconv", new: "escape(p.Topic), TopicID{}.String(), strconv",
		pkg: "./idempotency", test: ".",
	},

	// The outcome of a commit.
	{
		name: "a commit overwrites an existing version",
		file: "sink/logappend/entry.go",
		old:  "bytes.NewReader(e.Body), objstore.IfAbsent)", new: "bytes.NewReader(e.Body), objstore.Replace)",
		pkg: "./sink/delta", test: "^TestLostRace$",
	},
	{
		name: "an existing version always counts as another writer's",
		file: "sink/logappend/entry.go",
		old:  "case mine:\n\t\treturn true, nil", new: "case mine:\n\t\treturn false, nil",
		pkg: "./sink/delta", test: "^TestOutcomes$",
	},
	{
		name: "an existing version always counts as ours",
		file: "sink/logappend/entry.go",
		old:  "case mine:", new: "case mine, err == nil:",
		pkg: "./sink/delta", test: "^TestLostRace$",
	},
	{
		name: "a commit goes to the next version while the outcome is unknown",
		file: "sink/logappend/entry.go",
		old:  "return false, e.retryable(put)\n\tcase err != nil:", new: "return false, nil\n\tcase err != nil:",
		pkg: "./sink/delta", test: "^TestOutcomes$",
	},
	{
		name: "a repeated PUT has a new transaction id",
		file: "sink/delta/append.go",
		old:  "return id == p.txnID, err",
		new:  "if errors.Is(err, objstore.ErrNotFound) {\n\t\t\t\tp.txnID += \"-again\"\n\t\t\t}\n\t\t\treturn id == p.txnID, err",
		pkg:  "./sink/delta", test: "^TestOutcomes$",
	},
	{
		name: "a commit is put on a snapshot of any age",
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
		name: "a hold keeps the claim's session",
		file: "connector/intake/holds.go",
		old:  "c.session = hs.sessions\n", new: "if c.session == 0 {\n\t\tc.session = hs.sessions\n\t}\n",
		pkg: "./test/story", test: "^TestHold_RecordsReadBehindIt$",
	},
	{
		name: "records in the queue of a lane count as consumed",
		file: "connector/intake/progress.go",
		old:  "if c.dropDecoded(); len(c.inFlight) > 0 {", new: "if c.dropDecoded(); len(c.inFlight) > maxInFlight {",
		pkg: "./connector/intake", test: "^TestClaim_Consumed$",
	},
	{
		name: "committed rows still count as waiting",
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
		name: "the committed offset is used before the table's position",
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
		name: "offsets are committed to the group when the batch is sealed",
		file: "connector/intake/batch.go",
		old:  "\t\t\tc.from, c.earlier = c.next, nil\n",
		new:  "\t\t\tc.from, c.earlier = c.next, nil\n\t\t\tb.Offsets.note(p, connector.GroupOffset{c.next, c.epoch}, \"\")\n",
		pkg:  "./test/story", test: "^TestSchedules_Letters$",
	},
	{
		name: "records that retention deleted are skipped",
		file: "connector/commit/resume.go",
		old:  "b, there := bounds[p]\n",
		new:  "b, there := bounds[p]\n\t\t\tpos.Next = max(pos.Next, b.LogStart)\n",
		pkg:  "./test/story", test: "^TestHold_PositionOutsideLog$",
	},

	// The view of a read-committed reader.
	{
		name: "checksums are not compared",
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
		name: "a re-created topic is read on by its name",
		file: "connector/kafka/fetch.go",
		old:  "return c.compareTopics(ctx, req, f)", new: "return nil",
		pkg: "./connector/kafka", test: "^TestLogByNameRecreatedUnseen$",
	},
	{
		name: "a truncation is not checked with brokers of an old version",
		file: "connector/kafka/fetcher.go",
		old:  "case p.unchecked && p.err == 0 &&", new: "case false && p.unchecked && p.err == 0 &&",
		pkg: "./connector/kafka", test: "^TestLogTruncatedUnseenByBroker$",
	},
	{
		name: "growth of a truncated log ends the hold",
		file: "connector/intake/holds.go",
		old:  "return f.At.Next != c.hold.Offset || f.At.Epoch >= 0", new: "return true",
		pkg: "./test/story", test: "^TestTruncatedLog_GrownPastPosition$",
	},

	// Decisions of operators.
	{
		name: "an operation of unknown outcome goes to the next entry",
		file: "sink/logappend/entry.go",
		old:  "return false, e.retryable(put)\n\tcase err != nil:", new: "return false, nil\n\tcase err != nil:",
		pkg: "./sink/opslog", test: "^TestRaces$",
	},
	{
		name: "an operation is appended after an old poll of the log",
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
		name: "a broken operations log ends all pauses in a member",
		file: "sink/opslog/follow.go",
		old:  "f.set(f.chain.state) // if", new: "f.set(&State{}) // if",
		pkg: "./sink/opslog", test: "^TestFollower_KeepsPausesInTrouble$",
	},
	{
		name: "a claim assigned while it is paused is read",
		file: "connector/intake/outcomes.go",
		old:  "oc.holds.pause(c, h)\n\t\treturn", new: "_ = h",
		pkg: "./test/story", test: "^TestPause_AssignedWhilePaused$",
	},
	{
		name: "reading begins before the operations log was read",
		file: "internal/app/operations.go",
		old:  "case <-s.operations.Ready():", new: "case <-ctx.Done():\n\t\treturn nil\n\tcase <-s.operations.Ready():",
		pkg: "./internal/app", test: "^TestMember_AwaitsOperations$",
	},

	// Topics that are added or deleted.
	{
		name: "a topic that was created later begins at its end",
		file: "connector/intake/assignment.go",
		old:  "conf.Start = conf.Start.ForNewTopic()", new: "_ = conf.Start.ForNewTopic()",
		pkg: "./test/story", test: "^TestTopic_Appeared",
	},
	{
		name: "a pattern matches dead-letter topics",
		file: "internal/config/patterns.go",
		old:  "p.matches.MatchString(topic) && !neverMatches(topic) &&", new: "p.matches.MatchString(topic) &&",
		pkg: "./internal/config", test: "^TestRoute$",
	},
	{
		name: "topics of one table need not agree on it",
		file: "internal/config/tables.go",
		old:  "if sameValue(ka[i], kb[i]) ||", new: "if true || sameValue(ka[i], kb[i]) ||",
		pkg: "./internal/config", test: "^TestBadConfigs$",
	},

	// Failures.
	{
		name: "poison counts as a failure for the breaker",
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
		name: "a SCRAM server need not prove that it knows the password",
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
		name: "a half-written secret file replaces the good one",
		file: "connector/kafka/dial/files.go",
		old:  "case p.apply == nil:\n\t\treturn err", new: "default:\n\t\treturn err",
		pkg: "./connector/kafka/dial", test: "^TestRotation$",
	},
	{
		name: "SASL sessions are not renewed",
		file: "connector/kafka/dial/conn.go",
		old:  "return !c.renew.IsZero() &&", new: "return false && !c.renew.IsZero() &&",
		pkg: "./connector/kafka", test: "^TestSessionsEnd$",
	},

	// Positions that operators move, and tables that change while a member runs.
	{
		name: "an operator's move is not compared with the shown position",
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
		name: "a log that was restored to an older version is not reloaded",
		file: "sink/delta/refresh.go",
		old:  "if errors.Is(err, objstore.ErrNotFound) {\n\t\treturn false, nil\n\t}\n\tif err != nil {", new: "if errors.Is(err, objstore.ErrNotFound) {\n\t\treturn true, nil\n\t}\n\tif err != nil {",
		pkg: "./sink/delta", test: "^TestTable_OlderCopyRestored$",
	},
	{
		name: "a rewritten version counts as unchanged",
		file: "sink/delta/refresh.go",
		old:  "now.Size == t.head.stamp.Size && now.Modified.Equal(t.head.stamp.Modified), nil", new: "now.Size >= 0, nil",
		pkg: "./sink/delta", test: "^TestTable_OlderCopyRestored$",
	},
	{
		name: "a position is adopted at the last record, not after it",
		file: "internal/admin/adopt.go",
		old:  "= version + 1", new: "= version + 0",
		pkg: "./cmd/connector", test: "^TestOffsetsAdoptFromIngest$",
	},

	// Memory.
	{
		name: "a lane releases a fetch result before it has decoded it",
		file: "connector/lane/lane.go",
		old:  "\to := l.open[b.Table]\n\tif o == nil {\n\t\to = &openPart{stopped", new: "\tb.Result.Release()\n\tdefer b.Result.retain()\n\to := l.open[b.Table]\n\tif o == nil {\n\t\to = &openPart{stopped",
		pkg: "./test/story", test: "^TestSchedules_LittleMemory$",
	},
	{
		name: "fetch results from before records were dropped are accepted",
		file: "connector/intake/fetch.go",
		old:  " || c.ahead != f.From {", new: " {",
		pkg: "./connector/intake", test: "^TestFetches_Accept$",
	},
	{
		name: "a table that cannot commit keeps its fetch results",
		file: "connector/intake/fetch.go",
		old:  "case short && c.state.reads() &&", new: "case short && len(c.queue) < 0 &&",
		pkg: "./test/story", test: "^TestMemory_StoppedTableStarvesNone$",
	},
	{
		name: "a full batch pool seals no batch",
		file: "connector/intake/batch.go",
		old:  ", b.sealForMemory == t:", new: ", b.sealForMemory == t && b.draining:",
		pkg: "./test/story", test: "^TestMemory_FullPoolSeals$",
	},
	{
		name: "a dropped sealed batch keeps its memory",
		file: "connector/commit/write.go",
		old:  "c.reserve(barrier, batch).end()", new: "_ = batch",
		pkg: "./connector/commit", test: "^TestReservation$",
	},
	{
		name: "a record batch is decompressed beyond the pool",
		file: "connector/kafka/memory.go",
		old:  "if n > l.Max(held) {\n\t\treturn nil, recordbatch.ErrNeverRoom", new: "if n > l.Max(held) {\n\t\treturn make([]byte, 0, n), nil",
		pkg: "./connector/kafka", test: "^TestLogOversize$",
	},
}
