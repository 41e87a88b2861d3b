package admin

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/idempotency/offsets"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// eachLetter is called for each record of a partition of a dead-letter topic; offset is the offset of that record. If
// the record is no dead letter, l is nil and notOne says why. The letter is valid until the call returns.
type eachLetter func(offset int64, l *deadletter.Letter, notOne error) error

// record calls the function for a record of a dead-letter topic.
func (each eachLetter) record(r *connector.Record) error {
	l, notOne := decode.ParseLetter(r)
	if notOne != nil {
		return each(r.Offset, nil, notOne)
	}
	return each(r.Offset, &l, nil)
}

// letterSource holds records of dead-letter topics.
type letterSource interface {
	// letters calls each once for every record of [from, next) of a partition that the source has. An error of each ends
	// the read and is returned unchanged.
	letters(ctx context.Context, p connector.Partition, from, next int64, each eachLetter) error
}

// topicLetters reads dead letters from a dead-letter topic, in the order of their offsets.
type topicLetters struct{ r *lookup.Reader }

func (s topicLetters) letters(ctx context.Context, p connector.Partition, from, next int64, each eachLetter) error {
	return s.r.Span(ctx, p, from, next, func(record *connector.Record) error {
		if record.Offset < from {
			return nil
		}
		return each.record(record)
	}, func(int64) error { return nil })
}

// archivedLetters reads dead letters from a letter table, in the order of the table's files.
type archivedLetters struct {
	pipeline string
	store    objstore.Store
	state    *deltalog.State
	brief    bool // without key, value and headers
}

func (s *archivedLetters) letters(ctx context.Context, p connector.Partition, from, next int64, each eachLetter) error {
	table := func(where []scan.Where, columns []string, each func(arrow.RecordBatch) error) error {
		return delta.WholeRows(ctx, s.store, s.state, where, columns, each)
	}
	return lookup.StoredLetters(table, p, from, next, !s.brief, func(l *decode.StoredLetter) error {
		if l.Err != nil {
			return each(l.Offset, nil, fmt.Errorf("in the letter table: %w", l.Err))
		}
		return each(l.Offset, &l.Letter, nil)
	})
}

// next returns the offset up to which members have archived a partition, 0 if they have none of it.
func (s *archivedLetters) next(p connector.Partition) int64 {
	return s.state.Txns[p.AppID(s.pipeline)].Version
}

// letterReader reads dead-letter topics. What retention has deleted from a topic it reads from the letter table.
type letterReader struct {
	access *Access
	reader *lookup.Reader
	topic  letterSource
	brief  bool // dead letters from letter tables need no key, value and headers

	archives map[string]*archive // by dead-letter topic
	notes    []string
	read     int64 // the number of records that were read, for the progress
}

// archive is the letter table of a dead-letter topic, as of its first use. letters is nil without a table.
type archive struct {
	letters *archivedLetters
	missing string // why there is no table, "" if the topic needs none
	end     func()
}

func newLetterReader(a *Access, r *lookup.Reader) *letterReader {
	return &letterReader{access: a, reader: r, topic: topicLetters{r}, archives: map[string]*archive{}}
}

func (s *letterReader) close() {
	for _, of := range s.archives {
		of.end()
	}
}

// each calls the function each for every record of [from, next) of a partition of a dead-letter topic. The records that
// retention has deleted come first, from the letter table. Records that it deletes during the read also come from the
// letter table, after other records.
func (s *letterReader) each(ctx context.Context, p connector.Partition, from, next int64, each eachLetter) error {
	defer s.reader.Log.Forget(p)
	bounds, err := s.reader.Bounds(p)
	if err != nil {
		return kafkaFailed(p, err)
	}
	if err := s.expired(ctx, p, from, min(next, bounds.LogStart), each); err != nil {
		return err
	}
	at, end := max(from, bounds.LogStart), min(next, bounds.LastStable)
	var gaps []Interval // offsets without a record: transactions leave some, retention leaves those before the new log start
	fill := func() error {
		bounds, err := s.reader.Bounds(p)
		if err != nil {
			return kafkaFailed(p, err)
		}
		for _, gap := range gaps {
			if err := s.expired(ctx, p, gap.From, min(gap.Next, bounds.LogStart), each); err != nil {
				return err
			}
		}
		gaps = gaps[:0]
		return nil
	}
	passed := func(to int64) error {
		if at < to {
			gaps = append(gaps, Interval{at, to})
		}
		if len(gaps) < maxGaps {
			return nil
		}
		return fill()
	}
	own := false // the error is one of each or of the letter table
	err = s.topic.letters(ctx, p, at, end, func(offset int64, l *deadletter.Letter, notOne error) error {
		s.read++
		s.access.passed(s.read, 0)
		err := passed(offset)
		if err == nil {
			at = offset + 1
			err = each(offset, l, notOne)
		}
		own = err != nil
		return err
	})
	switch {
	case own:
		return err
	case err != nil:
		return kafkaFailed(p, err)
	}
	if err := passed(end); err != nil || len(gaps) == 0 {
		return err
	}
	return fill()
}

// maxGaps is how many gaps between offsets [letterReader.each] collects before it asks which of them retention has
// deleted, and reads those from the letter table.
const maxGaps = 1000

func kafkaFailed(p connector.Partition, err error) error {
	if fail.Of(err) != 0 || errors.Is(err, context.Canceled) {
		return err
	}
	return fail.Dependency(fmt.Errorf("kafka: dead-letter topic %v: %w", p, err))
}

// at calls each for the records at some offsets, which are sorted, of a partition of a dead-letter topic, first for those
// that retention has deleted. It leaves out those that neither topic nor letter table has.
func (s *letterReader) at(ctx context.Context, p connector.Partition, sorted []int64, each eachLetter) error {
	bounds, err := s.reader.Bounds(p)
	if err != nil {
		return kafkaFailed(p, err)
	}
	gone, _ := slices.BinarySearch(sorted, bounds.LogStart)
	if err := s.expiredAt(ctx, p, sorted[:gone], each); err != nil {
		return err
	}
	left, own := sorted[gone:], false // left has the offsets that the topic had none of, then those that follow
	var skipped []int64
	err = s.reader.At(ctx, p, offsets.Of(left...), func(record *connector.Record) error {
		n, found := slices.BinarySearch(left, record.Offset)
		skipped = append(skipped, left[:n]...)
		if left = left[n:]; found {
			left = left[1:]
		}
		err := each.record(record)
		own = err != nil
		return err
	})
	switch {
	case own:
		return err
	case err != nil:
		return kafkaFailed(p, err)
	}
	if skipped = append(skipped, left...); len(skipped) == 0 {
		return nil
	}
	if bounds, err = s.reader.Bounds(p); err != nil { // retention moved the start of the log meanwhile
		return kafkaFailed(p, err)
	}
	gone, _ = slices.BinarySearch(skipped, bounds.LogStart)
	return s.expiredAt(ctx, p, skipped[:gone], each)
}

// expiredAt is [letterReader.expired] for some offsets, in ascending order, instead of a range.
func (s *letterReader) expiredAt(ctx context.Context, p connector.Partition, sorted []int64, each eachLetter) error {
	if len(sorted) == 0 {
		return nil
	}
	return s.expired(ctx, p, sorted[0], sorted[len(sorted)-1]+1, func(offset int64, l *deadletter.Letter, notOne error) error {
		if _, wanted := slices.BinarySearch(sorted, offset); !wanted {
			return nil
		}
		return each(offset, l, notOne)
	})
}

// expired calls each for the records of [from, next), which the topic has no more, and notes those that the letter table
// does not have.
func (s *letterReader) expired(ctx context.Context, p connector.Partition, from, next int64, each eachLetter) error {
	if from >= next {
		return nil
	}
	of, err := s.archive(ctx, p.Topic)
	switch {
	case err != nil:
		return err
	case of.letters == nil:
		if of.missing != "" {
			s.note("dead letters of %v before offset %d are in neither topic nor letter table: retention deleted them, and %s", p, next, of.missing)
		}
		return nil
	}
	own := false
	err = of.letters.letters(ctx, p, from, next, func(offset int64, l *deadletter.Letter, notOne error) error {
		err := each(offset, l, notOne)
		own = err != nil
		return err
	})
	if err != nil && !own {
		t, _, _ := s.access.Config.Route(p.Topic)
		return (&Table{config: s.access.Config, table: t, URL: s.access.Config.TableURL(t)}).Failed(err)
	}
	if archived := of.letters.next(p); err == nil && archived < next {
		s.note("dead letters of %v at offsets [%d, %d) are in neither topic nor letter table: retention deleted them before members archived them",
			p, max(from, archived), next)
	}
	return err
}

// archive opens the letter table of a dead-letter topic at the first call.
func (s *letterReader) archive(ctx context.Context, topic string) (*archive, error) {
	if of := s.archives[topic]; of != nil {
		return of, nil
	}
	of := &archive{end: func() {}}
	t, meant, err := s.access.Config.Route(topic)
	if err != nil || !meant || !t.IsLetters() { // archive: none
		s.archives[topic] = of
		return of, nil //nolint:nilerr // a topic without a table has no letter table
	}
	tables, end, err := openAll(ctx, s.access.Config, []string{topic})
	if err != nil {
		return nil, err
	}
	of.end = end
	s.archives[topic] = of
	of.missing = fmt.Sprintf("letter table %s does not exist", tables[0].URL)
	if tables[0].store == nil {
		return of, nil
	}
	state, err := deltalog.Load(ctx, tables[0].store)
	switch {
	case errors.Is(err, deltalog.ErrNoTable):
	case err != nil:
		return nil, tables[0].Failed(err)
	default:
		of.letters = &archivedLetters{s.access.Config.Pipeline, tables[0].store, state, s.brief}
	}
	return of, nil
}

func (s *letterReader) note(format string, args ...any) {
	s.notes = append(s.notes, fmt.Sprintf(format, args...))
}

// toEnd as the end of a range means the end of the partition.
const toEnd = math.MaxInt64
