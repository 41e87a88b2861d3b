package intake

import (
	"slices"
	"time"
)

// room is the batch pool as the reader shares it among claims and tables.
type room struct {
	*base

	waiting []*claim // for room, in the order in which they began
	first   *claim   // of waiting: it gets what becomes free, and nothing else is enqueued; nil if there is none
	sheds   bool     // a claim gave up its block while it waited
}

const (
	// blockBytes is what the values of a block come to at most, unless it has one record.
	blockBytes = 1 << 20
)

// batchShare is the part of the batch pool that the rows of one table may take before they are cut: the cut and the
// batch behind it fit together.
func (m *room) batchShare() int64 { return m.Pools.Batch.Size() / 100 * 45 }

// overShare tells whether a table that has a cut on its way takes more than its part, while others need theirs.
func (m *room) overShare(t *tableState) bool {
	pool := m.Pools.Batch
	sharing := m.sharing()
	if t.rare {
		sharing++
	}
	return sharing > 1 && pool.Used() > pool.Size()/2 &&
		t.sealed.Allocated.Load()+t.OpenBatch.Allocated.Load() >= pool.Size()/int64(2*sharing)
}

// sharing is how many tables the batch pool is for. Those that are hardly ever fed do not count: when they are, what they
// need is taken by cutting others early, and otherwise it would lie idle.
func (m *room) sharing() (n int) {
	for _, t := range m.tables {
		if !t.rare {
			n++
		}
	}
	return n
}

// tableToSeal is the table to cut so that the batch pool gets room, nil if it has enough or soon will have: the largest one,
// then, while that is on its way, the one that has waited longest.
func (m *room) tableToSeal() *tableState {
	pool := m.Pools.Batch
	if pool.Used() < pool.Size()/100*85 && m.first == nil {
		return nil
	}
	now, patience := time.Now(), maxPatience
	if m.first != nil {
		patience = m.first.patience(now)
	}
	var onTheWay int64
	var largest, oldest *tableState
	for _, t := range m.tables {
		held := t.OpenBatch.Allocated.Load()
		switch {
		case t.commitLate(now, patience): // no room comes from it soon
		case t.sealed != nil:
			if onTheWay += t.sealed.Allocated.Load(); !t.sealed.PassedAll(len(m.lanes)) {
				onTheWay += held
			}
		case t.opened.IsZero() || held == 0:
		default:
			if largest == nil || held > largest.OpenBatch.Allocated.Load() {
				largest = t
			}
			if oldest == nil || t.opened.Before(oldest.opened) {
				oldest = t
			}
		}
	}
	switch {
	case onTheWay == 0:
		return largest
	case onTheWay < pool.Size()/3:
		return oldest
	}
	return nil
}

// reserve takes room in the batch pool for a claim's next block, which will come to so many bytes. If there is none, the claim
// waits for it: see foremost.
func (m *room) reserve(c *claim, estimate int64) (int64, bool) {
	pool := m.Pools.Batch
	n := min(estimate, pool.Size())
	if !pool.TryAcquire(n) {
		if c.wantsBytes == 0 {
			c.wantsSince, m.waiting = time.Now(), append(m.waiting, c)
		}
		c.wantsBytes = n
		if m.first == nil && m.attainable(c, time.Now()) {
			m.first = c
		}
		return 0, false
	}
	c.table.OpenBatch.Allocated.Add(n)
	m.unwait(c)
	return n, true
}

// unwait ends a claim's wait for room.
func (m *room) unwait(c *claim) {
	if c.wantsBytes == 0 {
		return
	}
	c.wantsBytes = 0
	m.waiting = slices.DeleteFunc(m.waiting, func(o *claim) bool { return o == c })
	if m.first == c {
		m.first = m.firstWaiting()
	}
}

const (
	// A commit counts as late for a claim that waits for memory when it has taken half of the claim's wait, within these
	// bounds. After the second one it is a hold, commit_undecided.
	minPatience, maxPatience = time.Second, time.Minute
)

// patience is how long a commit may take while a claim waits for the memory that the commit will free. It grows with the
// wait, so that commits that are only slow do not keep the claim waiting for ever.
func (c *claim) patience(now time.Time) time.Duration {
	return min(max(now.Sub(c.wantsSince)/2, minPatience), maxPatience)
}

// firstWaiting returns the claim for which all others stop handing over, so that small blocks cannot take the room of a large one
// for ever: the one that has waited longest, of those whose room becomes free by commits that are not late. Where the room is
// in the hands of a late commit the claim waits alone, and others go on with what is left.
func (m *room) firstWaiting() *claim {
	now := time.Now()
	for _, c := range m.waiting {
		if m.attainable(c, now) {
			return c
		}
	}
	return nil
}

// attainable tells whether a claim that waits gets its room if all others stop handing over.
func (m *room) attainable(c *claim, now time.Time) bool {
	if t := c.table; t.sealed != nil && m.full(t) {
		return false // it could not hand over anyway
	}
	return c.wantsBytes <= m.freeable(now, c.patience(now))
}

// freeable is how much of the batch pool is free, or becomes free without commits that are late.
func (m *room) freeable(now time.Time, patience time.Duration) int64 {
	n := m.Pools.Batch.Size() - m.Pools.Batch.Used()
	for _, t := range m.tables {
		switch {
		case t.commitLate(now, patience): // what fills behind it cannot leave either
		case t.sealed != nil:
			n += t.sealed.Allocated.Load() + t.OpenBatch.Allocated.Load()
		case !t.opened.IsZero(): // else there is nothing to cut
			n += t.OpenBatch.Allocated.Load()
		}
	}
	return n
}

// unreserve gives the room of a block back that was not handed over.
func (m *room) unreserve(t *tableState, n int64) {
	t.OpenBatch.Allocated.Add(-n)
	m.Pools.Batch.Release(n)
}

// Sweep gives back what is left when everything has ended: blocks that no lane came to, cuts that no writer took.
func (r *Reader) Sweep() {
	for _, c := range r.claims {
		r.holds.dropQueued(c)
	}
	for _, l := range r.lanes {
		l.Sweep()
	}
	for _, t := range r.tables {
		for _, barrier := range append(t.writer.Requests.Left(), t.sealed) {
			barrier.Sweep(r.Pools.Batch)
		}
	}
}

// full tells whether the batch that fills is as large as a commit may be.
func (m *room) full(t *tableState) bool {
	return t.OpenBatch.Records() >= t.limits.Rows || t.OpenBatch.Bytes.Load() >= t.limits.Bytes ||
		t.OpenBatch.Allocated.Load() >= m.batchShare() || t.sealed != nil && m.overShare(t)
}
