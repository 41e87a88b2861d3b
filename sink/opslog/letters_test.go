package opslog

import (
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
)

var someSource = idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: 3}

// lettersAt returns the dead letters about the records of someSource at these offsets.
func lettersAt(all ...int64) []Letters { return []Letters{LettersOf(someSource, offsets.Of(all...))} }

// TestState_Letters tests each row of the table of transitions in docs/dead-letters.md.
func TestState_Letters(t *testing.T) {
	intent := func(all ...int64) Body {
		return ReplayIntent{Table: "orders", TableID: "table-1", After: 0, Letters: lettersAt(all...)}
	}
	done := func(seq int64, o Outcome) Body {
		return ReplayDone{Intent: seq, Table: "orders", Outcome: o, Version: 7}
	}
	topical := func(all ...int64) Body {
		return ReplayIntent{Table: "orders", TableID: "table-1", Mode: ByTopic, Letters: lettersAt(all...)}
	}
	withdraws := func(seq int64, all ...int64) Body {
		b := ReplayIntent{Table: "orders", TableID: "table-1", Withdraws: seq}
		if len(all) > 0 {
			b.Accepted = lettersAt(all...)
		}
		return b
	}
	closed := ReplayClosed{1, "orders"}
	failed := ReplayFailed{"orders", lettersAt(1)}
	discard, acknowledge, reopen := Discard{lettersAt(1)}, Acknowledge{lettersAt(1)}, Reopen{lettersAt(1)}
	for name, c := range map[string]struct {
		steps []Body
		want  string // the sets of the state that contain the dead letter
	}{
		"nothing":                        {nil, ""},
		"discarded":                      {[]Body{discard}, "discarded resolved"},
		"acknowledged":                   {[]Body{acknowledge}, "acknowledged resolved"},
		"acknowledged, then discarded":   {[]Body{acknowledge, discard}, "discarded resolved"},
		"a discarded one stays so":       {[]Body{discard, acknowledge}, "discarded resolved"},
		"a discarded one reopened":       {[]Body{discard, reopen}, ""},
		"an acknowledged one reopened":   {[]Body{acknowledge, reopen}, ""},
		"another one reopened":           {[]Body{discard, Reopen{lettersAt(2)}}, "discarded resolved"},
		"replaying":                      {[]Body{intent(0, 1)}, "replaying"},
		"replayed":                       {[]Body{intent(0, 1), done(1, Committed)}, "replayed"},
		"replayed after acknowledged":    {[]Body{acknowledge, intent(1), done(2, Committed)}, "replayed"},
		"a replayed one is not resolved": {[]Body{intent(1), done(1, Committed), acknowledge, discard}, "replayed"},
		"not committed":                  {[]Body{intent(1), done(1, Conflict)}, ""},
		"two outcomes: the first counts": {[]Body{intent(1), done(1, Conflict), done(1, Committed)}, ""},
		"one of two intents":             {[]Body{intent(1), intent(1), done(1, Conflict)}, "replaying"},
		"the outcome of no intent":       {[]Body{done(1, Committed)}, ""},
		"announced for its topic":        {[]Body{topical(1)}, "replaying"},
		"in its topic":                   {[]Body{topical(1), done(1, Committed)}, "replaying"},
		"not opened":                     {[]Body{topical(1), done(1, Conflict)}, ""},
		"not opened, then closed":        {[]Body{topical(1), done(1, Conflict), closed}, ""},
		"accepted from its topic":        {[]Body{acknowledge, topical(1), done(2, Committed), ReplayClosed{2, "orders"}}, "replayed resolved"},
		"closed before it was opened":    {[]Body{topical(1), closed}, "replaying"},
		"about to be withdrawn":          {[]Body{topical(1, 2), done(1, Committed), withdraws(1, 2)}, "replaying"},
		"not withdrawn":                  {[]Body{topical(1, 2), done(1, Committed), withdraws(1, 2), done(3, Conflict)}, "replaying"},
		"withdrawn, not accepted":        {[]Body{topical(1, 2), done(1, Committed), withdraws(1, 2), done(3, Committed)}, ""},
		"withdrawn, accepted":            {[]Body{topical(1, 2), done(1, Committed), withdraws(1, 1), done(3, Committed)}, "replayed resolved"},
		"withdrawn, then closed":         {[]Body{topical(1), done(1, Committed), withdraws(1), done(3, Committed), closed}, ""},
		"failed":                         {[]Body{failed}, "failed1"},
		"failed twice":                   {[]Body{failed, failed}, "failed1 failed2 lastchance"},
		"failed twice, then replayed":    {[]Body{failed, failed, intent(1), done(3, Committed)}, "failed1 failed2 replayed"},
		"failed twice, acknowledged":     {[]Body{failed, failed, acknowledge}, "acknowledged resolved failed1 failed2"},
		"parked":                         {[]Body{failed, failed, failed, failed}, "failed1 failed2 failed3 parked"},
		"parked, then replayed":          {[]Body{failed, failed, failed, intent(1), done(4, Committed)}, "failed1 failed2 failed3 replayed"},
		"parked, then discarded":         {[]Body{failed, failed, failed, discard}, "discarded resolved failed1 failed2 failed3"},
	} {
		t.Run(name, func(t *testing.T) {
			s := &State{}
			for _, b := range c.steps {
				s = s.after(entry(t, s.head.Seq+1, b))
			}
			l := s.Letters(someSource)
			var in []string
			for _, set := range []struct {
				name string
				of   offsets.Set
			}{
				{"discarded", l.Discarded},
				{"acknowledged", l.Acknowledged},
				{"resolved", l.Resolved()},
				{"replaying", l.Replaying},
				{"replayed", l.Replayed},
				{"failed1", l.Failed[0]},
				{"failed2", l.Failed[1]},
				{"failed3", l.Failed[2]},
				{"parked", l.Parked()},
				{"lastchance", l.ParkedBy(offsets.Of(1))},
			} {
				if set.of.Has(1) {
					in = append(in, set.name)
				}
			}
			want := strings.Fields(c.want)
			slices.Sort(in)
			slices.Sort(want)
			if !slices.Equal(in, want) {
				t.Errorf("it is in %v, want %v", in, want)
			}
			other := someSource
			other.TopicID[0]++
			if l := s.Letters(other); l.Discarded.Len()+l.Replayed.Len()+l.Replaying.Len()+l.Acknowledged.Len() > 0 {
				t.Errorf("a topic that was created again has states: %+v", l)
			}
		})
	}
}

// TestState_LettersImmutable: a new entry does not change the decisions about dead letters in an older state.
func TestState_LettersImmutable(t *testing.T) {
	one := new(State).after(entry(t, 1, Discard{lettersAt(1)}))
	two := one.after(entry(t, 2, ReplayIntent{Table: "orders", TableID: "table-1", After: 0, Letters: lettersAt(2)}))
	three := two.after(entry(t, 3, ReplayDone{Intent: 2, Table: "orders", Outcome: Committed, Version: 1}))
	three.after(entry(t, 4, Reopen{lettersAt(1)}))
	if l := one.Letters(someSource); !l.Discarded.Has(1) || l.Replaying.Len() > 0 || one.LettersChanged() != 1 {
		t.Errorf("%+v", l)
	}
	if l := two.Letters(someSource); !l.Replaying.Has(2) || l.Replayed.Len() > 0 || len(two.OpenReplays("orders")) != 1 || len(two.OpenReplays("users")) != 0 {
		t.Errorf("%+v", l)
	}
	if l := three.Letters(someSource); !l.Replayed.Has(2) || !l.Discarded.Has(1) || len(three.OpenReplays("orders")) != 0 || three.LettersChanged() != 3 {
		t.Errorf("%+v", l)
	}
	if got := three.Replayed(); len(got) != 1 || got["orders"] != 1 || len(two.Replayed()) != 0 || len((*State)(nil).Replayed()) != 0 {
		t.Errorf("replayed by topic: %v", got)
	}
	if open := two.OpenReplays("orders")[0]; open.Seq != 2 || open.Operator != "op2" || open.TableID != "table-1" {
		t.Errorf("%+v", open)
	}
}

// TestState_LetterSets: after any entries, no dead letter is in two of the sets Discarded, Acknowledged and Replayed,
// Replayed has lost none, and each one in Failed[i] is also in Failed[i-1].
func TestState_LetterSets(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := &State{}
		var intents []int64
		for range rapid.IntRange(0, 30).Draw(t, "steps") {
			at := lettersAt(rapid.SliceOfN(rapid.Int64Range(0, 6), 1, 4).Draw(t, "offsets")...)
			var b Body
			switch rapid.IntRange(0, 5).Draw(t, "kind") {
			case 0:
				b = Discard{at}
			case 1:
				b = Acknowledge{at}
			case 2:
				b = Reopen{at}
			case 3:
				b = ReplayFailed{"orders", at}
			case 4:
				b = ReplayIntent{Table: "orders", TableID: "table-1", Letters: at}
				intents = append(intents, s.head.Seq+1)
			case 5:
				if len(intents) == 0 {
					continue
				}
				b = ReplayDone{Intent: rapid.SampledFrom(intents).Draw(t, "intent"), Table: "orders", Outcome: rapid.SampledFrom([]Outcome{Committed, Conflict}).Draw(t, "outcome")}
			}
			before := s.Letters(someSource).Replayed
			s = s.after(entry(t, s.head.Seq+1, b))
			l := s.Letters(someSource)
			if n := l.Discarded.Len() + l.Acknowledged.Len() + l.Replayed.Len(); n != offsets.Union(l.Discarded, l.Acknowledged, l.Replayed).Len() {
				t.Fatalf("they overlap: %+v", l)
			}
			if before.Without(l.Replayed).Len() > 0 {
				t.Fatalf("replayed %v became %v", before, l.Replayed)
			}
			for i := 1; i < len(l.Failed); i++ {
				if l.Failed[i].Without(l.Failed[i-1]).Len() > 0 {
					t.Fatalf("failed more often, but not less often: %+v", l.Failed)
				}
			}
		}
	})
}

func TestLetters_Refused(t *testing.T) {
	flood := make([]int64, MaxLetters+1)
	for i := range flood {
		flood[i] = int64(i)
	}
	bad := func(change func(*Letters)) []Letters {
		l := LettersOf(someSource, offsets.Of(1))
		change(&l)
		return []Letters{l}
	}
	for name, b := range map[string]Body{
		"none":            Discard{},
		"no offset":       Acknowledge{lettersAt()},
		"no topic":        Reopen{bad(func(l *Letters) { l.Topic = "" })},
		"no topic id":     Discard{bad(func(l *Letters) { l.TopicID = "x" })},
		"partition":       Discard{bad(func(l *Letters) { l.Partition = -1 })},
		"too many":        Discard{lettersAt(flood...)},
		"too many, two":   Discard{append(lettersAt(flood[:MaxLetters]...), lettersAt(1)...)},
		"no table":        ReplayIntent{Table: "", TableID: "t", After: 0, Letters: lettersAt(1)},
		"no table id":     ReplayIntent{Table: "orders", TableID: "", After: 0, Letters: lettersAt(1)},
		"after":           ReplayIntent{Table: "orders", TableID: "t", After: -1, Letters: lettersAt(1)},
		"no intent":       ReplayDone{Table: "orders", Outcome: Committed},
		"unknown":         ReplayDone{Intent: 1, Table: "orders", Outcome: Unknown},
		"mode":            ReplayIntent{Table: "orders", TableID: "t", Mode: "both", Letters: lettersAt(1)},
		"topic, none":     ReplayIntent{Table: "orders", TableID: "t", Mode: ByTopic},
		"withdraws":       ReplayIntent{Table: "orders", TableID: "t", Withdraws: -1},
		"withdraws, rows": ReplayIntent{Table: "orders", TableID: "t", Withdraws: 1, Letters: lettersAt(1)},
		"accepted":        ReplayIntent{Table: "orders", TableID: "t", Accepted: lettersAt(1)},
		"accepted, bad":   ReplayIntent{Table: "orders", TableID: "t", Withdraws: 1, Accepted: bad(func(l *Letters) { l.Topic = "" })},
		"closed":          ReplayClosed{Table: "orders"},
		"closed, table":   ReplayClosed{Intent: 1},
		"failed, none":    ReplayFailed{Table: "orders"},
		"failed, table":   ReplayFailed{Letters: lettersAt(1)},
	} {
		if err := (Operation{Operator: "ada", Reason: "r", Body: b}).check(); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := (ReplayIntent{Table: "orders", TableID: "t", After: 0, Letters: nil}).check(); err != nil {
		t.Errorf("an intent without dead letters only ends those before it: %v", err)
	}
	if err := (ReplayIntent{Table: "orders", TableID: "t", Withdraws: 1}).check(); err != nil {
		t.Errorf("a withdrawal of a replay of which nothing was accepted: %v", err)
	}
	if err := (Discard{lettersAt(flood[:MaxLetters]...)}).check(); err != nil {
		t.Error(err)
	}
	// Scattered offsets take the most bytes. An entry with the largest allowed number of them must not exceed MaxEntry.
	for i := range flood {
		flood[i] = int64(i)*7 + 1_000_000_000_000
	}
	_, object, err := propose(Operation{Operator: "ada", Reason: "r", Body: Discard{lettersAt(flood[:MaxLetters]...)}}, &State{})
	if err != nil || len(object) > MaxEntry {
		t.Errorf("%d bytes: %v", len(object), err)
	}
}

func TestState_Moves(t *testing.T) {
	moves := []Move{{Topic: "orders", Partition: 0, From: 5, To: 2}, {Topic: "orders", Partition: 1, From: 5, To: 2}}
	s := new(State).after(entry(t, 1, OffsetsIntent{"offsets set", "orders", moves}))
	s = s.after(entry(t, 2, OffsetsIntent{"offsets skip", "orders", moves[:1]}))
	if m, open := s.OpenMove("orders"); !open || m.Command != "offsets skip" || m.Operator != "op2" || s.LastMove("orders") != 2 {
		t.Errorf("%+v %v", m, open)
	}
	s = s.after(entry(t, 3, OffsetsDone{Intent: 2, Command: "offsets skip", Table: "orders", Moves: moves[:1], Outcome: Conflict}))
	if m, open := s.OpenMove("orders"); !open || m.Command != "offsets set" || s.LastMove("orders") != 2 {
		t.Errorf("%+v %v", m, open)
	}
	s = s.after(entry(t, 4, OffsetsDone{Intent: 1, Command: "offsets set", Table: "orders", Moves: moves, Outcome: Committed}))
	if m, open := s.OpenMove("orders"); open {
		t.Errorf("%+v", m)
	}
	if _, open := s.OpenMove("users"); open || s.LastMove("users") != 0 {
		t.Error("another topic moves")
	}
}
