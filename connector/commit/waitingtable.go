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

// The calls of a writer to the table and to Kafka count as waiting in the watchdog of its loop, because reading the log
// of a large table may take long. Encoding does not count as waiting, except for the waits inside of it that mark the
// loop themselves, such as those of guards.

// waitFor runs op and marks the loop of ctx as waiting meanwhile.
func waitFor(ctx context.Context, op func() error) error {
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	return op()
}

// waitingTable is a table whose calls, except those that encode, count as waiting.
//
// A panic of the table becomes an error that holds the claims of that table. The likely cause is the content of its log
// or data files, written by another program. The other tables are fine, and a restart would meet the same content.
// After a panic in Commit the outcome is unknown; the claims resume from the log.
type waitingTable struct {
	connector.Table
	logger *slog.Logger
	logged panics.Seen // a repeated check of the hold adds no line
}

// unwrapTable returns the wrapped table.
func unwrapTable(t connector.Table) connector.Table {
	if o, ok := t.(*waitingTable); ok {
		return o.Table
	}
	return t
}

// Load implements [connector.Table].
func (t *waitingTable) Load(ctx context.Context) (s *connector.Snapshot, err error) {
	err = t.call(ctx, func() error { s, err = t.Table.Load(ctx); return err })
	return s, err
}

// Commit implements [connector.Table].
func (t *waitingTable) Commit(ctx context.Context, c *connector.Commit, pre func(*connector.Snapshot) error) (s *connector.Snapshot, err error) {
	err = t.call(ctx, func() error { s, err = t.Table.Commit(ctx, c, pre); return err })
	return s, err
}

// HasRows implements [connector.Table].
func (t *waitingTable) HasRows(ctx context.Context, s *connector.Snapshot, of []connector.RowsOf, thorough bool) (found map[connector.RowsOf]bool, err error) {
	err = t.call(ctx, func() error { found, err = t.Table.HasRows(ctx, s, of, thorough); return err })
	return found, err
}

// Discard implements [connector.Table].
func (t *waitingTable) Discard(ctx context.Context, s *connector.Staged) {
	_ = t.call(ctx, func() error { t.Table.Discard(ctx, s); return nil })
}

// reading returns read with its panics turned into holds. It does not mark the loop as waiting, because read does so
// itself.
func (t *waitingTable) reading(read connector.Reading) connector.Reading {
	return func(ctx context.Context, each func(connector.PastRows) error) error {
		return t.holdOf(ctx, panics.Catch(func() error { return read(ctx, each) }))
	}
}

// call runs op, which waits for the store and may panic.
func (t *waitingTable) call(ctx context.Context, op func() error) error {
	return t.holdOf(ctx, waitFor(ctx, func() error { return panics.Catch(op) }))
}

// holdOf turns an error that comes from a panic into a hold, and logs the stack unless the last panic was the same.
// Other errors it returns unchanged.
func (t *waitingTable) holdOf(ctx context.Context, err error) error {
	caught, anew := t.logged.Anew(err)
	if caught == nil {
		return err
	}
	if anew {
		t.logger.ErrorContext(ctx, "panic while reading or writing the table; holding its claims; report it with the stack",
			"err", err, "stack", caught.Stack)
	}
	if errors.As(err, new(*hold.Error)) {
		return err
	}
	return hold.New(hold.TableUnsupported, "this version fails on the content of the table; the log has the stack", err)
}

// waitingLetters are dead letters whose writes count as waiting.
type waitingLetters struct{ connector.DeadLetters }

func newWaitingLetters(d connector.DeadLetters) connector.DeadLetters {
	if d == nil {
		return nil
	}
	return waitingLetters{d}
}

// Write implements [connector.DeadLetters].
func (d waitingLetters) Write(ctx context.Context, letters []deadletter.Letter) error {
	return waitFor(ctx, func() error { return d.DeadLetters.Write(ctx, letters) })
}
