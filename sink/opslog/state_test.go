package opslog

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"
)

// entry returns an entry whose checksums are not valid.
func entry(t interface{ Fatal(...any) }, seq int64, body Body) Entry {
	raw, err := marshal(body)
	if err != nil {
		t.Fatal(err)
	}
	return Entry{Seq: seq, At: someTime.Add(time.Duration(seq) * time.Hour), Operator: fmt.Sprint("op", seq), Reason: fmt.Sprint("r", seq), Kind: body.Kind(), Body: raw}
}

func TestState_Pauses(t *testing.T) {
	s := &State{}
	add := func(b Body) { s = s.after(entry(t, s.head.Seq+1, b)) }
	want := func(topic string, id int32, seq int64) {
		t.Helper()
		p, ok := s.Paused(topic, id)
		if ok != (seq > 0) || p.Seq != seq {
			t.Errorf("%s:%d is paused by %+v, want seq %d", topic, id, p, seq)
		}
	}
	add(Pause{[]Target{{"a", 1}, Topic("b")}}) // seq 1
	want("a", 1, 1)
	want("a", 2, 0)
	want("b", 7, 1)
	add(Pause{[]Target{Topic("a"), {"a", 1}}}) // seq 2; a:1 stays paused by seq 1
	want("a", 1, 1)
	want("a", 2, 2)
	before := s
	add(Resume{[]Target{Topic("a")}}) // seq 3, resumes the topic and its partitions
	want("a", 1, 0)
	want("b", 0, 1)
	if _, still := before.Paused("a", 1); !still {
		t.Error("an older state changed")
	}
	add(Resume{[]Target{{"b", 7}}}) // seq 4, without effect: the whole topic b is paused
	want("b", 7, 1)
	add(Pause{[]Target{All(), {"c", 0}}}) // seq 5
	want("x", 0, 5)
	add(Resume{[]Target{Topic("c")}}) // seq 6
	want("c", 0, 5)
	if got := s.Covering(Target{"b", 7}); len(got) != 2 || got[0].Target != All() || got[1].Target != Topic("b") {
		t.Errorf("b:7 is covered by %+v", got)
	}
	if got := s.Under(All()); len(got) != 2 {
		t.Errorf("%+v", got)
	}
	add(Resume{[]Target{All()}}) // seq 7
	want("b", 7, 0)
	if len(s.Pauses()) != 0 {
		t.Errorf("%+v", s.Pauses())
	}
}

func TestState_FloodAllowances(t *testing.T) {
	s := &State{}
	add := func(b Body) { s = s.after(entry(t, s.head.Seq+1, b)) }
	until := someTime.Add(3 * time.Hour)
	want := func(topic string, now time.Time, allowed bool) {
		t.Helper()
		if s.FloodAllowed(topic, now) != allowed {
			t.Errorf("%s at %v: allowed is %v", topic, now, !allowed)
		}
	}
	want("a", someTime, false)
	add(FloodAllow{Topic: "a", Until: until})
	before := s
	want("a", until.Add(-1), true)
	want("a", until, false)
	want("b", someTime, false)
	add(Pause{[]Target{Topic("b")}}) // entries of other kinds do not change the allowance
	want("a", until.Add(-1), true)
	if a, ok := s.FloodAllowance("a"); !ok || a.Seq != 1 || a.Operator != "op1" || a.Reason != "r1" || a.Until != until {
		t.Errorf("the allowance is %+v", a)
	}
	add(FloodAllow{Topic: "a", Until: someTime.Add(time.Hour)}) // the newest allowance counts, although it ends earlier than the first one
	want("a", until.Add(-1), false)
	want("a", someTime, true)
	if !before.FloodAllowed("a", until.Add(-1)) {
		t.Error("an older state changed")
	}
	if (*State)(nil).FloodAllowed("a", someTime) {
		t.Error("a log that nobody has read allows something")
	}
}

// TestState_PausedHold compares the state with the definition: a partition is paused if a pause names the partition,
// its topic or everything, and no later resume covers that pause.
func TestState_PausedHold(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		target := rapid.SampledFrom([]Target{All(), Topic("a"), Topic("b"), {"a", 0}, {"a", 1}, {"b", 0}})
		type step struct {
			pause   bool
			targets []Target
		}
		var steps []step
		s := &State{}
		for range rapid.IntRange(0, 12).Draw(t, "steps") {
			st := step{rapid.Bool().Draw(t, "pause"), rapid.SliceOfN(target, 1, 3).Draw(t, "targets")}
			steps = append(steps, st)
			var b Body = Resume{st.targets}
			if st.pause {
				b = Pause{st.targets}
			}
			s = s.after(entry(t, s.head.Seq+1, b))
		}
		for _, p := range []Target{{"a", 0}, {"a", 1}, {"b", 0}, {"c", 0}} {
			want := false
			for i, st := range steps {
				for _, by := range st.targets {
					if !st.pause || by != All() && by != Topic(p.Topic) && by != p {
						continue
					}
					want = want || !slices.ContainsFunc(steps[i+1:], func(later step) bool {
						return !later.pause && slices.ContainsFunc(later.targets, func(r Target) bool {
							return r == All() || r == by || r.Partition == -1 && r.Topic == by.Topic
						})
					})
				}
			}
			if _, got := s.Paused(p.Topic, p.Partition); got != want {
				t.Fatalf("%v paused: %v, want %v after %+v", p, got, want, steps)
			}
			if got := len(s.Covering(p)) > 0; got != want {
				t.Fatalf("%v covered: %v, want %v", p, got, want)
			}
		}
	})
}

func TestState_Forgotten(t *testing.T) {
	s := &State{}
	add := func(b Body) { s = s.after(entry(t, s.head.Seq+1, b)) }
	want := func(topic, id string, partition int32, below int64) {
		t.Helper()
		if got := s.Forgotten(topic, id, partition); got != below {
			t.Errorf("%s %s %d is forgotten below %d, want %d", topic, id, partition, got, below)
		}
	}
	want("a", "X", 0, 0)
	add(Forget{"a", "t", []Below{{"X", 0, 7}, {"X", 1, 9}}})
	before := s
	add(Pause{[]Target{Topic("a")}})
	add(Forget{"a", "t", []Below{{"X", 0, 12}}})
	want("a", "X", 0, 12)
	want("a", "X", 1, 9)
	want("a", "Y", 0, 0) // another topic id under the same name
	want("b", "X", 0, 0)
	if before.Forgotten("a", "X", 0) != 7 {
		t.Error("an older state changed")
	}
	if (*State)(nil).Forgotten("a", "X", 0) != 0 {
		t.Error("a log that nobody has read has forgotten something")
	}
}

// TestState_FlushRequested: FlushRequested returns the seq of the newest flush of the topic or of everything, 0 without
// one. A flush of one partition is refused.
func TestState_FlushRequested(t *testing.T) {
	s := &State{}
	wants := func(a, b int64) {
		t.Helper()
		if x, y := s.FlushRequested("a"), s.FlushRequested("b"); x != a || y != b {
			t.Errorf("%d, %d; want %d, %d", x, y, a, b)
		}
	}
	wants(0, 0)
	before := s
	add := func(seq int64, targets ...Target) {
		t.Helper()
		raw, err := marshal(Flush{targets})
		if err != nil {
			t.Fatal(err)
		}
		s = s.after(Entry{Seq: seq, Kind: KindFlush, Body: raw})
	}
	add(1, Topic("a"))
	wants(1, 0)
	add(2, All())
	wants(2, 2)
	add(3, Topic("b"))
	wants(2, 3)
	if before.FlushRequested("a") != 0 || (*State)(nil).FlushRequested("a") != 0 {
		t.Error("the state before changed")
	}
	if err := (Flush{[]Target{{"a", 1}}}).check(); err == nil {
		t.Error("a flush of one partition was accepted")
	}
}

// TestState_RecheckRequested: the state has the seq of the newest entry that asks members to check a claim again: a
// recheck, or a move of positions that was or may have been committed.
func TestState_RecheckRequested(t *testing.T) {
	s := &State{}
	add := func(b Body) { s = s.after(entry(t, s.head.Seq+1, b)) }
	want := func(a0, a1, b0 int64) {
		t.Helper()
		if x, y, z := s.RecheckRequested("a", 0), s.RecheckRequested("a", 1), s.RecheckRequested("b", 0); x != a0 || y != a1 || z != b0 {
			t.Errorf("%d %d %d, want %d %d %d", x, y, z, a0, a1, b0)
		}
	}
	want(0, 0, 0)
	add(Recheck{[]Target{{"a", 1}}})
	before := s
	want(0, 1, 0)
	add(Pause{[]Target{Topic("b")}}) // entries of other kinds request no check
	want(0, 1, 0)
	moves := []Move{{Topic: "a", Partition: 0, From: 3, To: 2}}
	add(OffsetsIntent{Command: "offsets set", Table: "a", Moves: moves})
	want(0, 1, 0)
	add(OffsetsDone{Intent: 3, Command: "offsets set", Table: "a", Moves: moves, Version: -1, Outcome: Conflict})
	want(0, 1, 0)
	add(OffsetsDone{Intent: 3, Command: "offsets set", Table: "a", Moves: moves, Version: 7, Outcome: Unknown})
	want(5, 5, 0)
	add(Recheck{[]Target{All()}})
	want(6, 6, 6)
	if before.RecheckRequested("a", 0) != 0 || (*State)(nil).RecheckRequested("a", 0) != 0 {
		t.Error("an older state changed, or one that nobody has read asks for something")
	}
}
