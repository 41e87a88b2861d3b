package intake

import (
	"fmt"
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
)

// batcher decides when batches are due, and seals them.
type batcher struct {
	*base

	room    *room
	current *untilCurrent

	sealForMemory *tableState // the table to be sealed because memory is short; nil if there is none
	batches       uint64      // the number of batches sealed so far
}

// The reasons to seal a batch, in the order in which due tests them. They are labels of sluice_batches_sealed_total.
const (
	dueDrain     = "drain"
	dueCurrent   = "current"
	duePause     = "pause"
	dueFlush     = "flush"
	dueFailure   = "failure"
	dueRetry     = "retry"
	dueRows      = "rows"
	dueBytes     = "bytes"
	dueMemory    = "memory"
	dueAge       = "age"
	duePositions = "positions"
)

// sealReasons returns all reasons to seal a batch, for metrics.
func sealReasons() []string {
	return []string{dueDrain, dueCurrent, duePause, dueFlush, dueFailure, dueRetry, dueRows, dueBytes, dueMemory, dueAge, duePositions}
}

// sealIfDue seals the open batch of a table if it is due.
func (b *batcher) sealIfDue(t *tableState) {
	if reason := b.due(t); reason != "" {
		b.seal(t, reason)
	}
	if t.sealed == nil && t.opened.IsZero() {
		t.answerFlush(nil)
	}
}

// due returns why the open batch of a table should be sealed now, or "".
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
	case t.flush.State == connector.FlushWaits:
		return dueFlush
	case t.OpenBatch.Failed.Load() > 0:
		return dueFailure
	case t.refetched():
		return dueRetry
	case records >= t.limits.Rows:
		return dueRows
	case t.OpenBatch.Bytes.Load() >= t.limits.Bytes:
		return dueBytes
	case t.OpenBatch.Allocated.Load() >= b.room.tableLimit(), b.sealForMemory == t:
		return dueMemory
	case !empty && age >= t.limits.Every:
		return dueAge
	case empty && (age >= positionsEvery || openOffsets(t) >= positionsOffsets):
		return duePositions
	}
	return ""
}

// pausedOpen reports whether a paused claim has records in the open batch.
func pausedOpen(t *tableState) bool {
	for _, c := range t.claims {
		if c.isPaused() && c.next > c.from {
			return true
		}
	}
	return false
}

// finishingOpen reports whether a claim in state finishing has records in the open batch.
func finishingOpen(t *tableState) bool {
	for _, c := range t.claims {
		if c.state == finishing && c.next > c.from {
			return true
		}
	}
	return false
}

// openOffsets returns the number of offsets that the open batch covers.
func openOffsets(t *tableState) (n int64) {
	for _, c := range t.claims {
		n += c.next - c.from
	}
	return n
}

// seal seals the open batch of a table: it enqueues a barrier to all lanes, after the records enqueued so far. If no
// claim of the table has offsets in the batch, seal makes the lanes drop it instead.
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
	t.answerFlush(barrier)
	b.Metrics.sealed.WithLabelValues(reason).Inc()
	b.Logger.Debug("batch sealed", "table", t.name, "batch_id", barrier.ID, "reason", reason, "partitions", len(claims))
}

// dropOpen makes each lane drop its part of the open batch of a table.
func (b *batcher) dropOpen(t *tableState) {
	for _, l := range b.lanes {
		l.Discard(&t.Table)
	}
}

// untilDue returns the time until a batch is due because of its age, at least a millisecond and at most showEvery.
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

// dropAll drops the open batch of a table and its sealed batch. The writer releases the memory of the sealed one.
func (b *batcher) dropAll(t *tableState) {
	barrier := t.sealed
	if barrier != nil {
		b.Logger.Debug("sealed batch dropped", "table", t.name, "batch_id", barrier.ID)
	}
	t.sealed, t.opened, t.comparing = nil, time.Time{}, false
	t.writer.Requests.Abandon(barrier)
	b.dropOpen(t)
}
