package intake

import (
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/commit"
	"sluice/reliability/hold"
)

// outcomes applies the results that the tables' writers report ([commit.Outcome]) to the tables and claims of the
// reader.
type outcomes struct {
	*base

	holds      *holds
	fetches    *fetches
	batcher    *batcher
	assignment *assignment
	current    *untilCurrent
}

// handle applies one outcome. It ignores the outcome of a batch that the reader has dropped in the meantime.
func (oc *outcomes) handle(o commit.Outcome) {
	t := oc.assignment.tableOf(o.Writer)
	if t == nil {
		return // the table was removed
	}
	if o.Schema != nil {
		t.schema = o.Schema
	}
	if o.Barrier != nil && o.Barrier != t.sealed {
		return // the batch was dropped, and its claims have resumed since
	}
	switch o.Kind {
	case commit.Committed:
		oc.committed(t, o)
	case commit.Dropped:
		oc.dropped(t, o)
	case commit.Failed:
		oc.failed(t, o)
	case commit.Resumed:
		for p, f := range o.Resumed {
			if c, ok := oc.claims[p]; ok && c.session == f.Session {
				oc.resumed(c, f)
			}
		}
	case commit.Compared:
		t.comparing = false
	case commit.Measured:
		oc.current.measured(t, o)
	}
}

// batchAttrs returns log attributes for the sealed batch that an outcome is about.
func batchAttrs(o *commit.Outcome) []any {
	if o.Barrier == nil {
		return nil
	}
	return []any{"batch_id", o.Barrier.ID}
}

// committed applies a successful commit. It holds the claims that have a hold in the plan, because of a bad record or a
// flood. It ends the sessions of the claims whose records failed locally.
func (oc *outcomes) committed(t *tableState, o commit.Outcome) {
	p := o.Plan
	claims, batch := t.sealed.Claims, t.sealed.ID
	t.sealed = nil
	for _, c := range t.claims {
		c.laneProgress.ClearSealed()
		if c.state == finishing && c.next == c.from {
			oc.holds.enter(c, held)
		}
	}
	for partition, span := range p.Next {
		c, ours := oc.claims[partition]
		if !ours {
			continue // another member has the claim now, and resumes from the table
		}
		oc.Offsets.note(partition, connector.GroupOffset{Next: span.Next, Epoch: span.Epoch}, batch)
		if c.session == span.Session {
			c.position, c.positionEpoch = span.Next, span.Epoch
			c.oldestUncommitted, c.newestCommitted = 0, max(c.newestCommitted, p.Newest[partition])
		}
	}
	if len(p.Next) > 0 {
		oc.holds.releaseProvisionalHolds(t)
		if len(t.behind) > 0 {
			t.measured = time.Time{} // the commit has moved positions, so the last measurement is outdated
		}
	}
	for _, h := range p.Holds {
		if c, ours := oc.claims[h.Partition]; ours && c.session == claims[h.Partition].Session {
			c.position = h.Offset
			oc.holds.endSession(c)
			c.oldestUncommitted = p.HoldTimestamps[h.Partition]
			oc.holds.hold(c, h, "batch_id", batch)
		}
	}
	var again []*claim
	for p, l := range o.Leaves {
		if c, ours := oc.claims[p]; ours && c.session == l.Session {
			if !oc.holds.leaveBatch(c, l) {
				again = append(again, c)
			}
		}
	}
	if len(again) > 0 {
		oc.holds.requestResume(t, again...)
	}
}

// dropped drops the sealed batch and the open one, because another writer moved positions, the commit failed, or its
// outcome is unknown. The claims of the table resume at their positions in the table (those whose records failed may
// have to wait first), or are lost if there is no generation. If the batch is to be retried (o.Again), the next batch
// is due once the same offsets have been read again.
func (oc *outcomes) dropped(t *tableState, o commit.Outcome) {
	oc.logDropped(t, &o)
	oc.batcher.dropAll(t)
	if t.refetch = nil; o.Again {
		for p, span := range o.Barrier.Claims {
			if _, leaves := o.Leaves[p]; !leaves {
				t.refetchUntil(p, span.Next)
			}
		}
	}
	var again []*claim
	for _, c := range t.claims {
		if !oc.joined && oc.assigned { // without a generation, a fence means that another member works on the claims
			oc.assignment.lose(c)
			continue
		}
		if l, leaves := o.Leaves[c.Partition]; leaves && l.Session == c.session && oc.holds.leaveBatch(c, l) {
			continue
		}
		oc.holds.endSession(c)
		again = append(again, c)
	}
	oc.holds.requestResume(t, again...)
}

// logDropped logs why the records of a batch are dropped, unless the writer has logged it. It counts a fence only if
// the error has the class Fenced: another writer has moved a position or changed the table.
func (oc *outcomes) logDropped(t *tableState, o *commit.Outcome) {
	attrs := append([]any{"table", t.name, "err", o.Err}, batchAttrs(o)...)
	switch {
	case classify.Of(o.Err) == classify.Fenced:
		oc.Metrics.fenced.Inc()
		oc.Logger.Warn("FENCED: dropping uncommitted records; claims resume from the table", attrs...)
	case !o.Broken:
		oc.Logger.Warn("dropping uncommitted records; claims resume from the table", attrs...)
	}
}

// failed holds all claims of a table that cannot be written. If a commit has found this, only a commit can end the
// holds, because a table that can be read may still refuse commits.
func (oc *outcomes) failed(t *tableState, o commit.Outcome) {
	reason, detail, _ := hold.Of(o.Err)
	oc.batcher.dropAll(t)
	for _, c := range t.claims {
		oc.holds.endSession(c)
		if c.isPaused() && oc.Decisions.Paused(c.Partition) != nil {
			oc.holds.enter(c, held)
			continue // a pause is shown rather than this hold
		}
		oc.holds.hold(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.position}, batchAttrs(&o)...)
		if o.Barrier != nil {
			_, in := o.Barrier.Claims[c.Partition]
			c.ends, c.inFailedCommit = byCommit, c.inFailedCommit || in
		}
	}
}

// resumed begins to read a claim at the position that the writer has found, or holds it. It ignores the result if the
// claim does not wait for its position any more.
func (oc *outcomes) resumed(c *claim, f commit.Found) {
	if !c.state.awaitsPosition() {
		return
	}
	if f.Bounds != (connector.Bounds{}) { // if Kafka returned no bounds, the known ones are a better estimate for the lag
		c.bounds = f.Bounds
	}
	moved := false
	if f.At.Partition == c.Partition {
		moved = c.position >= 0 && f.At.Next != c.position
		c.inFailedCommit = c.inFailedCommit && !moved
		if moved {
			c.oldestUncommitted = 0 // these records are in the table or were skipped by others, or will be read again
		}
		c.position, c.positionEpoch = f.At.Next, f.At.Epoch
	}
	if h := oc.Decisions.Paused(c.Partition); h != nil {
		oc.holds.pause(c, h)
		return
	}
	if f.Hold != nil {
		oc.holds.hold(c, *f.Hold)
		return
	}
	if moved && c.hold == nil {
		if c.fences++; c.fences >= 3 {
			c.fences, c.unmovedChecks, c.unmovedAt = 0, 0, f.At.Next
			oc.holds.hold(c, hold.Hold{Reason: hold.Contested, Detail: "this position was moved three times between commits of this member", Offset: f.At.Next})
			return
		}
	}
	if c.target < 0 {
		c.target = f.Bounds.LastStable
	}
	if f.OffsetDiffers {
		oc.Offsets.note(c.Partition, connector.GroupOffset{Next: f.At.Next, Epoch: f.At.Epoch}, "")
	}
	if c.hold != nil && !oc.holds.maySucceed(c, f) {
		oc.holds.enter(c, held)
		return
	}
	if c.hold != nil && (c.ends == byCheck || c.ends == byRecord && moved) {
		oc.holds.release(c)
	}
	// The position is after the start of the log, so a record was read before it, whose epoch is unknown.
	if f.At.Epoch < 0 && f.At.Next > f.Bounds.LogStart {
		oc.Metrics.unchecked.Inc()
	}
	oc.holds.endSession(c)
	oc.fetches.startReading(c, f.At)
	oc.holds.forgetFailedCommits(c.table)
}
