package connector

import (
	"context"

	"sluice/reliability/deadletter"
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

// outsideTable is a table whose reads and commits are waits.
type outsideTable struct{ Table }

// inside is the table itself.
func inside(t Table) Table {
	if o, ok := t.(outsideTable); ok {
		return o.Table
	}
	return t
}

func (t outsideTable) Load(ctx context.Context) (s *Snapshot, err error) {
	err = outside(ctx, func() error { s, err = t.Table.Load(ctx); return err })
	return s, err
}

func (t outsideTable) Commit(ctx context.Context, c *Commit, pre func(*Snapshot) error) (s *Snapshot, err error) {
	err = outside(ctx, func() error { s, err = t.Table.Commit(ctx, c, pre); return err })
	return s, err
}

func (t outsideTable) Discard(ctx context.Context, s *Staged) {
	_ = outside(ctx, func() error { t.Table.Discard(ctx, s); return nil })
}

// lettersOutside are dead letters that are waited for.
type lettersOutside struct{ DeadLetters }

func outsideLetters(d DeadLetters) DeadLetters {
	if d == nil {
		return nil
	}
	return lettersOutside{d}
}

func (d lettersOutside) Write(ctx context.Context, letters []deadletter.Letter) error {
	return outside(ctx, func() error { return d.DeadLetters.Write(ctx, letters) })
}
