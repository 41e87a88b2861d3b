package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/scan"
	"sluice/sink/opslog"
)

// LetterState is the state of the record that a dead letter is about. A member writes a dead letter before the commit
// that passes its record. If that commit fails, a later one can make a row of the record, so the dead letter becomes
// void.
type LetterState string

// The states of a dead letter. docs/dead-letters.md has the transitions.
const (
	LetterUnresolved   LetterState = "unresolved"   // its record has no row, and no member will read it again
	LetterUnknown      LetterState = "unknown"      // whether its record has a row cannot be proven
	LetterReplaying    LetterState = "replaying"    // a replay announced it, and whether it became a row is not decided
	LetterParked       LetterState = "parked"       // its replays failed too often
	LetterAcknowledged LetterState = "acknowledged" // an operator keeps it as it is
	LetterDiscarded    LetterState = "discarded"    // an operator gave it up
	LetterReplayed     LetterState = "replayed"     // a replay made a row of its record
	LetterVoid         LetterState = "void"         // a member made a row of its record
	LetterPending      LetterState = "pending"      // no position has passed it, and members can still read it
	LetterForeign      LetterState = "foreign"      // its topic is not one of the pipeline's
)

// LetterStates returns all states of dead letters: those that count as unresolved first.
func LetterStates() []LetterState {
	return []LetterState{
		LetterUnresolved, LetterUnknown, LetterReplaying, LetterParked, LetterAcknowledged, LetterDiscarded, LetterReplayed, LetterVoid, LetterPending,
		LetterForeign,
	}
}

// listed reports whether a list without chosen states includes the state, because it may need an operator.
func (s LetterState) listed() bool { return s.counts() || s == LetterForeign }

// counts reports whether the dead letter counts as unresolved.
func (s LetterState) counts() bool {
	return s == LetterUnresolved || s == LetterUnknown || s == LetterReplaying || s == LetterParked
}

// judge sets the state of each dead letter. The metric sluice_unresolved_dead_letters counts by the same rules, but only
// the dead letters that Kafka still has.
// decisions is the state of the operations log.
func (b *letterBook) judge(ctx context.Context, cfg *config.Config, r *lookup.Reader, decisions *opslog.State) error {
	byTopic := map[string][]*sourceLetters{}
	for _, s := range b.inOrder() {
		byTopic[s.Topic] = append(byTopic[s.Topic], s)
	}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		sources := byTopic[topic]
		t, meant, err := cfg.Route(topic)
		if !meant || err != nil || t.IsLetters() {
			why := "topic " + topic + " is not in topics"
			for _, s := range sources {
				for i := range s.letters {
					b.set(&s.letters[i], LetterForeign, why)
				}
			}
			continue
		}
		if err := b.judgeTopic(ctx, cfg, r, topic, sources, decisions); err != nil {
			return err
		}
	}
	return nil
}

// judgeTopic sets the states of the dead letters about one topic. It fetches the log bounds last, after the table and
// the dead letters were read. So all records of the dead letters were produced before, and one at or after the end of
// its log was lost.
func (b *letterBook) judgeTopic(ctx context.Context, cfg *config.Config, r *lookup.Reader, topic string, sources []*sourceLetters, decisions *opslog.State) error {
	tables, end, err := openAll(ctx, cfg, []string{topic})
	if err != nil {
		return err
	}
	defer end()
	o := tables[0]
	state := &deltalog.State{}
	if o.store != nil {
		if state, err = deltalog.Load(ctx, o.store); err != nil && !errors.Is(err, deltalog.ErrNoTable) {
			return o.Failed(err)
		}
	}
	if state == nil {
		state = &deltalog.State{}
	}
	for _, s := range sources {
		s.next = state.Txns[s.AppID(cfg.Pipeline)].Version
	}
	logs, err := logsOf(r, sources)
	if err != nil {
		return fail.Dependency(fmt.Errorf("kafka: topic %s: %w", topic, err))
	}
	anyPassed := false
	for _, s := range sources {
		decided, position := decisionsAbout(decisions, s.Partition), logs.Position(s.Partition, s.next)
		for i := range s.letters {
			l := &s.letters[i]
			switch d, stands := decided.of(l.record); {
			case position.Pending(l.record):
				b.set(l, LetterPending, "")
			case stands:
				b.set(l, d, "")
			case l.record < s.next:
				b.set(l, LetterUnresolved, "")
				anyPassed = true
			default:
				state, why := unread(logs, s.Partition, l.record)
				b.set(l, state, why)
			}
		}
	}
	if anyPassed {
		if err := b.haveRows(ctx, o, state, sources); err != nil {
			return err
		}
	}
	for _, s := range sources {
		decided := decisionsAbout(decisions, s.Partition)
		for i := range s.letters {
			l := &s.letters[i]
			d, stands := decided.of(l.record)
			switch is := b.verdict(l).state; {
			case stands:
			case is == LetterVoid && (d == LetterReplayed || d == LetterReplaying): // the outcome may not be recorded yet
				b.set(l, LetterReplayed, "")
			case is == LetterUnresolved && (d == LetterReplaying || d == LetterParked):
				b.set(l, d, "")
			case is == LetterUnresolved && d == LetterReplayed:
				b.set(l, is, "it was replayed, and another program has deleted its row since")
			}
		}
	}
	return nil
}

// decisions are what operators decided about the dead letters of a partition. The caller must call of in the order of
// their offsets.
type decisions [6]decidedSet

// decidedSet is the dead letters of one partition with a decision.
type decidedSet struct {
	state LetterState
	at    offsets.Cursor
	// stands is true if the rows of the table cannot change the state.
	stands bool
}

func decisionsAbout(log *opslog.State, p idempotency.Partition) *decisions {
	l := log.Letters(p)
	return &decisions{
		{LetterReplaying, l.Replaying.From(0), false},
		{LetterReplayed, l.Reproduced.From(0), true}, // its row has other coordinates
		{LetterReplayed, l.Replayed.From(0), false},
		{LetterDiscarded, l.Discarded.From(0), true},
		{LetterAcknowledged, l.Acknowledged.From(0), true},
		{LetterParked, l.Parked().From(0), false},
	}
}

// of returns the state that the operations log gives a dead letter, "" for none. stands is true if the rows of the
// table cannot change it.
func (d *decisions) of(record int64) (state LetterState, stands bool) {
	for i := range d {
		if d[i].at.Has(record) {
			return d[i].state, d[i].stands
		}
	}
	return "", false
}

// unread returns the state, with its cause, of a dead letter whose record no position has passed and members cannot
// read.
func unread(l *lookup.Logs, p idempotency.Partition, record int64) (LetterState, string) {
	log, known := l.Known[p]
	switch {
	case known && record < log.Start:
		return LetterUnresolved, ""
	case known:
		return LetterUnknown, fmt.Sprintf("the log of %v ends at %d: the brokers lost the record", p, log.End)
	case l.Failed[p] != nil:
		return LetterUnknown, "Kafka does not report whether the record can still be read: " + l.Failed[p].Error()
	}
	return LetterUnknown, l.Gone[p]
}

// logsOf fetches the log bounds of the partitions that have a dead letter at or after the position in the table.
func logsOf(r *lookup.Reader, sources []*sourceLetters) (logs *lookup.Logs, err error) {
	var beyond []idempotency.Partition
	for _, s := range sources {
		if n := len(s.letters); n > 0 && s.letters[n-1].record >= s.next {
			beyond = append(beyond, s.Partition)
		}
	}
	err = r.Ask(func(ctx context.Context) (err error) {
		logs, err = lookup.FindLogs(ctx, r.Client.Topics, r.Log, beyond)
		return err
	})
	return logs, err
}

// isPassed reports whether the table is past the record of a dead letter, and no operator resolved it: then its state
// depends on the rows of the table.
func (b *letterBook) isPassed(s *sourceLetters, l *foundLetter) bool {
	is := b.verdict(l).state
	return l.record < s.next && is != LetterDiscarded && is != LetterAcknowledged
}

// haveRows makes those passed dead letters void whose records have rows in the table. A dead letter becomes unknown if
// it cannot be proven that the row is of its record; all become unknown if the table cannot show its records. sources
// are all of one topic.
func (b *letterBook) haveRows(ctx context.Context, o *Table, state *deltalog.State, sources []*sourceLetters) error {
	byID, proven := map[int32][]*sourceLetters{}, map[*sourceLetters]bool{}
	for _, s := range sources {
		byID[s.ID] = append(byID[s.ID], s)
		proven[s] = lookup.HasItsRows(state, s.Partition)
	}
	err := delta.Places(ctx, o.store, state, b.whereRows(sources), func(row scan.Place) error {
		for _, s := range byID[row.Partition] {
			l := s.find(row.Offset)
			if l == nil || !b.isPassed(s, l) {
				continue
			}
			switch lookup.OwnerOf(row, s.Partition, proven[s]) {
			case lookup.ItsRow:
				b.set(l, LetterVoid, "")
			case lookup.UnknownRow:
				if b.verdict(l).state != LetterVoid {
					b.set(l, LetterUnknown, "a row has these coordinates and no topic id, and the topic was created again: it may be a row of the other one")
				}
			case lookup.OtherRow:
			}
		}
		return nil
	})
	if held, ok := errors.AsType[*hold.Error](err); ok {
		for _, s := range sources {
			for i := range s.letters {
				if l := &s.letters[i]; b.isPassed(s, l) {
					b.set(l, LetterUnknown, "the table cannot show which records it has: "+held.Detail)
				}
			}
		}
		return nil
	}
	if err != nil {
		return o.Failed(err)
	}
	return nil
}

// whereRows returns the ranges in which rows of the records of passed dead letters can be. Those of several topic ids may
// overlap.
func (b *letterBook) whereRows(sources []*sourceLetters) (where []scan.Where) {
	for _, s := range sources {
		var of []scan.Where
		for i := range s.letters {
			if l := &s.letters[i]; b.isPassed(s, l) {
				of = lookup.AddPlace(of, s.Topic, s.ID, l.record)
			}
		}
		where = append(where, of...)
	}
	return where
}
