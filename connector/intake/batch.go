package intake

import (
	"context"
	"fmt"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/reliability/pulse"
)

// full tells whether the batch that fills is as large as a commit may be.
func (r *Reader) full(t *tableState) bool {
	return t.Filled.Records() >= t.limits.Rows || t.Filled.Bytes.Load() >= t.limits.Bytes ||
		t.Filled.Held.Load() >= r.batchShare() || t.cutting != nil && r.crowding(t)
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
func (r *Reader) due(t *tableState) string {
	if t.cutting != nil || t.opened.IsZero() {
		return ""
	}
	records, age := t.Filled.Records(), time.Since(t.opened)
	empty := records == 0 && t.Filled.Queued.Load() == 0 && !heldOpen(t)
	switch {
	case r.draining:
		return dueDrain
	case r.UntilCurrent && r.reached():
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
	case t.Filled.Held.Load() >= r.batchShare(), r.pressed == t:
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
func (r *Reader) cut(t *tableState, reason string) {
	claims := map[connector.Partition]plan.Span{}
	for p, c := range t.claims {
		if c.next > c.from {
			claims[p] = plan.Span{Session: c.session, From: c.from, Next: c.next, Epoch: c.epoch, Earlier: c.earlier}
			c.from, c.earlier = c.next, nil
		}
	}
	t.opened, t.again = time.Time{}, nil
	if len(claims) == 0 {
		r.dropOpen(t)
		return
	}
	r.batches++
	open := lane.NewSealed(fmt.Sprintf("%s-%d", r.Member, r.batches), claims, len(r.lanes))
	for _, l := range r.lanes {
		l.Mark(&t.Table, open)
	}
	t.cutting = open
	t.writer.Requests.Write(open)
	r.Metrics.cuts.WithLabelValues(reason).Inc()
	r.Logger.Debug("cut", "table", t.name, "batch_id", open.ID, "reason", reason, "partitions", len(claims))
}

// dropOpen tells the lanes to drop what they hold for a table.
func (r *Reader) dropOpen(t *tableState) {
	for _, l := range r.lanes {
		l.Discard(&t.Table)
	}
}

// reached tells whether every claim was read to where the topics ended at the start, or holds.
func (r *Reader) reached() bool {
	if !r.joined || r.valve.Queued.Load() > 0 {
		return false
	}
	for _, c := range r.claims {
		if c.hold == nil && (c.target < 0 || c.next < c.target) {
			return false
		}
	}
	return true
}

// current tells whether an until-current run is done.
func (r *Reader) current() bool {
	if !r.UntilCurrent || !r.reached() {
		return false
	}
	for _, t := range r.tables {
		if t.cutting != nil || t.Filled.Records() > 0 {
			return false
		}
	}
	holds := false
	for _, c := range r.claims {
		if c.hold == nil && c.position < c.target {
			return false
		}
		holds = holds || c.hold != nil
	}
	if holds {
		return true // it will say so
	}
	// Our claims are there. A table is current only if everybody's are: what a dead member had comes to us soon.
	all := true
	for _, t := range r.tables {
		if r.complete(t) {
			continue
		}
		if all = false; !t.measuring && time.Since(t.measured) >= r.measureEvery() {
			t.measure()
		}
	}
	return all
}

// complete tells whether a table was once seen to have everything: the ends are those of the start, so it has it for good.
// What is paused and not ours will not come, whoever works on it, and is left.
func (r *Reader) complete(t *tableState) bool {
	if t.measured.IsZero() || t.behind == nil {
		return false
	}
	t.left = nil
	for _, at := range t.behind {
		h := r.Decisions.Paused(at.Partition)
		if _, ours := r.claims[at.Partition]; h == nil || ours {
			return false
		}
		left := *h
		left.Partition, left.Offset = at.Partition, at.Next
		t.left = append(t.left, left)
	}
	return true
}

// measureEvery is how often a run until current looks at a table for what others have to bring to it. With many tables
// it is less often: each look reads a table's log.
func (r *Reader) measureEvery() time.Duration {
	return max(time.Second, time.Duration(len(r.tables))*10*time.Millisecond)
}

// measured notes how far the whole table is.
func (r *Reader) measured(t *tableState, o commit.Outcome) {
	t.measuring, t.measured = false, time.Now()
	if t.behind = o.Behind; t.behind == nil && !o.Unknown {
		t.behind = []connector.Position{}
	}
}

// untilDue is when something becomes due by time alone.
func (r *Reader) untilDue() time.Duration {
	now := time.Now()
	next := now.Add(showEvery)
	for _, t := range r.tables {
		if !t.opened.IsZero() && t.cutting == nil {
			if due := t.opened.Add(t.limits.Every); due.After(now) && due.Before(next) {
				next = due
			}
		}
	}
	return max(next.Sub(now), time.Millisecond)
}

// drain ends the work: no more fetching, one last cut of what was handed over, its commit, the group offsets. Whatever
// is left at the end of the time is dropped, which only means that it is read again.
func (r *Reader) drain(ctx context.Context) {
	began := time.Now()
	r.draining = true
	for _, t := range r.tables {
		t.writer.Requests.Haste()
	}
	for _, c := range r.claims {
		r.Log.Forget(c.Partition)
		r.drop(c)
	}
	end := time.NewTimer(r.Drain)
	defer end.Stop()
	turn := time.NewTicker(showEvery)
	defer turn.Stop()
	for busy := true; busy; {
		busy = false
		r.loop.Turn()
		for _, t := range r.tables {
			if reason := r.due(t); reason != "" {
				r.cut(t, reason)
			}
			busy = busy || t.cutting != nil
		}
		r.shown = time.Time{}
		r.show()
		if !busy {
			break
		}
		select {
		case o := <-r.outcomes:
			r.heard(o)
		case <-r.assignments:
		case f := <-r.Log.Fetched():
			lane.NewAnswer(f).Leave()
		case <-r.progress:
		case <-turn.C:
		case <-end.C:
			r.Logger.WarnContext(ctx, "drain: time is over, the open batch is dropped and will be read again", "after", r.Drain)
			return
		}
	}
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(r.Drain-time.Since(began), time.Second))
	defer cancel()
	r.Offsets.flush(pulse.With(left, r.loop))
	r.Logger.InfoContext(ctx, "drained", "after", time.Since(began).Round(time.Millisecond))
}
