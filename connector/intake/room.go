package intake

import (
	"slices"
	"time"
)

// room shares the batch pool among claims and tables.
type room struct {
	*base

	waiting []*claim // the claims that wait for memory, in the order in which they began to wait
	first   *claim   // the claim in waiting that gets memory next; no other claim enqueues meanwhile; nil if there is none
	anyShed bool     // true if a claim has shedBytes > 0
}

const (
	// blockBytes is the maximum size of the values in a block, unless it has only one record.
	blockBytes = 1 << 20
)

// tableLimit returns how many bytes of the batch pool the open batch of one table may take before it is sealed: less
// than half of the pool, so that the sealed batch and the open one fit together. With several tables, overShare bounds
// it further.
func (rm *room) tableLimit() int64 { return rm.Pools.Batch.Size() / 100 * 45 }

// overShare reports whether a table must not take more of the batch pool, because other tables share it. This is so if
// more than half of the pool is used, and the sealed and the open batch of the table take at least its equal share of
// half the pool. If the table is rare, it is added to the tables that share. The table must have a sealed batch.
func (rm *room) overShare(t *tableState) bool {
	pool := rm.Pools.Batch
	sharing := rm.sharing()
	if t.rare {
		sharing++
	}
	return sharing > 1 && pool.Used() > pool.Size()/2 &&
		t.sealed.Allocated.Load()+t.OpenBatch.Allocated.Load() >= pool.Size()/int64(2*sharing)
}

// sharing returns the number of tables that share the batch pool. Tables that are rarely fed do not count, because
// their share would be unused most of the time. When they need memory, batches of other tables are sealed early.
func (rm *room) sharing() (n int) {
	for _, t := range rm.tables {
		if !t.rare {
			n++
		}
	}
	return n
}

// tableToSeal returns the table whose open batch should be sealed so that its commit frees memory of the batch pool;
// nil if there is enough memory, or soon will be. If no commit is running, it is the table with the largest open batch.
// Otherwise it is the table whose batch has been open longest, unless the running commits will free a third of the
// pool; late commits do not count.
func (rm *room) tableToSeal() *tableState {
	pool := rm.Pools.Batch
	if pool.Used() < pool.Size()/100*85 && rm.first == nil {
		return nil
	}
	now, patience := time.Now(), maxPatience
	if rm.first != nil {
		patience = rm.first.patience(now)
	}
	var onTheWay int64
	var largest, oldest *tableState
	for _, t := range rm.tables {
		open := t.OpenBatch.Allocated.Load()
		switch {
		case t.commitLate(now, patience): // a late commit frees no memory soon
		case t.sealed != nil:
			if onTheWay += t.sealed.Allocated.Load(); !t.sealed.PassedAll(len(rm.lanes)) {
				onTheWay += open
			}
		case t.opened.IsZero() || open == 0:
		default:
			if largest == nil || open > largest.OpenBatch.Allocated.Load() {
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

// reserve reserves memory in the batch pool for the next block of a claim, and returns the number of bytes: estimate,
// or the size of the pool if that is less. If that much is not free, it returns 0 and false, and the claim waits: see
// firstWaiting.
func (rm *room) reserve(c *claim, estimate int64) (int64, bool) {
	pool := rm.Pools.Batch
	n := min(estimate, pool.Size())
	if !pool.TryAcquire(n) {
		if c.wantsBytes == 0 {
			c.wantsSince, rm.waiting = time.Now(), append(rm.waiting, c)
		}
		c.wantsBytes = n
		if rm.first == nil && rm.attainable(c, time.Now()) {
			rm.first = c
		}
		return 0, false
	}
	c.table.OpenBatch.Allocated.Add(n)
	rm.unwait(c)
	return n, true
}

// unwait ends a claim's wait for memory.
func (rm *room) unwait(c *claim) {
	if c.wantsBytes == 0 {
		return
	}
	c.wantsBytes = 0
	rm.waiting = slices.DeleteFunc(rm.waiting, func(o *claim) bool { return o == c })
	if rm.first == c {
		rm.first = rm.firstWaiting()
	}
}

const (
	// A commit is late for a waiting claim once it has taken half as long as the claim has waited, within these bounds.
	// It may be late for any cause, such as slow staging: this is independent of the hold commit_undecided.
	minPatience, maxPatience = time.Second, time.Minute
)

// patience returns how long a commit may take while the claim waits for the memory that the commit frees. It grows
// with the wait, so that slow commits do not keep the claim waiting forever.
func (c *claim) patience(now time.Time) time.Duration {
	return min(max(now.Sub(c.wantsSince)/2, minPatience), maxPatience)
}

// firstWaiting returns the claim that gets the next memory: of the claims that will get enough memory from commits that
// are not late, the one that has waited longest. All others stop enqueueing until then, so that their small blocks do
// not take the memory that a large block needs. A claim that needs the memory of a late commit stops no other.
func (rm *room) firstWaiting() *claim {
	now := time.Now()
	for _, c := range rm.waiting {
		if rm.attainable(c, now) {
			return c
		}
	}
	return nil
}

// attainable reports whether a waiting claim will get its memory soon if all others stop enqueueing.
func (rm *room) attainable(c *claim, now time.Time) bool {
	if t := c.table; t.sealed != nil && rm.batchFull(t) {
		return false // the claim could not enqueue even with memory
	}
	return c.wantsBytes <= rm.freeable(now, c.patience(now))
}

// freeable returns how much of the batch pool is free or will be freed by commits that are not late.
func (rm *room) freeable(now time.Time, patience time.Duration) int64 {
	n := rm.Pools.Batch.Size() - rm.Pools.Batch.Used()
	for _, t := range rm.tables {
		switch {
		case t.commitLate(now, patience): // nothing is freed soon, not even by the open batch, which is committed after the sealed one
		case t.sealed != nil:
			n += t.sealed.Allocated.Load() + t.OpenBatch.Allocated.Load()
		case !t.opened.IsZero(): // the open batch counts if it has records, because it can be sealed
			n += t.OpenBatch.Allocated.Load()
		}
	}
	return n
}

// unreserve releases memory of a block that was reserved but not enqueued.
func (rm *room) unreserve(t *tableState, n int64) {
	t.OpenBatch.Allocated.Add(-n)
	rm.Pools.Batch.Release(n)
}

// batchFull reports whether the open batch of a table is as large as a commit may be, or has its share of the batch
// pool.
func (rm *room) batchFull(t *tableState) bool {
	return t.OpenBatch.Records() >= t.limits.Rows || t.OpenBatch.Bytes.Load() >= t.limits.Bytes ||
		t.OpenBatch.Allocated.Load() >= rm.tableLimit() || t.sealed != nil && rm.overShare(t)
}
