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

	pressed *tableState // to close for want of memory
	batches uint64      // closed so far
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

func cutReasons() []string {
	return []string{dueDrain, dueCurrent, duePause, dueFailure, dueRetry, dueRows, dueBytes, dueMemory, dueAge, duePositions}
}

// due says why the batch of a table should be cut now, or "".
func (b *batcher) due(t *tableState) string {
	if t.cutting != nil || t.opened.IsZero() {
		return ""
	}
	records, age := t.Filled.Records(), time.Since(t.opened)
	empty := records == 0 && t.Filled.Queued.Load() == 0 && !heldOpen(t)
	switch {
	case b.draining:
		return dueDrain
	case b.UntilCurrent && b.current.reached():
		return dueCurrent
	case pausedOpen(t):
		return duePause
	case t.Filled.Failed.Load() > 0:
		return dueFailure
	case t.there():
		return dueRetry
	case records >= t.limits.Rows:
		return dueRows
	case t.Filled.Bytes.Load() >= t.limits.Bytes:
		return dueBytes
	case t.Filled.Held.Load() >= b.room.batchShare(), b.pressed == t:
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

// heldOpen tells whether a claim that holds waits for what it read before to settle.
func heldOpen(t *tableState) bool {
	for _, c := range t.claims {
		if c.state == settling && c.next > c.from {
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

// cut closes the batch of a table: a marker through all lanes, behind everything handed over.
func (b *batcher) cut(t *tableState, reason string) {
	claims := map[connector.Partition]plan.Span{}
	for p, c := range t.claims {
		if c.next > c.from {
			claims[p] = plan.Span{Session: c.session, From: c.from, Next: c.next, Epoch: c.epoch, Earlier: c.earlier}
			c.from, c.earlier = c.next, nil
		}
	}
	t.opened, t.again = time.Time{}, nil
	if len(claims) == 0 {
		b.dropOpen(t)
		return
	}
	b.batches++
	open := lane.NewSealed(fmt.Sprintf("%s-%d", b.Member, b.batches), claims, len(b.lanes))
	for _, l := range b.lanes {
		l.Mark(&t.Table, open)
	}
	t.cutting = open
	t.writer.Requests.Write(open)
	b.Metrics.cuts.WithLabelValues(reason).Inc()
	b.Logger.Debug("cut", "table", t.name, "batch_id", open.ID, "reason", reason, "partitions", len(claims))
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
		if !t.opened.IsZero() && t.cutting == nil {
			if due := t.opened.Add(t.limits.Every); due.After(now) && due.Before(next) {
				next = due
			}
		}
	}
	return max(next.Sub(now), time.Millisecond)
}

// dropAll drops the batch that fills and the cut behind which nothing can follow any more.
func (b *batcher) dropAll(t *tableState) {
	open := t.cutting
	if open != nil {
		b.Logger.Debug("cut dropped", "table", t.name, "batch_id", open.ID)
	}
	t.cutting, t.opened, t.looking = nil, time.Time{}, false
	t.writer.Requests.Abandon(open)
	b.dropOpen(t)
}
