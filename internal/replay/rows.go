package replay

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/internal/lookup"
	"sluice/sink/delta/scan"
	"sluice/sink/opslog"
)

// resolved returns the dead letters of a partition that were discarded or replayed.
func resolved(s *opslog.State, p idempotency.Partition) offsets.Set {
	l := s.Letters(p)
	return offsets.Union(l.Discarded, l.Replayed)
}

// inTopic returns the dead letters of a partition in open replays through the topic.
func (t *Table) inTopic(s *opslog.State, p idempotency.Partition) (at offsets.Set) {
	for _, open := range s.TopicReplays(t.Path) {
		at = offsets.Union(at, open.Of(p))
	}
	return at
}

// choose returns the records that may become rows, and adds the others to result.Left. It drops records that failed in
// an earlier try of the same Add. records are sorted by partition and offset.
func (t *Table) choose(ctx context.Context, s *connector.Snapshot, state *opslog.State, records []Record, result *Result) ([]Record, error) {
	var todo []Record
	leave := func(r *Record, why Why) { result.Left = append(result.Left, Left{r.coordinates(), why}) }
	var of idempotency.Partition // of the record before, whose facts follow
	var next int64               // its position, 0 without one
	var proven bool              // all rows with its topic and partition are its own, or rows have a topic id
	var done offsets.Cursor      // its resolved dead letters
	var inTopic offsets.Cursor   // its dead letters in open replays through the topic
	topicIDs := t.Table.HasTopicIDs(s)
	for i := range records {
		r := &records[i]
		if i == 0 || r.At != of {
			of, next = r.At, s.Positions[r.At.AppID(t.Pipeline)]
			proven = lookup.OnlyItsRows(s.Positions, of) || topicIDs && of.TopicID != (idempotency.TopicID{})
			done = resolved(state, of).From(0)
			inTopic = t.inTopic(state, of).From(0)
		}
		switch {
		case t.failed[r.coordinates()]: // in an earlier try
		case done.Has(r.Record.Offset):
			leave(r, Resolved)
		case inTopic.Has(r.Record.Offset):
			leave(r, InTopic)
		case r.Record.Offset >= next:
			leave(r, NotPassed)
		case !proven:
			leave(r, Unproven)
		default:
			todo = append(todo, *r)
		}
	}
	if len(todo) == 0 {
		return nil, nil
	}
	present, err := t.present(ctx, s, todo)
	if err != nil {
		return nil, err
	}
	return slices.DeleteFunc(todo, func(r Record) bool {
		why := present[r.coordinates()]
		if why != "" {
			leave(&r, why)
		}
		return why != ""
	}), nil
}

// present returns which of the records must be left out because of rows in the table: HasRow if the table has a row of
// the record, Unproven if it has one that may be of another topic with the same name. A record without such a row is
// not in the result.
func (t *Table) present(ctx context.Context, s *connector.Snapshot, records []Record) (map[idempotency.Coordinates]Why, error) {
	type place struct {
		topic     string
		partition int32
		offset    int64
	}
	wanted, only := map[place][]idempotency.Coordinates{}, map[idempotency.Partition]bool{}
	var where []scan.Where
	for i := range records {
		c := records[i].coordinates()
		at := place{c.Topic, c.ID, c.Offset}
		wanted[at] = append(wanted[at], c) // a topic that was created again has the same offsets
		where = lookup.AddPlace(where, c.Topic, c.ID, c.Offset)
		if _, known := only[c.Partition]; !known {
			only[c.Partition] = lookup.OnlyItsRows(s.Positions, c.Partition)
		}
	}
	present := map[idempotency.Coordinates]Why{}
	err := t.Table.Places(ctx, s, where, func(row scan.Place) error {
		for _, c := range wanted[place{row.Topic, row.Partition, row.Offset}] {
			switch lookup.OwnerOf(row, c.Partition, only[c.Partition]) {
			case lookup.ItsRow:
				present[c] = HasRow
			case lookup.UnknownRow:
				if present[c] == "" {
					present[c] = Unproven
				}
			case lookup.OtherRow:
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("search the table for rows of the dead letters: %w", err)
	}
	return present, nil
}

// rows are decoded records.
type rows struct {
	pieces  []connector.Piece
	letters map[idempotency.Partition]offsets.Set
	edited  []opslog.EditedValue
}

func (r *rows) release() {
	for _, p := range r.pieces {
		p.Rows.Release()
	}
	r.pieces = nil
}

// decode makes rows of records. It adds records that cannot become rows to result.Failed, and tombstones to
// result.Left. The rows of a partition keep the order of its offsets.
func (t *Table) decode(s *connector.Snapshot, records []Record, result *Result) (*rows, error) {
	r := &rows{letters: map[idempotency.Partition]offsets.Set{}}
	for len(records) > 0 {
		n := 1
		for n < len(records) && records[n].At == records[0].At {
			n++
		}
		if err := t.decodePartition(s, records[:n], r, result); err != nil {
			r.release()
			return nil, err
		}
		records = records[n:]
	}
	return r, nil
}

func (t *Table) decodePartition(s *connector.Snapshot, records []Record, into *rows, result *Result) error {
	p := records[0].At
	topic := t.Topic(p.Topic)
	b, err := topic.Decoder.Builder(s.Schema)
	if err != nil {
		return fmt.Errorf("topic %s: %w", p.Topic, err)
	}
	seal := func() {
		if n := int64(b.Rows()); n > 0 {
			into.pieces = append(into.pieces, connector.Piece{Rows: b.Seal(), To: n})
		}
	}
	var added []int64
	for i := range records {
		r := &records[i]
		row, err := topic.TryRow(b, r)
		if errors.Is(err, connector.ErrChunkFull) {
			seal()
			row, err = topic.TryRow(b, r)
		}
		switch {
		case err == nil && !row:
			result.Left = append(result.Left, Left{r.coordinates(), Tombstone})
		case err == nil:
			added = append(added, r.Record.Offset)
			if r.Edited != nil {
				into.edited = append(into.edited, *r.Edited)
			}
		case classify.Of(err) == classify.Poison || connector.IsLocal(err):
			result.Failed = append(result.Failed, Failure{records[i].coordinates(), string(connector.CodeOf(err)), err.Error()})
		default:
			return fmt.Errorf("%v: %w", records[i].coordinates(), err)
		}
	}
	seal()
	if len(added) > 0 {
		into.letters[p] = offsets.Of(added...)
	}
	return nil
}

// TryRow makes a row of a record in the open chunk of a builder. It returns true if there is a row, an error if the
// record cannot become one, and false without an error for a null value that the topic accepts, which makes no row. A
// panic of the decoder is returned as a [connector.LocalError].
func (t *Topic) TryRow(b connector.Builder, r *Record) (row bool, err error) {
	defer func() {
		if v := recover(); v != nil {
			row, err = false, connector.Recovered("decode", v)
		}
	}()
	if err := t.Refuse.Of(&r.Record); err != nil {
		return false, err
	}
	if t.Refuse.LeaveOut(&r.Record) {
		return false, nil
	}
	return true, b.Add(r.At, &r.Record)
}

// again reports whether a try failed only because another operation came first.
func again(err error) bool {
	return errors.Is(err, errAgain) || err != nil && classify.Of(err) == classify.Fenced && !errors.Is(err, connector.ErrUndecided)
}
