package main

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"

	"sluice/connector"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/scan"
)

// letterState is what became of the record of a letter. A letter can be void: it was written before the commit that would
// have passed its record, and that commit never happened, or another one made a row of it.
type letterState string

const (
	letterUnresolved letterState = "unresolved" // its record has no row, and the table is past it
	letterVoid       letterState = "void"       // its record has a row
	letterPending    letterState = "pending"    // the table is not past it: void until it is
	letterUnknown    letterState = "unknown"    // nobody can tell
)

// stands tells whether the letter is one to care about.
func (s letterState) stands() bool { return s == letterUnresolved || s == letterUnknown }

// judge finds the state of each letter.
func (b *letterBook) judge(ctx context.Context, config *Config) error {
	byTopic := map[string][]*foundLetter{}
	for _, l := range b.all {
		byTopic[l.Source.Topic] = append(byTopic[l.Source.Topic], l)
	}
	for _, topic := range slices.Sorted(maps.Keys(byTopic)) {
		letters := byTopic[topic]
		slices.SortFunc(letters, func(x, y *foundLetter) int {
			return cmp.Or(cmp.Compare(x.Source.ID, y.Source.ID), cmp.Compare(x.Source.Offset, y.Source.Offset))
		})
		t, meant, err := config.route(topic)
		if !meant || err != nil || t.isLetters() {
			unknown(letters, "topic "+topic+" is not in topics")
			continue
		}
		if err := judgeTopic(ctx, config, topic, letters); err != nil {
			return err
		}
	}
	return nil
}

func unknown(letters []*foundLetter, why string) {
	for _, l := range letters {
		l.state, l.why = letterUnknown, why
	}
}

// judgeTopic finds the states of letters of one topic, by partition and offset.
func judgeTopic(ctx context.Context, config *Config, topic string, letters []*foundLetter) error {
	tables, end, err := openAll(ctx, config, []string{topic})
	if err != nil {
		return err
	}
	defer end()
	o := tables[0]
	state := &deltalog.State{}
	if o.store != nil {
		if state, err = deltalog.Load(ctx, o.store); err != nil && !errors.Is(err, deltalog.ErrNoTable) {
			return o.failed(err)
		}
	}
	var passed []*foundLetter
	for _, l := range letters {
		var at deltalog.Txn
		if state != nil {
			at = state.Txns[l.Source.AppID(config.Pipeline)]
		}
		if at.AppID == "" || at.Version <= l.Source.Offset {
			l.state = letterPending
			continue
		}
		l.state = letterUnresolved
		passed = append(passed, l)
	}
	if len(passed) == 0 {
		return nil
	}
	return haveRows(ctx, o, state, topic, passed)
}

// at is a place in a topic of some name.
type at struct {
	partition int32
	offset    int64
}

// haveRows finds those letters whose records have rows.
func haveRows(ctx context.Context, o *opened, state *deltalog.State, topic string, letters []*foundLetter) error {
	byPlace := map[at][]*foundLetter{}
	var where []scan.Where
	for _, l := range letters {
		byPlace[at{l.Source.ID, l.Source.Offset}] = append(byPlace[at{l.Source.ID, l.Source.Offset}], l)
		where = wherever(where, topic, l.Source.ID, l.Source.Offset)
	}
	several := topicIDs(state, topic) > 1
	err := delta.Places(ctx, o.store, state, where, func(rowTopic string, partition int32, offset int64) error {
		for _, l := range byPlace[at{partition, offset}] {
			switch {
			case rowTopic != topic:
			case several:
				l.state, l.why = letterUnknown, "a row has these coordinates, and the topic was created again: it may be a row of the other one"
			default:
				l.state = letterVoid
			}
		}
		return nil
	})
	if held, ok := errors.AsType[*connector.HoldError](err); ok {
		unknown(letters, "the table cannot tell which records it has: "+held.Detail)
		return nil
	}
	if err != nil {
		return o.failed(err)
	}
	return nil
}
