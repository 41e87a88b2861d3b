package idempotency

import (
	"context"
	"errors"
	"iter"
)

// Scope is what a store remembers apart from everything else: a partition, as one pipeline takes it into one table.
type Scope struct {
	Pipeline  string
	TableID   string
	Identity  Identity // by another one other records are the same
	Partition Partition
}

// String is a key for the scope: nothing else has the same.
func (s Scope) String() string {
	return escape(s.TableID) + "/" + escape(s.Identity.String()) + "/" + s.Partition.AppID(s.Pipeline)
}

// Store remembers the fingerprints of rows. It only ever hears of rows that are in the table, so that forgetting makes a
// duplicate possible and nothing can make it lose a record.
//
// For each scope it says up to which offset it remembers, and moves that only forward and only from where it stands: two
// members that work on one partition never leave a gap between them. What it lacks is filled from the table.
//
// Scopes are independent; calls for one come one after the other. Errors carry a class.
type Store interface { //nolint:interfacebloat // two to ask, four to change what is remembered, one to name who asks
	// Through is the offset below which the rows of a scope are remembered, as far as they lie in the window; 0 if none
	// are.
	Through(ctx context.Context, s Scope) (int64, error)
	// Seen returns when those fingerprints among entries that are remembered were, in milliseconds: of rows with the
	// same one the newest. It may return fingerprints whose time is over.
	Seen(ctx context.Context, s Scope, entries iter.Seq[Entry]) (map[Fingerprint]int64, error)
	// Remember adds rows at offsets [from, next) and moves Through from from to next; next may be from. ErrMoved if
	// Through is not from, with nothing changed. What entries yields has a fingerprint and its effective time. Through
	// moves only with all of them.
	Remember(ctx context.Context, s Scope, from, next int64, entries iter.Seq[Entry]) error
	// Sweep forgets what is older than before, in milliseconds.
	Sweep(ctx context.Context, s Scope, before int64) error
	// Reset forgets a scope: Through is 0 again.
	Reset(ctx context.Context, s Scope) error
	// Release says that this member does not work on the scope any more. A store of this process alone forgets it; one
	// that others share keeps it for them.
	Release(s Scope)
	// For returns the same store for a batch: log lines of what it repeats name the batch.
	For(batch string) Store
}

// ErrMoved says that a store stands elsewhere than was thought: what lies between must be filled first.
var ErrMoved = errors.New("the fingerprints are remembered up to another offset")
