package lane

import (
	"sync/atomic"
	"time"

	"sluice/connector/plan"
)

// Progress shows how far the records of one session of a claim have come. The lane of the claim writes it after
// each block; the reader reads it for the status. It ends with its session.
type Progress struct {
	Began   time.Time
	Decoded atomic.Int64 // the offset after the last decoded block
	// Bad is one more than the offset of the first record that stops the claim, because it cannot become a dead letter.
	// 0 means that there is none.
	Bad atomic.Int64
	// open is about the records of the session in the open batch, sealed about those in a sealed batch that is not
	// committed yet.
	open, sealed uncommitted
}

// uncommitted describes the records that wait for a commit as rows or candidates. It is zero if there are none.
type uncommitted struct {
	since  atomic.Int64 // when the first of them was enqueued, in nanoseconds after Began (monotonic clock)
	oldest atomic.Int64 // their smallest timestamp, in milliseconds
}

func (u *uncommitted) clear() { u.set(0, 0) }

func (u *uncommitted) set(since, oldest int64) {
	u.since.Store(since)
	u.oldest.Store(oldest)
}

// done notes that the lane has decoded a block; next is the offset after it. some is true if records of the block now
// wait for a commit. done returns true if these are the first of the session in the open batch.
func (p *Progress) done(b *Block, next int64, some bool) (first bool) {
	if some {
		since := p.open.since.Load()
		if first = since == 0; first {
			since = max(b.Since.Sub(p.Began).Nanoseconds(), 1)
		}
		p.open.set(since, plan.Earliest(p.open.oldest.Load(), b.Oldest))
	}
	p.Decoded.Store(next) // stored last: until then a reader sees the records as queued, and afterwards as waiting
	return first
}

// stop notes the offset of a record that cannot become a dead letter. Only the first one counts.
func (p *Progress) stop(offset int64) { p.Bad.CompareAndSwap(0, offset+1) }

// seal moves the records of the session from the open batch to the sealed one.
func (p *Progress) seal() {
	p.sealed.set(p.open.since.Load(), p.open.oldest.Load())
	p.open.clear() // cleared last, so that a reader finds the records in at least one of the two
}

// ClearSealed notes that the sealed batch was committed, so that none of its records waits any more.
func (p *Progress) ClearSealed() { p.sealed.clear() }

// Since returns when the oldest waiting record was enqueued: it is a row or candidate of the open or the sealed batch.
// It returns the zero time if none waits.
func (p *Progress) Since() (at time.Time) {
	open := p.open.since.Load() // read before sealed, because seal moves records from open to sealed
	if since := plan.Earliest(p.sealed.since.Load(), open); since > 0 {
		at = p.Began.Add(time.Duration(since))
	}
	return at
}

// Oldest returns the smallest timestamp of the records that wait for a commit in milliseconds, 0 if there is none.
func (p *Progress) Oldest() int64 {
	open := p.open.oldest.Load()
	return plan.Earliest(p.sealed.oldest.Load(), open)
}
