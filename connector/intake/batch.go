package intake

import (
	"fmt"
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
)

// batcher closes batches, and says when they are due.
type batcher struct {
	*base

	room    *room
	current *current

	sealForMemory *tableState // to close for want of memory
	batches       uint64      // closed so far
}

// Why batches are cut.
const (
	dueDrain     = "drain"
	dueCurrent   = "current"
	duePause     = "pause"
	dueFailure   = "failure"
	dueRetry     = "retry"
	dueRows      = "rows"
	dueBytes     = "bytes"
	dueMemory    = "memory"
	dueAge       = "age"
	duePositions = "positions"
)

func sealReasons() []string {
	return []string{dueDrain, dueCurrent, duePause, dueFailure, dueRetry, dueRows, dueBytes, dueMemory, dueAge, duePositions}
}

// due says why the batch of a table should be cut now, or "".
func (b *batcher) due(t *tableState) string {
	if t.sealed != nil || t.opened.IsZero() {
		return ""
	}
	records, age := t.OpenBatch.Records(), time.Since(t.opened)
	empty := records == 0 && t.OpenBatch.Queued.Load() == 0 && !finishingOpen(t)
	switch {
	case b.draining:
		return dueDrain
	case b.UntilCurrent && b.current.reached():
		return dueCurrent
	case pausedOpen(t):
		return duePause
	case t.OpenBatch.Failed.Load() > 0:
		return dueFailure
	case t.refetched():
		return dueRetry
	case records >= t.limits.Rows:
		return dueRows
	case t.OpenBatch.Bytes.Load() >= t.limits.Bytes:
		return dueBytes
	case t.OpenBatch.Allocated.Load() >= b.room.batchShare(), b.sealForMemory == t:
		return dueMemory
	case !empty && age >= t.limits.Every:
		return dueAge
	case empty && (age >= emptyEvery || gathered(t) >= emptyOffsets):
		return duePositions
	}
	return ""
}

// pausedOpen tells whether a paused claim waits for what it read before to settle.
func pausedOpen(t *tableState) bool {
	for _, c := range t.claims {
		if c.isPaused() && c.next > c.from {
			return true
		}
	}
	return false
}

// finishingOpen tells whether a claim that holds waits for what it read before to settle.
func finishingOpen(t *tableState) bool {
	for _, c := range t.claims {
		if c.state == finishing && c.next > c.from {
			return true
		}
	}
	return false
}

// gathered is how many offsets the batch that fills covers.
func gathered(t *tableState) (n int64) {
	for _, c := range t.claims {
		n += c.next - c.from
	}
	return n
}

// seal closes the batch of a table: a marker through all lanes, behind everything handed over.
func (b *batcher) seal(t *tableState, reason string) {
	claims := map[connector.Partition]plan.Span{}
	for p, c := range t.claims {
		if c.next > c.from {
			claims[p] = plan.Span{Session: c.session, From: c.from, Next: c.next, Epoch: c.epoch, Earlier: c.earlier}
			c.from, c.earlier = c.next, nil
		}
	}
	t.opened, t.refetch = time.Time{}, nil
	if len(claims) == 0 {
		b.dropOpen(t)
		return
	}
	b.batches++
	barrier := lane.NewBarrier(fmt.Sprintf("%s-%d", b.Member, b.batches), claims, len(b.lanes))
	for _, l := range b.lanes {
		l.SealBatch(&t.Table, barrier)
	}
	t.sealed = barrier
	t.writer.Requests.Write(barrier)
	b.Metrics.sealed.WithLabelValues(reason).Inc()
	b.Logger.Debug("cut", "table", t.name, "batch_id", barrier.ID, "reason", reason, "partitions", len(claims))
}

// dropOpen tells the lanes to drop what they hold for a table.
func (b *batcher) dropOpen(t *tableState) {
	for _, l := range b.lanes {
		l.Discard(&t.Table)
	}
}

// untilDue is when something becomes due by time alone.
func (b *batcher) untilDue() time.Duration {
	now := time.Now()
	next := now.Add(showEvery)
	for _, t := range b.tables {
		if !t.opened.IsZero() && t.sealed == nil {
			if due := t.opened.Add(t.limits.Every); due.After(now) && due.Before(next) {
				next = due
			}
		}
	}
	return max(next.Sub(now), time.Millisecond)
}

// dropAll drops the batch that fills and the cut behind which nothing can follow any more.
func (b *batcher) dropAll(t *tableState) {
	barrier := t.sealed
	if barrier != nil {
		b.Logger.Debug("cut dropped", "table", t.name, "batch_id", barrier.ID)
	}
	t.sealed, t.opened, t.comparing = nil, time.Time{}, false
	t.writer.Requests.Abandon(barrier)
	b.dropOpen(t)
}
