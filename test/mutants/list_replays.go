package main

// ofReplays breaks the rules by which each dead letter becomes at most one row by replays, and a discarded one none.
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
		old:  "return open.Seq == r.After }", new: "return open.Seq == r.After && r.After < 0 }",
		pkg: "./internal/replay", test: "^TestAdd_Concurrently$",
	},
	{
		name: "a replay makes a row of a dead letter that was discarded meanwhile",
		file: "internal/replay/replay.go",
		old:  "resolved(now, p).Within(at).Len() > 0", new: "resolved(now, p).Within(at).Len() > 1<<40",
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
}
