package idempotency

import (
	"context"
	"errors"
	"iter"
)

// Scope is a partition, with the pipeline that reads it, the table that gets its rows, and the identity that its
// records have. A store keeps the fingerprints of each scope apart.
type Scope struct {
	Pipeline  string
	TableID   string
	Identity  Identity // fingerprints of different identities cannot be compared
	Partition Partition
}

// String returns a key for the scope that no other scope has.
func (s Scope) String() string {
	return escape(s.TableID) + "/" + escape(s.Identity.String()) + "/" + s.Partition.AppID(s.Pipeline)
}

// Store remembers the fingerprints of rows. Callers add only rows that are in the table, so forgetting makes a
// duplicate possible and can never lose a record.
//
// For each scope the store knows the offset up to which it remembers. That offset moves only forward and only from its
// last value, so two members that work on one partition never leave a gap between them. The caller fills gaps from the
// table.
//
// Scopes are independent; the caller makes the calls for one scope one after the other. Errors carry a class.
type Store interface { //nolint:interfacebloat // two methods read, four write, one names the caller
	// Through returns the offset below which the store remembers the rows of a scope that lie in the window; 0 if it
	// remembers none.
	Through(ctx context.Context, s Scope) (int64, error)
	// Seen returns the times of those entries whose fingerprints are remembered, in milliseconds: for each fingerprint
	// the newest time of its rows. It may return times that are older than the window.
	Seen(ctx context.Context, s Scope, entries iter.Seq[Entry]) (map[Fingerprint]int64, error)
	// Remember adds the rows at offsets [from, next), each with its fingerprint and effective time, and then moves
	// Through to next, which may equal from. Through moves only if all entries are added. The error is ErrMoved if
	// Through is not from; nothing has changed then.
	Remember(ctx context.Context, s Scope, from, next int64, entries iter.Seq[Entry]) error
	// Sweep deletes the entries of a scope that are older than before, in milliseconds.
	Sweep(ctx context.Context, s Scope, before int64) error
	// Reset forgets a scope: Through is 0 again.
	Reset(ctx context.Context, s Scope) error
	// Release says that this member no longer works on the scope. A store that only this process uses deletes its
	// entries of the scope; a store that members share keeps them for the other members.
	Release(s Scope)
	// For returns the same store for a batch: its log lines about retries name the batch.
	For(batch string) Store
}

// ErrMoved means that Through has another value than the caller expected: before the caller can add rows, it must add
// those in between.
var ErrMoved = errors.New("the fingerprints are remembered up to another offset")
