package app

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/health/lettercount"
	"sluice/internal/lookup"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// errExpired means that retention deleted dead letters before the watch has read them from their topic. The next poll
// reads them from the letter table.
var errExpired = errors.New("retention deleted dead letters during the count: the next one reads them from the letter table")

// readPartition reads the offsets of a dead-letter partition that the tally does not have yet, and adds their dead
// letters to it: first from the letter table what retention has deleted from the topic, then from the topic. It returns
// [lettercount.ErrFull] if the memory of the tally is full.
func (w *letterWatch) readPartition(ctx context.Context, o *outlook, p connector.Partition, b connector.Bounds) error {
	table, archived := w.letterTable(p.Topic), int64(0)
	if table != "" && b.LogStart > 0 {
		if archived = w.archivedTo(table, p); archived < b.LogStart {
			if err := w.followArchive(ctx, o, table); err != nil {
				return err
			}
			archived = w.archivedTo(table, p)
		}
	}
	kept := lettercount.Kept{Archived: archived, Start: b.LogStart, End: b.LastStable}
	missing := w.tally.Missing(p, kept)
	if slices.ContainsFunc(missing, func(s lettercount.Span) bool { return s.Archived }) {
		if err := w.followArchive(ctx, o, table); err != nil {
			return err
		}
		kept.Archived = w.archivedTo(table, p)
		missing = w.tally.Missing(p, kept)
	}
	for _, span := range missing {
		if err := w.tally.Full(); err != nil {
			return err
		}
		var err error
		if span.Archived {
			err = w.readArchive(ctx, o, table, p, span)
		} else {
			err = w.readTopic(ctx, table != "", p, span)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// readTopic reads a missing span of a dead-letter partition from its topic. If archive is true, it ends with errExpired
// where retention deletes dead letters during the read. Without a letter table they are lost, and it skips them.
func (w *letterWatch) readTopic(ctx context.Context, archive bool, p connector.Partition, span lettercount.Span) error {
	w.tally.Begin(p, span)
	read := w.reader.Span
	if archive {
		read = w.reader.SpanOrExpired
	}
	resting := newPace()
	err := read(ctx, p, span.From, span.To, func(r *connector.Record) error {
		// A record that is not a dead letter is not counted; deadletters list shows it.
		if l, err := decode.ParseLetter(r); err == nil {
			w.tally.Add(p, r.Offset, l.Source, l.Class)
		}
		return nil
	}, func(next int64) error {
		if err := w.tally.Passed(p, next); err != nil {
			return err
		}
		return resting.rest(ctx)
	})
	if errors.Is(err, lookup.ErrExpired) {
		return errExpired
	}
	return err
}

// letterTable returns the name of the letter table of a dead-letter topic, "" without one.
func (w *letterWatch) letterTable(topic string) string {
	t, meant, err := w.config.Route(topic)
	if err != nil || !meant || !t.IsLetters() { // archive: none
		return ""
	}
	return t.Table
}

// archivedTo returns the offset up to which members have archived a dead-letter partition, as of the last time that the
// letter table was followed. It returns 0 if they have none of it, or the table is not known.
func (w *letterWatch) archivedTo(table string, p connector.Partition) int64 {
	f := w.archives[table]
	if f == nil || f.State() == nil {
		return 0
	}
	return f.State().Txns[p.AppID(w.config.Pipeline)].Version
}

// followArchive brings the follower of a letter table up to the newest version, once in a poll. A table that does not
// exist is no error.
func (w *letterWatch) followArchive(ctx context.Context, o *outlook, table string) (err error) {
	if err, done := o.archives[table]; done {
		return err
	}
	defer func() {
		if err != nil {
			err = fmt.Errorf("letter table %s: %w", table, err)
		}
		o.archives[table] = err
	}()
	if err := w.stands(table); err != nil {
		return err
	}
	f := w.archives[table]
	if f == nil {
		f = delta.NewFollower(objstore.Sub(w.tables, table), w.guard)
		w.archives[table] = f
	}
	_, err = w.follow(ctx, f)
	return err
}

// readArchive reads a missing span of a dead-letter partition from its letter table, archivedAtOnce offsets at a time.
// After an error the poll reads this table no more, because its state may be unknown then.
func (w *letterWatch) readArchive(ctx context.Context, o *outlook, table string, p connector.Partition, span lettercount.Span) error {
	resting := newPace()
	for from := span.From; from < span.To; from += archivedAtOnce {
		piece := lettercount.Span{From: from, To: min(from+archivedAtOnce, span.To), Archived: true}
		if err := w.readPiece(ctx, table, p, piece); err != nil {
			err = fmt.Errorf("letter table %s: %w", table, err)
			o.archives[table] = err
			return err
		}
		if err := w.tally.Passed(p, piece.To); err != nil {
			return err
		}
		if err := resting.rest(ctx); err != nil {
			return err
		}
	}
	return nil
}

// readPiece adds the dead letters of a piece of a dead-letter partition, from its letter table.
func (w *letterWatch) readPiece(ctx context.Context, table string, p connector.Partition, piece lettercount.Span) error {
	ctx, cancel := context.WithTimeout(ctx, judgeLetters)
	defer cancel()
	w.tally.Begin(p, piece)
	rows := func(where []scan.Where, columns []string, each func(arrow.RecordBatch) error) error {
		return w.archives[table].WholeRows(ctx, archiveBytes, where, columns, each)
	}
	return lookup.StoredLetters(rows, p, piece.From, piece.To, false, func(l *decode.StoredLetter) error {
		if l.Err == nil { // else it is not a dead letter, as in readTopic
			w.tally.Add(p, l.Offset, l.Letter.Source, l.Letter.Class)
		}
		return nil
	})
}
