package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/reliability/hold"
)

// outcomes act on what writers say.
type outcomes struct {
	*base

	holds      *holds
	fetches    *fetches
	batcher    *batcher
	assignment *assignment
	current    *current
}

// handled acts on what a writer says.
func (out *outcomes) handle(o commit.Outcome) {
	t := out.assignment.tableOf(o.Writer)
	if t == nil {
		return // it was retired
	}
	if o.Schema != nil {
		t.schema = o.Schema
	}
	if o.Barrier != nil && o.Barrier != t.sealed {
		return // a fence came in between: its claims have resumed behind it, wherever it ended
	}
	switch o.Kind {
	case commit.Committed:
		out.committed(t, o)
	case commit.Fenced:
		out.fenced(t, o)
	case commit.Failed:
		out.failed(t, o)
	case commit.Resumed:
		for p, f := range o.Resumed {
			if c, ok := out.claims[p]; ok && c.session == f.Session {
				out.resumed(c, f)
			}
		}
	case commit.Compared:
		t.comparing = false
	case commit.Measured:
		out.current.measured(t, o)
	}
}

// batchOf names the cut that an outcome is about, for log lines.
func batchOf(o *commit.Outcome) []any {
	if o.Barrier == nil {
		return nil
	}
	return []any{"batch_id", o.Barrier.ID}
}

// committed notes what is in the table now.
func (out *outcomes) committed(t *tableState, o commit.Outcome) {
	p := o.Plan
	cut, batch := t.sealed.Claims, t.sealed.ID
	t.sealed = nil
	for _, c := range t.claims {
		c.laneProgress.ClearSealed()
		if c.state == finishing && c.next == c.from {
			out.holds.enter(c, held)
		}
	}
	for partition, span := range p.Next {
		c, ours := out.claims[partition]
		if !ours {
			continue // its new owner resumes where we left the table
		}
		out.Offsets.note(partition, connector.GroupOffset{Next: span.Next, Epoch: span.Epoch}, batch)
		if c.session == span.Session {
			c.position, c.positionEp = span.Next, span.Epoch
			c.oldestUncommitted, c.newestCommitted = 0, max(c.newestCommitted, p.Newest[partition])
		}
	}
	if len(p.Next) > 0 {
		out.holds.releaseProvisionalHolds(t)
		if len(t.behind) > 0 {
			t.measured = time.Time{} // what was measured is old now
		}
	}
	for _, h := range p.Holds {
		if c, ours := out.claims[h.Partition]; ours && c.session == cut[h.Partition].Session {
			c.position = h.Offset
			out.holds.endSession(c)
			c.oldestUncommitted = p.HoldTimestamps[h.Partition]
			out.holds.hold(c, h, "batch_id", batch)
		}
	}
	var again []*claim
	for p, l := range o.Leaves {
		if c, ours := out.claims[p]; ours && c.session == l.Session {
			if !out.holds.leave(c, l) {
				again = append(again, c)
			}
		}
	}
	if len(again) > 0 {
		out.holds.requestResume(t, again...)
	}
}

// fenced drops the cut and everything behind it. Positions moved, or nobody knows whether they did: all claims of the
// table resume from the log.
func (out *outcomes) fenced(t *tableState, o commit.Outcome) {
	if !o.Broken {
		out.Metrics.fenced.Inc()
		out.Logger.Warn("FENCED: everything read and not committed is dropped, its claims resume from the table",
			append([]any{"table", t.name, "err", o.Err}, batchOf(&o)...)...)
	}
	out.batcher.dropAll(t)
	if t.refetch = nil; o.Again {
		for p, span := range o.Barrier.Claims {
			if _, leaves := o.Leaves[p]; !leaves {
				t.refetchUntil(p, span.Next)
			}
		}
	}
	var again []*claim
	for _, c := range t.claims {
		if !out.joined && out.assigned { // no generation and a fence: somebody else works on them
			out.assignment.lose(c)
			continue
		}
		if l, leaves := o.Leaves[c.Partition]; leaves && l.Session == c.session && out.holds.leave(c, l) {
			continue
		}
		out.holds.endSession(c)
		again = append(again, c)
	}
	out.holds.requestResume(t, again...)
}

// failed holds all claims of a table that cannot be written. If it was a commit that said so, only a commit can take it
// back: that the table can be read proves nothing.
func (out *outcomes) failed(t *tableState, o commit.Outcome) {
	reason, detail, _ := hold.Of(o.Err)
	out.batcher.dropAll(t)
	for _, c := range t.claims {
		out.holds.endSession(c)
		if c.isPaused() && out.Decisions.Paused(c.Partition) != nil {
			out.holds.enter(c, held)
			continue // nobody tries for it
		}
		out.holds.hold(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.position}, batchOf(&o)...)
		if o.Barrier != nil {
			_, in := o.Barrier.Claims[c.Partition]
			c.ends, c.inFailedCommit = byCommit, c.inFailedCommit || in
		}
	}
}

// resumed starts a claim where the table stands, or holds it.
func (out *outcomes) resumed(c *claim, f commit.Found) {
	if !c.state.awaitsPosition() {
		return
	}
	if f.Bounds != (connector.Bounds{}) { // else nobody asked, or was answered: what was known is the better guess at the lag
		c.bounds = f.Bounds
	}
	moved := false
	if f.At.Partition == c.Partition {
		moved = c.position >= 0 && f.At.Next != c.position
		c.inFailedCommit = c.inFailedCommit && !moved
		if moved {
			c.oldestUncommitted = 0 // others brought it to the table, or nobody will
		}
		c.position, c.positionEp = f.At.Next, f.At.Epoch
	}
	if h := out.Decisions.Paused(c.Partition); h != nil {
		out.holds.pause(c, h)
		return
	}
	if f.Hold != nil {
		out.holds.hold(c, *f.Hold)
		return
	}
	if moved && c.hold == nil {
		if c.fences++; c.fences >= 3 {
			c.fences, c.unmovedChecks, c.unmovedAt = 0, 0, f.At.Next
			out.holds.hold(c, hold.Hold{Reason: hold.Contested, Detail: "others moved this position three times between our commits", Offset: f.At.Next})
			return
		}
	}
	if c.target < 0 {
		c.target = f.Bounds.LastStable
	}
	if f.OffsetDiffers {
		out.Offsets.note(c.Partition, connector.GroupOffset{Next: f.At.Next, Epoch: f.At.Epoch}, "")
	}
	if c.hold != nil && !out.holds.maySucceed(c, f) {
		out.holds.enter(c, held)
		return
	}
	if c.hold != nil && (c.ends == byCheck || c.ends == byRecord && moved) {
		out.holds.release(c)
	}
	if f.At.Epoch < 0 && f.At.Next > f.Bounds.LogStart { // else nothing was read before it
		out.Metrics.unchecked.Inc()
	}
	out.holds.endSession(c)
	out.fetches.begin(c, f.At)
	out.holds.forgetFailedCommits(c.table)
}
