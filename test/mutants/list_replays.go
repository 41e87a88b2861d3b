package main

// ofReplays has the mutants that break the rules by which each dead letter becomes at most one row by replays, and a
// discarded one none.
var ofReplays = []mutant{
	{
		name: "two replays that continue the same one are both committed",
		file: "connector/plan/replay.go",
		old:  "at != r.After", new: "at > r.Intent",
		pkg: "./internal/replay", test: "^TestAdd_Concurrently$",
	},
	{
		name: "a replay is committed although a position was moved back",
		file: "connector/plan/replay.go",
		old:  "!ok || at < passed", new: "!ok && at < passed",
		pkg: "./connector/plan", test: "^TestReplay_Precondition$",
	},
	{
		name: "an undecided replay counts as not committed",
		file: "internal/replay/settle.go",
		old:  "case at == open.After:\n\t\treturn \"\", false", new: "case at == open.After:\n\t\treturn opslog.Conflict, true",
		pkg: "./internal/replay", test: "^TestWithdraw$",
	},
	{
		name: "a committed replay counts as not committed",
		file: "internal/replay/settle.go",
		old:  "case at == open.Seq:", new: "case at == open.Seq && at < 0:",
		pkg: "./internal/replay", test: "^TestAdd_EveryStep$",
	},
	{
		name: "a replay continues one whose outcome is not recorded",
		file: "internal/replay/replay.go",
		old:  "return open.Seq == body.After }", new: "return open.Seq == body.After && body.After < 0 }",
		pkg: "./internal/replay", test: "^TestAdd_Concurrently$",
	},
	{
		name: "a replay makes a row of a dead letter that was discarded meanwhile",
		file: "internal/replay/replay.go",
		old:  "resolved(now, p).Within(l.Offsets).Len() > 0", new: "resolved(now, p).Within(l.Offsets).Len() > 1<<40",
		pkg: "./internal/replay", test: "^TestAdd_Concurrently$",
	},
	{
		name: "a replay does not notice that members have read its records again",
		file: "internal/replay/replay.go",
		old:  "now.LastMove(p.Topic) != state.LastMove(p.Topic)", new: "now.LastMove(p.Topic) < state.LastMove(p.Topic)",
		pkg: "./internal/replay", test: "^TestAdd_ReadAgain$",
	},
	{
		name: "a replay begins while positions are being moved",
		file: "internal/replay/settle.go",
		old:  "open && time.Since(m.Since) < MoveTimeout", new: "open && time.Since(m.Since) > MoveTimeout",
		pkg: "./internal/replay", test: "^TestAdd_MovedPositions$",
	},
	{
		name: "a replay repeats a row that the table has",
		file: "internal/replay/rows.go",
		old:  "return why != \"\"", new: "return why != \"\" && why != HasRow",
		pkg: "./internal/replay", test: "^TestAdd_LeavesOut$",
	},
	{
		name: "a search for rows of several topics misses those of the second",
		file: "internal/lookup/places.go",
		old:  "all[n-1].Topic == topic && ", new: "",
		pkg: "./internal/replay", test: "^TestAdd_TopicsOfOneTable$",
	},
	{
		name: "a replay makes a row of a record that members will read",
		file: "internal/replay/rows.go",
		old:  "case r.Record.Offset >= next:", new: "case r.Record.Offset > next:",
		pkg: "./internal/replay", test: "^TestAdd_LeavesOut$",
	},
	{
		name: "a replay takes the rows of an earlier topic for those of its own",
		file: "internal/replay/rows.go",
		old:  "case !proven:", new: "case !proven && r.Record.Offset < 0:",
		pkg: "./internal/replay", test: "^TestAdd_LeavesOut$",
	},
	{
		name: "each try of a replay counts its failures again",
		file: "internal/replay/rows.go",
		old:  "case t.failed[r.coordinates()]: // in an earlier try", new: "case t.failed == nil: // in an earlier try",
		pkg: "./internal/replay", test: "^TestAdd_Conflict$",
	},
	{
		name: "a replayed dead letter can be discarded",
		file: "sink/opslog/letterstate.go",
		old:  "offsets.Union(l.Discarded, at.Without(l.Replayed))", new: "offsets.Union(l.Discarded, at)",
		pkg: "./sink/opslog", test: "^TestState_Letters$",
	},
	{
		name: "the row of a replay hides a lost record from verify",
		file: "internal/admin/verify_topic.go",
		old:  "case has && c.replayed(r.Offset):", new: "case has && c.replayed(r.Offset) && r.Offset < 0:",
		pkg: "./internal/admin", test: "^TestTopicCheck_Replayed$",
	},
	{
		name: "a member accepts an origin although one before it is missing",
		file: "connector/plan/origins.go",
		old:  "o.Number == n+1:", new: "o.Number > n:",
		pkg: "./connector/plan", test: "^TestDecide_Origins$",
	},
	{
		name: "the commit of a member does not require the accepted origins that it saw",
		file: "connector/plan/origins.go",
		old:  "p.expects[appID] = before", new: "_ = before",
		pkg: "./internal/replay", test: "^TestReproduce_StaleMember$",
	},
	{
		name: "an origin of a closed intent makes its record an ordinary one",
		file: "connector/plan/origins.go",
		old:  "o.Intent > intent:", new: "o.Intent != intent:",
		pkg: "./internal/replay", test: "^TestReproduce_Killed$",
	},
	{
		name: "accepted origins are not part of the commit of their rows",
		file: "connector/plan/origins.go",
		old:  "if n.Accepted > 0 {", new: "if n.Accepted < 0 {",
		pkg: "./connector/plan", test: "^TestDecide_OriginsInAnyBatches$",
	},
	{
		name: "a withdrawal does not require the accepted origins that it names",
		file: "connector/plan/replay.go",
		old:  "at != want {", new: "at > want+1<<40 {",
		pkg: "./connector/plan", test: "^TestReplay_Origins$",
	},
	{
		name: "a direct replay takes dead letters that are in their topic",
		file: "internal/replay/rows.go",
		old:  "case inTopic.Has(r.Record.Offset):", new: "case inTopic.Has(r.Record.Offset) && next < 0:",
		pkg: "./internal/replay", test: "^TestReproduce_Killed$",
	},
	{
		name: "a replay through the topic counts as replayed once it is produced",
		file: "internal/replay/topic.go",
		old:  "all = all && intent == open.Seq && n == l.Offsets.Len()", new: "all = all && intent == open.Seq",
		pkg: "./internal/replay", test: "^TestReproduce_Missing$",
	},
	{
		name: "the rows of records with an origin share runs with others",
		file: "connector/lane/lane.go",
		old:  "o.breakRun = replayed", new: "_ = replayed",
		pkg: "./connector/lane", test: "^TestLane_Origins$",
	},
	{
		name: "a header counts although it was signed for another value",
		file: "reliability/origin/origin.go",
		old:  "[][]byte{text, key, value}", new: "[][]byte{text, key}",
		pkg: "./reliability/origin", test: "^TestKeys_Verify$",
	},
	{
		name: "the origin of another pipeline or partition counts",
		file: "connector/lane/origins.go",
		old:  "case o.Pipeline != f.pipeline || o.Record.Partition != p:", new: "case o.Pipeline == \"\":",
		pkg: "./connector/lane", test: "^TestLane_Origins$",
	},
}
