package commit

import (
	"context"
	"errors"
	"log/slog"

	"sluice/connector"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
	"sluice/reliability/pulse"
)

// What a writer asks of the world beside encoding is a wait of its loop, as a whole: the log of a large table takes as long
// as it takes. Encoding is none; the waits in it say so themselves, and so do guards.

// outside is op, which waits for somebody outside of the loop of ctx.
func outside(ctx context.Context, op func() error) error {
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	return op()
}

// outsideTable is a table whose reads and commits are waits of the writer's loop.
//
// A panic of the table is a hold of that table. What others wrote into its log or its data files is the likely cause, the
// other tables are sound, and a restart would meet the same bytes again. After a panic in Commit nobody knows whether the
// version was written; the claims resume from the log, which does.
type outsideTable struct {
	connector.Table
	logger *slog.Logger
	logged panics.Seen // a re-check each minute adds no line
}

// inside is the table itself.
func inside(t connector.Table) connector.Table {
	if o, ok := t.(*outsideTable); ok {
		return o.Table
	}
	return t
}

// Load implements Table.
func (t *outsideTable) Load(ctx context.Context) (s *connector.Snapshot, err error) {
	err = t.call(ctx, func() error { s, err = t.Table.Load(ctx); return err })
	return s, err
}

// Commit implements Table.
func (t *outsideTable) Commit(ctx context.Context, c *connector.Commit, pre func(*connector.Snapshot) error) (s *connector.Snapshot, err error) {
	err = t.call(ctx, func() error { s, err = t.Table.Commit(ctx, c, pre); return err })
	return s, err
}

// HasRows implements Table.
func (t *outsideTable) HasRows(ctx context.Context, s *connector.Snapshot, of []connector.RowsOf, thorough bool) (found map[connector.RowsOf]bool, err error) {
	err = t.call(ctx, func() error { found, err = t.Table.HasRows(ctx, s, of, thorough); return err })
	return found, err
}

// Discard implements Table.
func (t *outsideTable) Discard(ctx context.Context, s *connector.Staged) {
	_ = t.call(ctx, func() error { t.Table.Discard(ctx, s); return nil })
}

// reading is a reading of the table whose panics are holds, too. It is no wait: who reads says when it waits.
func (t *outsideTable) reading(read connector.Reading) connector.Reading {
	return func(ctx context.Context, each func(connector.PastRows) error) error {
		return t.holdOf(ctx, panics.Catch(func() error { return read(ctx, each) }))
	}
}

// call runs op, which waits for the store and may panic.
func (t *outsideTable) call(ctx context.Context, op func() error) error {
	return t.holdOf(ctx, outside(ctx, func() error { return panics.Catch(op) }))
}

// holdOf makes a hold of an error that stems from a panic, and logs its stack once.
func (t *outsideTable) holdOf(ctx context.Context, err error) error {
	caught, anew := t.logged.Anew(err)
	if caught == nil {
		return err
	}
	if anew {
		t.logger.ErrorContext(ctx, "a panic while the table was read or written is a hold of this table; report it with the stack",
			"err", err, "stack", caught.Stack)
	}
	if errors.As(err, new(*hold.Error)) {
		return err
	}
	return hold.New(hold.TableUnsupported, "this version fails on what is in the table; the log has the stack", err)
}

// lettersOutside are dead letters that are waited for.
type lettersOutside struct{ connector.DeadLetters }

func outsideLetters(d connector.DeadLetters) connector.DeadLetters {
	if d == nil {
		return nil
	}
	return lettersOutside{d}
}

func (d lettersOutside) Write(ctx context.Context, letters []deadletter.Letter) error {
	return outside(ctx, func() error { return d.DeadLetters.Write(ctx, letters) })
}
