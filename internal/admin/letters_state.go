package admin

import (
	"cmp"
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

// judge sets the state of each dead letter. The metric sluice_unresolved_dead_letters counts by the same rules.
// decisions is the state of the operations log.
func (b *letterBook) judge(ctx context.Context, cfg *config.Config, r *lookup.Reader, decisions *opslog.State) error {
	byTopic := map[string][]*foundLetter{}
	for _, l := range b.all {
		byTopic[l.Source.Topic] = append(byTopic[l.Source.Topic], l)
	}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		letters := byTopic[topic]
		slices.SortFunc(letters, func(x, y *foundLetter) int {
			return cmp.Or(cmp.Compare(x.Source.ID, y.Source.ID), cmp.Compare(x.Source.Offset, y.Source.Offset))
		})
		t, meant, err := cfg.Route(topic)
		if !meant || err != nil || t.IsLetters() {
			for _, l := range letters {
				l.state, l.why = LetterForeign, "topic "+topic+" is not in topics"
			}
			continue
		}
		if err := judgeTopic(ctx, cfg, r, topic, letters, decisions); err != nil {
			return err
		}
	}
	return nil
}

// judgeTopic sets the states of dead letters of one topic, which are sorted by partition and offset. It fetches the log
// bounds after it has read the table and the dead letters: so each of their records was produced before, and one after
// the end was lost.
func judgeTopic(ctx context.Context, cfg *config.Config, r *lookup.Reader, topic string, letters []*foundLetter, decisions *opslog.State) error {
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
	next := func(p idempotency.Partition) int64 { return state.Txns[p.AppID(cfg.Pipeline)].Version }
	logs, err := logsOf(r, letters, next)
	if err != nil {
		return fail.Dependency(fmt.Errorf("kafka: topic %s: %w", topic, err))
	}
	var passed []*foundLetter
	decided := newDecisions(decisions)
	for _, l := range letters {
		p := l.Source.Partition
		switch d, stands := decided.of(l.Source); {
		case logs.Position(p, next(p)).Pending(l.Source.Offset):
			l.state = LetterPending
		case stands:
			l.state = d
		case l.Source.Offset < next(p):
			l.state = LetterUnresolved
			passed = append(passed, l)
		default:
			l.state, l.why = unread(logs, l.Source)
		}
	}
	if len(passed) > 0 {
		if err := haveRows(ctx, o, state, topic, passed); err != nil {
			return err
		}
	}
	decided = newDecisions(decisions)
	for _, l := range letters {
		d, stands := decided.of(l.Source)
		switch {
		case stands:
		case l.state == LetterVoid && (d == LetterReplayed || d == LetterReplaying): // the outcome may not be recorded yet
			l.state = LetterReplayed
		case l.state == LetterUnresolved && (d == LetterReplaying || d == LetterParked):
			l.state = d
		case l.state == LetterUnresolved && d == LetterReplayed:
			l.why = "it was replayed, and another program has deleted its row since"
		}
	}
	return nil
}

// decisions finds what operators decided about dead letters. The caller must call of in the order of partition and
// offset.
type decisions struct {
	log  *opslog.State
	sets map[idempotency.Partition][]decidedSet
}

// decidedSet is the dead letters of one partition with a decision.
type decidedSet struct {
	state LetterState
	at    offsets.Cursor
	// stands is true if the rows of the table say nothing about it.
	stands bool
}

func newDecisions(log *opslog.State) *decisions {
	return &decisions{log: log, sets: map[idempotency.Partition][]decidedSet{}}
}

// of returns the state that the operations log gives a dead letter, "" for none. stands is true if rows of the
// table cannot change it.
func (d *decisions) of(record idempotency.Coordinates) (state LetterState, stands bool) {
	sets, known := d.sets[record.Partition]
	if !known {
		l := d.log.Letters(record.Partition)
		sets = []decidedSet{
			{LetterReplaying, l.Replaying.From(0), false},
			{LetterReplayed, l.Reproduced.From(0), true}, // its row has other coordinates
			{LetterReplayed, l.Replayed.From(0), false},
			{LetterDiscarded, l.Discarded.From(0), true},
			{LetterAcknowledged, l.Acknowledged.From(0), true},
			{LetterParked, l.Parked().From(0), false},
		}
		d.sets[record.Partition] = sets
	}
	for i := range sets {
		if sets[i].at.Has(record.Offset) {
			return sets[i].state, sets[i].stands
		}
	}
	return "", false
}

// unread returns the state, with its cause, of a dead letter whose record no position has passed and members cannot
// read.
func unread(l *lookup.Logs, record idempotency.Coordinates) (LetterState, string) {
	p := record.Partition
	log, known := l.Known[p]
	switch {
	case known && record.Offset < log.Start:
		return LetterUnresolved, ""
	case known:
		return LetterUnknown, fmt.Sprintf("the log of %v ends at %d: the brokers lost the record", p, log.End)
	case l.Failed[p] != nil:
		return LetterUnknown, "Kafka does not report whether the record can still be read: " + l.Failed[p].Error()
	}
	return LetterUnknown, l.Gone[p]
}

// logsOf fetches the log bounds of the partitions that have a dead letter at or after the position in the table.
func logsOf(r *lookup.Reader, letters []*foundLetter, next func(idempotency.Partition) int64) (logs *lookup.Logs, err error) {
	beyond := map[idempotency.Partition]bool{}
	for _, l := range letters {
		if p := l.Source.Partition; l.Source.Offset >= next(p) {
			beyond[p] = true
		}
	}
	partitions := slices.Collect(maps.Keys(beyond))
	err = r.Ask(func(ctx context.Context) (err error) {
		logs, err = lookup.FindLogs(ctx, r.Client.Topics, r.Log, partitions)
		return err
	})
	return logs, err
}

// at is a partition and offset of a topic.
type at struct {
	partition int32
	offset    int64
}

// haveRows makes those dead letters void whose records have rows in the table. A dead letter becomes unknown if it
// cannot be proven that the row is of its record; all become unknown if the table cannot show its records. letters are
// sorted by partition and offset.
func haveRows(ctx context.Context, o *Table, state *deltalog.State, topic string, letters []*foundLetter) error {
	byPlace := map[at][]*foundLetter{}
	var where []scan.Where
	for _, l := range letters {
		byPlace[at{l.Source.ID, l.Source.Offset}] = append(byPlace[at{l.Source.ID, l.Source.Offset}], l)
		where = lookup.AddPlace(where, topic, l.Source.ID, l.Source.Offset)
	}
	proven := map[idempotency.Partition]bool{}
	for _, l := range letters {
		if _, known := proven[l.Source.Partition]; !known {
			proven[l.Source.Partition] = lookup.HasItsRows(state, l.Source.Partition)
		}
	}
	err := delta.Places(ctx, o.store, state, where, func(rowTopic string, partition int32, offset int64) error {
		for _, l := range byPlace[at{partition, offset}] {
			switch {
			case rowTopic != topic:
			case proven[l.Source.Partition]:
				l.state = LetterVoid
			default:
				l.state, l.why = LetterUnknown, "a row has these coordinates, and the topic was created again: it may be a row of the other one"
			}
		}
		return nil
	})
	if held, ok := errors.AsType[*hold.Error](err); ok {
		for _, l := range letters {
			l.state, l.why = LetterUnknown, "the table cannot show which records it has: "+held.Detail
		}
		return nil
	}
	if err != nil {
		return o.Failed(err)
	}
	return nil
}
