package postgres

import (
	"context"
	"iter"
	"strings"
	"unicode"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"sluice/idempotency"
)

// columns are the columns of some entries, as arrays for a statement.
type columns struct {
	texts   []string
	offsets []int64
	times   []int64
	ids     []string // the ids that the producers gave, "" for none
}

// asciiOnly removes the ids with other characters than ASCII: a database with another encoding than UTF-8 may not have
// those characters.
func (c *columns) asciiOnly() {
	for i, id := range c.ids {
		if strings.ContainsFunc(id, func(r rune) bool { return r > unicode.MaxASCII }) {
			c.ids[i] = ""
		}
	}
}

// chunked yields entries in groups of at most chunk, one group for each statement. A group is valid until the next one.
func chunked(entries iter.Seq[idempotency.Entry]) iter.Seq[columns] {
	return func(yield func(columns) bool) {
		var c columns
		for e := range entries {
			c.texts, c.offsets, c.times = append(c.texts, e.Fingerprint.String()), append(c.offsets, e.Offset), append(c.times, e.At)
			c.ids = append(c.ids, e.ID)
			if len(c.texts) == chunk {
				if !yield(c) {
					return
				}
				c = columns{c.texts[:0], c.offsets[:0], c.times[:0], c.ids[:0]}
			}
		}
		if len(c.texts) > 0 {
			yield(c)
		}
	}
}

// timed is a transaction that bounds each of its statements by statementTimeout.
type timed struct{ pgx.Tx }

// Exec implements pgx.Tx.
func (t timed) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	defer cancel()
	return t.Tx.Exec(ctx, sql, args...)
}

// QueryRow implements pgx.Tx. The timeout covers the Scan of the row, which the caller must call.
func (t timed) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	ctx, cancel := context.WithTimeout(ctx, statementTimeout)
	return timedRow{t.Tx.QueryRow(ctx, sql, args...), cancel}
}

type timedRow struct {
	pgx.Row
	cancel context.CancelFunc
}

func (r timedRow) Scan(into ...any) error {
	defer r.cancel()
	return r.Row.Scan(into...)
}
