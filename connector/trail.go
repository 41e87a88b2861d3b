package connector

import (
	"sync/atomic"
	"time"
)

// A trail is how far the records of one session of a claim have come. The lane of the claim writes it, block by block, the
// reader looks at it for the status. A trail ends with its session; nobody looks at it afterwards.
type trail struct {
	began   time.Time
	decoded atomic.Int64 // next offset behind the blocks that the lane has done
	// bad is one more than the offset of a record that no letter can stand for: nothing from it on will be a row. 0 if there
	// is none.
	bad atomic.Int64
	// open is what the lane has of the batch that fills, cut what it gave to the cut on its way.
	open, cut uncommitted
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
func (t *trail) done(b *block, next int64, some bool) (first bool) {
	if some {
		since := t.open.since.Load()
		if first = since == 0; first {
			since = max(b.since.Sub(t.began).Nanoseconds(), 1)
		}
		t.open.set(since, older(t.open.oldest.Load(), b.oldest))
	}
	t.decoded.Store(next) // last: what is not waiting yet must be seen as queued
	return first
}

// stop notes a record that no letter can stand for.
func (t *trail) stop(offset int64) { t.bad.CompareAndSwap(0, offset+1) }

// close gives what is open to a cut.
func (t *trail) close() {
	t.cut.set(t.open.since.Load(), t.open.oldest.Load())
	t.open.clear() // last: it must not be seen nowhere
}

// settled says that no cut is on its way any more.
func (t *trail) settled() { t.cut.clear() }

// since is when the first of the records that wait for a commit was handed over, the zero time if there is none.
func (t *trail) since() (at time.Time) {
	open := t.open.since.Load() // in this order: a cut takes it over
	if since := older(t.cut.since.Load(), open); since > 0 {
		at = t.began.Add(time.Duration(since))
	}
	return at
}

// oldest is the least timestamp of the records that wait for a commit, 0 if there is none.
func (t *trail) oldest() int64 {
	open := t.open.oldest.Load()
	return older(t.cut.oldest.Load(), open)
}

// flight is a block on its way to the lane: where the claim stood before it and behind it, and the least timestamp.
type flight struct{ from, next, oldest int64 }

// flights is how many of them a claim remembers one by one: a lane's queue holds no more.
const flights = laneQueue + 1

// handed notes a block that was handed over.
func (c *claim) handed(f flight, at time.Time) {
	c.land()
	if n := len(c.flights); n == flights {
		last := &c.flights[n-1]
		last.next, last.oldest = f.next, older(f.oldest, last.oldest)
	} else {
		c.flights = append(c.flights, f)
	}
	c.last = at
}

// land forgets the blocks that the lane is done with.
func (c *claim) land() {
	decoded, n := c.trail.decoded.Load(), 0
	for n < len(c.flights) && c.flights[n].next <= decoded {
		n++
	}
	c.flights = append(c.flights[:0], c.flights[n:]...)
}

// consumed is the next offset behind the records of a claim that are rows on their way to the table, or in it.
func (c *claim) consumed() int64 {
	if c.next == c.from && !c.table.cuts(c.Partition) {
		return c.position
	}
	at := c.next // with what no reader of committed records sees
	if c.land(); len(c.flights) > 0 {
		at = c.flights[0].from
	}
	if bad := c.trail.bad.Load(); bad > 0 {
		at = min(at, bad-1)
	}
	return max(at, c.position)
}

// oldest is the least timestamp of the records that were handed over and are not in the table, 0 if there is none.
func (c *claim) oldest() int64 {
	c.land()
	oldest := c.owed
	for _, f := range c.flights { // before the trail: a block that lands is found there
		oldest = older(oldest, f.oldest)
	}
	return older(oldest, c.trail.oldest())
}

// waits is since when rows of a table wait for their commit, the zero time if none do.
func (t *tableState) waits() (since time.Time) {
	for _, c := range t.claims {
		if at := c.trail.since(); !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}

// stamped is a timestamp of records as a time; the zero time for none.
func stamped(ms int64) (at time.Time) {
	if ms > 0 {
		at = time.UnixMilli(ms)
	}
	return at
}
