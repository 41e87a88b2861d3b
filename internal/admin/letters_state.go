package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/scan"
)

// LetterState is what became of the record of a dead letter. A dead letter can be void: it was written before the commit that
// would have passed its record, and that commit never happened, or another one made a row of it.
type LetterState string

// What became of the record of a dead letter.
const (
	LetterUnresolved LetterState = "unresolved" // its record has no row, and will not be read again
	LetterVoid       LetterState = "void"       // its record has a row
	LetterPending    LetterState = "pending"    // the table is not past it, and members can still read it
	LetterUnknown    LetterState = "unknown"    // it cannot be proven that its record has a row
	LetterForeign    LetterState = "foreign"    // its topic is none of the pipeline's
)

// listed reports whether the dead letter is listed without --void.
func (s LetterState) listed() bool { return s != LetterVoid && s != LetterPending }

// counts reports whether the dead letter counts as unresolved.
func (s LetterState) counts() bool { return s == LetterUnresolved || s == LetterUnknown }

// judge finds the state of each letter. What it counts as unresolved is what members count.
func (b *letterBook) judge(ctx context.Context, cfg *config.Config, r *lookup.Reader) error {
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
		if err := judgeTopic(ctx, cfg, r, topic, letters); err != nil {
			return err
		}
	}
	return nil
}

// judgeTopic finds the states of letters of one topic, by partition and offset. Kafka is asked after the table, so that a
// record that was written since is one that the table is not past.
func judgeTopic(ctx context.Context, cfg *config.Config, r *lookup.Reader, topic string, letters []*foundLetter) error {
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
	for _, l := range letters {
		p := l.Source.Partition
		switch {
		case logs.Position(p, next(p)).Pending(l.Source.Offset):
			l.state = LetterPending
		case l.Source.Offset < next(p):
			l.state = LetterUnresolved
			passed = append(passed, l)
		default:
			l.state, l.why = unread(logs, l.Source)
		}
	}
	if len(passed) == 0 {
		return nil
	}
	return haveRows(ctx, o, state, topic, passed)
}

// unread returns the state of a dead letter whose record the table is not past and no member can read, and why.
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

// logsOf asks Kafka for the partitions with a letter at or beyond the position in the table.
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

// at is a place in a topic of some name.
type at struct {
	partition int32
	offset    int64
}

// haveRows finds those letters whose records have rows.
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
			l.state, l.why = LetterUnknown, "the table cannot tell which records it has: "+held.Detail
		}
		return nil
	}
	if err != nil {
		return o.Failed(err)
	}
	return nil
}
