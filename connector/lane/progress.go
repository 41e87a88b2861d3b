package lane

import (
	"sync/atomic"
	"time"

	"sluice/connector/plan"
)

// A Trail is how far the records of one session of a claim have come. The lane of the claim writes it, block by block, the
// reader looks at it for the status. A trail ends with its session; nobody looks at it afterwards.
type Progress struct {
	Began   time.Time
	Decoded atomic.Int64 // next offset behind the blocks that the lane has done
	// Bad is one more than the offset of a record that no letter can stand for: nothing from it on will be a row. 0 if there
	// is none.
	Bad atomic.Int64
	// open is what the lane has of the batch that fills, cut what it gave to the cut on its way.
	open, sealed uncommitted
}

// uncommitted is records that wait for a commit: those that are rows, or bad. Zeroes if there are none.
type uncommitted struct {
	since  atomic.Int64 // when the first of them was handed over, in nanoseconds from began, by the clock that nobody sets
	oldest atomic.Int64 // the least timestamp of them, in milliseconds
}

func (u *uncommitted) clear() { u.set(0, 0) }

func (u *uncommitted) set(since, oldest int64) {
	u.since.Store(since)
	u.oldest.Store(oldest)
}

// done notes that the lane is done with a block. some tells whether records of it wait for a commit now. It returns whether
// they are the first of the batch that fills.
func (t *Progress) done(b *Block, next int64, some bool) (first bool) {
	if some {
		since := t.open.since.Load()
		if first = since == 0; first {
			since = max(b.Since.Sub(t.Began).Nanoseconds(), 1)
		}
		t.open.set(since, plan.Earliest(t.open.oldest.Load(), b.Oldest))
	}
	t.Decoded.Store(next) // last: what is not waiting yet must be seen as queued
	return first
}

// stop notes a record that no letter can stand for.
func (t *Progress) stop(offset int64) { t.Bad.CompareAndSwap(0, offset+1) }

// seal gives what is open to a cut.
func (t *Progress) seal() {
	t.sealed.set(t.open.since.Load(), t.open.oldest.Load())
	t.open.clear() // last: it must not be seen nowhere
}

// ClearSealed says that no cut is on its way any more.
func (t *Progress) ClearSealed() { t.sealed.clear() }

// Since is when the first of the records that wait for a commit was handed over, the zero time if there is none.
func (t *Progress) Since() (at time.Time) {
	open := t.open.since.Load() // in this order: a cut takes it over
	if since := plan.Earliest(t.sealed.since.Load(), open); since > 0 {
		at = t.Began.Add(time.Duration(since))
	}
	return at
}

// Oldest is the least timestamp of the records that wait for a commit, 0 if there is none.
func (t *Progress) Oldest() int64 {
	open := t.open.oldest.Load()
	return plan.Earliest(t.sealed.oldest.Load(), open)
}
