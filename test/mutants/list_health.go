package main

// ofHealth has the mutants that break the rules for a member's report about itself and other members.
var ofHealth = []mutant{
	// Lag.
	{
		name: "an equal lag counts as rising",
		file: "health/monitor.go",
		old:  "h.window[i].lag > h.window[i-1].lag; i--", new: "h.window[i].lag >= h.window[i-1].lag; i--",
		pkg: "./health", test: "^TestLagHistories$",
	},
	{
		name: "records in a batch that is not due count as lag",
		file: "health/monitor.go",
		old:  "\tif !overdue {", new: "\tif !overdue && s.Waiting.IsZero() {",
		pkg: "./health", test: "^TestLagHistories$",
	},
	{
		name: "a paused partition counts as stuck",
		file: "health/monitor.go",
		old:  "case s.Hold != \"\":\n\t\th.window, h.lag.Verdict = nil, VerdictHeld", new: "case s.Hold == \"x\":",
		pkg: "./health", test: "^TestLagHistories$",
	},
	{
		name: "the lag history of a partition survives its revocation",
		file: "internal/app/lagwatch.go",
		old:  "since time.Time\n\t\t}{c.Partition, c.Since},", new: "since time.Time\n\t\t}{},",
		pkg: "./internal/app", test: "^TestLagOfAClaimThatCameBack$",
	},

	// Registrations.
	{
		name: "a Postgres table of another program counts as ours",
		file: "classify/postgres/tables.go",
		old:  "\tif f.version > 0 {\n\t\twant = t.First", new: "\tif f.version >= 0 {\n\t\twant = t.First",
		pkg: "./classify/postgres", test: "^TestFound$",
	},
	{
		name: "members count as missing while their store is down",
		file: "health/membership/metrics.go",
		old:  "known := s.unknown(last) == \"\"", new: "known := !last.at.IsZero()",
		pkg: "./health/membership", test: "^TestStoreDown$",
	},
	{
		name: "the shutdown waits for a store of registrations that is down",
		file: "health/membership/keeper.go",
		old:  "timeout = hopeless", new: "timeout = time.Minute",
		pkg: "./health/membership", test: "^TestEnd$",
	},
	{
		name: "a member that leaves one group is removed from another",
		file: "health/membership/redis/leave.lua",
		old:  "if redis.call('ZREM', KEYS[2], ARGV[1]) == 1 then redis.call('DEL', KEYS[1]) end", new: "redis.call('ZREM', KEYS[2], ARGV[1]) redis.call('DEL', KEYS[1])",
		pkg: "./health/membership/redis", test: "^TestStore$",
	},

	{
		name: "a member registers a loopback address",
		file: "internal/app/address.go",
		old:  "; membership.Dialable(ip) {\n\t\ta.found", new: "; ip.IsValid() {\n\t\ta.found",
		pkg: "./internal/app", test: "^TestAdvertiser$",
	},
	{
		name: "a registered address may have credentials and a path",
		file: "health/membership/address.go",
		old:  "if u.Scheme+\"://\"+net.JoinHostPort(host, port) != address {", new: "if net.JoinHostPort(host, port) == address {",
		pkg: "./health/membership", test: "^TestCheckAddress$",
	},
	{
		name: "a registered address in Redis is not checked",
		file: "health/membership/redis/store.go",
		old:  "if m.Address = e.Address; m.Address != \"\" {", new: "if m.Address = e.Address; m.Address == \"x\" {",
		pkg: "./health/membership/redis", test: "^TestStore$",
	},
	{
		name: "a registered name that resolves to this machine gets a request",
		file: "internal/admin/holds_members.go",
		old:  "if err != nil || !membership.Dialable(to.Addr()) {", new: "if err != nil || to.Port() == 0 {",
		pkg: "./internal/admin", test: "^TestRegisteredTransport$",
	},
	{
		name: "a member that took over the address of another one speaks for it",
		file: "internal/admin/holds_members.go",
		old:  "case report.Member != \"\" && report.Member != m.ID:", new: "case report.Member == \"x\":",
		pkg: "./internal/admin", test: "^TestRequestEach$",
	},
	{
		name: "requests to registered members follow redirects",
		file: "internal/admin/holds_report.go",
		old:  "{ return http.ErrUseLastResponse }", new: "{ return nil }",
		pkg: "./internal/admin", test: "^TestRequestEach$",
	},
	{
		name: "a silent member delays holds until the whole time is over",
		file: "internal/admin/holds_members.go",
		old:  "context.WithTimeout(ctx, registeredTime)", new: "context.WithTimeout(ctx, time.Hour)",
		pkg: "./internal/admin", test: "^TestRequestEach$",
	},
	{
		name: "members may report any number of holds",
		file: "internal/admin/holds_report.go",
		old:  "if budget.Add(-size) < 0 {", new: "if budget.Add(-size) < -1<<62 {",
		pkg: "./internal/admin", test: "^TestRequestEach_Budget$",
	},

	// Copies of the operations log.
	{
		name: "a rewritten operations log is copied after the old copies",
		file: "sink/opslog/mirror/mirror.go",
		old:  "case e.Seq == newest.Seq && e.Head() != newest, e.Seq == head.Seq && e.Head() != head:", new: "case e.Seq == head.Seq && e.Head() != head:",
		pkg: "./sink/opslog/mirror", test: "^TestMirror_Diverged$",
	},
	{
		name: "a mirror that is down is not opened anew",
		file: "sink/opslog/mirror/mirror.go",
		old:  "\t\t\tm.close()\n\t\t\tif reliability", new: "\t\t\tif reliability",
		pkg: "./sink/opslog/mirror", test: "^TestMirror_Outage$",
	},
	{
		name: "a mirror from which a copy was deleted is asked in a loop",
		file: "sink/opslog/mirror/mirror.go",
		old:  "\t\tbefore = newest\n", new: "",
		pkg: "./sink/opslog/mirror", test: "^TestMirror_CopyDeleted$",
	},
	{
		name: "a panic of the mirror's client ends the process",
		file: "sink/opslog/mirror/mirror.go",
		old:  "err := panics.Catch(func() error { return m.copy(ctx) })", new: "err := m.copy(ctx)",
		pkg: "./sink/opslog/mirror", test: "^TestMirror_Panic$",
	},

	// The number of unresolved dead letters.
	{
		name: "a dead letter whose record has a row counts as unresolved",
		file: "health/lettercount/position.go",
		old:  "return offset >= p.Next || !row", new: "return true",
		pkg: "./health/lettercount", test: "^TestTally$",
	},
	{
		name: "a dead letter that an operator discarded counts as unresolved",
		file: "health/lettercount/position.go",
		old:  "if resolved || p.Pending(offset) {", new: "if p.Pending(offset) {",
		pkg: "./health/lettercount", test: "^TestTally$",
	},
	{
		name: "dead letters of records that Kafka has deleted count as pending",
		file: "health/lettercount/position.go",
		old:  "&& offset >= p.Log.Start && offset < p.Log.End", new: "",
		pkg: "./health/lettercount", test: "^TestTally$",
	},
	{
		name: "rows of a re-created topic make dead letters of the old one void",
		file: "internal/lookup/places.go",
		old:  "if id.Partition.Cluster != p.Cluster || id.Partition.TopicID != p.TopicID {", new: "if id.Partition.Cluster != p.Cluster {",
		pkg: "./internal/app", test: "^TestLettersOfATopicThatWasCreatedAgain$",
	},
	{
		name: "dead letters after a position that moved back are not judged again",
		file: "health/lettercount/tally.go",
		old:  "s.again(max(to, 0))", new: "s.again(max(to, s.judged))",
		pkg: "./health/lettercount", test: "^TestTallyOfAPositionThatWasSetBack$",
	},
	{
		name: "a position that moved back and forth between two polls is missed",
		file: "sink/delta/follow.go",
		old:  "ok && a.Version < before.Version {", new: "ok && a.Version < before.Version-1000 {",
		pkg: "./sink/delta", test: "^TestFollower$",
	},
	{
		name: "dead letters that cannot be counted now count as none",
		file: "internal/app/letterwatch.go",
		old:  "if o.failures[topic] == nil {\n\t\t\tcounted", new: "if o.failures[topic] == nil || len(counts) == 0 {\n\t\t\tcounted",
		pkg: "./internal/app", test: "^TestUnresolvedLettersThatCannotBeCounted$",
	},
	{
		name: "the number of dead letters follows a replay only with the next count",
		file: "internal/app/letterwatch_judge.go",
		old:  "w.stands(table) != nil || w.followTable(", new: "w.stands(table) != nil || w.tally != nil || w.followTable(",
		pkg: "./internal/app", test: "^TestLetterWatch_FollowsInTime$",
	},
	{
		name: "a replay that could not be followed at once is forgotten",
		file: "internal/app/letterwatch.go",
		old:  "case <-again.C:", new: "case <-make(chan bool):",
		pkg: "./internal/app", test: "^TestLetterWatch_FollowsInTime$",
	},
	{
		name: "a deleted row of a replay makes its dead letter void",
		file: "internal/app/letterwatch_judge.go",
		old:  "if change.Others {\n\t\treturn", new: "if change.Others && change.Anew {\n\t\treturn",
		pkg: "./internal/app", test: "^TestLetterWatch_ReplayedRowsGone$",
	},
	{
		name: "a recount leaves the rows of replays out",
		file: "health/lettercount/tally.go",
		old:  "!c.replayed && (at", new: "(at",
		pkg: "./health/lettercount", test: "^TestTally",
	},
	{
		name: "dead letters that only the letter table has do not count",
		file: "internal/app/letterwatch_partition.go",
		old:  "kept := lettercount.Kept{Archived: archived,", new: "kept := lettercount.Kept{Archived: min(archived, 0),",
		pkg: "./internal/app", test: "^TestArchivedLetters$",
	},
	{
		name: "the letter table is asked in each count",
		file: "internal/app/letterwatch_partition.go",
		old:  "archived < b.LogStart {", new: "archived >= 0 {",
		pkg: "./internal/app", test: "^TestArchivedLetters$",
	},
	{
		name: "dead letters that retention deletes during the count are passed",
		file: "internal/app/letterwatch_partition.go",
		old:  "\tif archive {", new: "\tif archive && span.Archived {",
		pkg: "./internal/app", test: "^TestArchivedLetters_RetentionDuringTheCount$",
	},
	{
		name: "dead letters that retention deleted before they were archived count on in a running member",
		file: "health/lettercount/tally.go",
		old:  "k.Archived >= k.Start || to <= k.Archived", new: "k.Archived > 0",
		pkg: "./health/lettercount", test: "^TestTally",
	},
	{
		name: "a dead letter that was not in the last count is not judged when it is read again",
		file: "health/lettercount/tally.go",
		old:  "\td.seen = d.seen[:0]\n", new: "",
		pkg: "./health/lettercount", test: "^TestTally_ReadingFailedBeforeACount$",
	},

	// The member's own report.
	{
		name: "a component that is down leaves the member's status ok",
		file: "health/status.go",
		old:  "case Degraded, Down:\n\t\t\treturn Degraded", new: "case Degraded:\n\t\t\treturn Degraded\n\t\tcase Down:",
		pkg: "./health", test: "^TestAComponentThatIsDown$",
	},
	{
		name: "/health always responds 200",
		file: "health/ops/report.go",
		old:  "s.write(w, r, code(sum.Ready), a)", new: "s.write(w, r, http.StatusOK, a)",
		pkg: "./health/ops", test: "^TestAnswers$",
	},
	{
		name: "the report shows the password of an address",
		file: "health/ops/text.go",
		old:  "text = userinfo.ReplaceAllString(text, \"://***@\")", new: "_ = userinfo",
		pkg: "./health/ops", test: "^TestNothingSecretIsTold$",
	},
	{
		name: "the command of a paused topic resumes a partition",
		file: "internal/app/report_parts.go",
		old:  "if h.Reason == string(hold.Paused) {", new: "if h.Reason == \"\" {",
		pkg: "./cmd/connector", test: "^TestCommandOfAPause$",
	},

	// Logs, metrics and alerts for operators.
	{
		name: "the time to data loss is lost while Kafka is down",
		file: "internal/app/dataloss.go",
		old:  "case failure != nil:\n\t\treturn w.before(c.Partition)", new: "case failure != nil:\n\t\treturn deadline{}, false",
		pkg: "./internal/app", test: "^TestSecondsToDataLoss$",
	},
	{
		name: "an alert uses a metric that does not exist",
		file: "connector/intake/metrics.go",
		old:  `"sluice_backpressure_long_total"`, new: `"sluice_short_pauses_total"`,
		pkg: "./cmd/connector", test: "^TestAlerts$",
	},
	{
		name: "time in which the process did not run counts against its loops",
		file: "health/liveness/watch.go",
		old:  "min(max(now.Sub(w.checked), 0), missed)",
		new:  "max(now.Sub(w.checked), 0)",
		pkg:  "./health/liveness", test: "TestAPause",
	},
	{
		name: "a commit without a response counts as a stalled loop",
		file: "connector/commit/waitingtable.go",
		old:  "err = t.call(ctx, func() error { s, err = t.Table.Commit(ctx, c, pre); return err })",
		new:  "s, err = t.Table.Commit(ctx, c, pre)",
		pkg:  "./test/story", test: "TestAlive_Outage",
	},
	{
		name: "a slow response body counts as a stalled loop",
		file: "sink/delta/retried.go",
		old:  "b.took(b.wait(p))",
		new:  "b.took(b.part.Read(p))",
		pkg:  "./sink/delta", test: "TestPulse_Read",
	},
	{
		name: "a partition without a leader opens the breaker of the lag watch",
		file: "internal/app/lagwatch.go",
		old:  "unread || len(ends) > 0 {",
		new:  "unread && len(ends) > 1<<30 {",
		pkg:  "./internal/app", test: "TestLagWatch_PartitionWithoutLeader",
	},
	{
		name: "a lane that decodes one block forever counts as alive",
		file: "connector/lane/lane.go",
		old:  "\t\t\tloop.Work()\n",
		new:  "",
		pkg:  "./test/story", test: "TestAlive_WedgedLoop",
	},
	{
		name: "after the clock was set back, a dead process counts as alive",
		file: "health/liveness/file.go",
		old:  "case age < -Stale:",
		new:  "case age < -time.Hour*24*365:",
		pkg:  "./health/liveness", test: "TestAge",
	},
	{
		name: "the dump of goroutines shows arguments",
		file: "health/liveness/dump.go",
		old:  "line = withoutArguments(bytes.TrimSuffix(line, []byte{'\\n'}))",
		new:  "line = bytes.TrimSuffix(line, []byte{'\\n'})",
		pkg:  "./health/liveness", test: "TestGoroutinesHoldNoValues",
	},
}
