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
	// Bad is the offset, plus one, of a record that cannot become a dead letter, so that neither it nor a later record
	// becomes a row; 0 if there is none.
	Bad atomic.Int64
	// open describes the records of the session that are in the open batch, sealed those in the sealed batch that is
	// being committed.
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

// done notes that the lane has decoded a block up to next. some is true if records of the block now wait for a commit.
// first is true if they are the first of the session in the open batch.
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

// seal notes that the session's records in the open batch are now in the sealed one.
func (p *Progress) seal() {
	p.sealed.set(p.open.since.Load(), p.open.oldest.Load())
	p.open.clear() // cleared last, so that a reader finds the records in at least one of the two
}

// ClearSealed forgets the records of the sealed batch, which a commit has taken.
func (p *Progress) ClearSealed() { p.sealed.clear() }

// Since returns when the first of the records that wait for a commit was enqueued, the zero time if none waits.
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
