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

// While a writer waits for the table or for Kafka, the watchdog of its loop counts it as waiting, because reading the
// log of a large table may take long. Encoding does not count as waiting, except for waits inside of it that mark the
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
// A panic of the table becomes an error that holds the claims of that table. The likely cause is content of its log or
// data files that another program wrote. So the other tables continue, and a restart would not help. After a panic in
// Commit the outcome is unknown; the claims resume from the log.
type waitingTable struct {
	connector.Table
	logger *slog.Logger
	logged panics.Seen // the last panic, so that a repeated check of the hold does not log it again
}

// unwrapTable returns the table inside of a waitingTable, and any other table unchanged.
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

// reading returns a Reading that turns panics of read into holds. It does not mark the loop as waiting, because read
// does so itself.
func (t *waitingTable) reading(read connector.Reading) connector.Reading {
	return func(ctx context.Context, each func(connector.PastRows) error) error {
		return t.holdOf(ctx, panics.Catch(func() error { return read(ctx, each) }))
	}
}

// call runs op, which waits for the store and may panic.
func (t *waitingTable) call(ctx context.Context, op func() error) error {
	return t.holdOf(ctx, waitFor(ctx, func() error { return panics.Catch(op) }))
}

// holdOf returns a hold for an error that comes from a panic, and logs the panic's stack unless the last panic was the
// same. It returns other errors unchanged.
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

// waitingLetters writes dead letters, and marks the loop as waiting meanwhile.
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
