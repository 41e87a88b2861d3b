package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/plan"
	"sluice/reliability/hold"
)

// heard acts on what a writer says.
func (r *Reader) heard(o commit.Outcome) {
	t := r.tableOf(o.Writer)
	if t == nil {
		return // it was retired
	}
	if o.Schema != nil {
		t.schema = o.Schema
	}
	if o.Cut != nil && o.Cut != t.cutting {
		return // a fence came in between: its claims have resumed behind it, wherever it ended
	}
	switch o.Kind {
	case commit.Settled:
		r.settled(t, o.Plan)
	case commit.Fenced:
		r.fenced(t, o)
	case commit.Failed:
		r.failed(t, o)
	case commit.Resumed:
		for p, f := range o.Resumed {
			if c, ok := r.claims[p]; ok && c.session == f.Session {
				r.resumed(c, f)
			}
		}
	case commit.Looked:
		t.looking = false
	case commit.Measured:
		r.measured(t, o)
	}
}

// batchOf names the cut that an outcome is about, for log lines.
func batchOf(o *commit.Outcome) []any {
	if o.Cut == nil {
		return nil
	}
	return []any{"batch_id", o.Cut.ID}
}

// settled notes what is in the table now.
func (r *Reader) settled(t *tableState, p *plan.Plan) {
	cut, batch := t.cutting.Claims, t.cutting.ID
	t.cutting = nil
	for _, c := range t.claims {
		c.trail.Settled()
		if c.state == settling && c.next == c.from {
			r.enter(c, held)
		}
	}
	for partition, span := range p.Next {
		c, ours := r.claims[partition]
		if !ours {
			continue // its new owner resumes where we left the table
		}
		r.Offsets.note(partition, connector.GroupOffset{Next: span.Next, Epoch: span.Epoch}, batch)
		if c.session == span.Session {
			c.position, c.positionEp = span.Next, span.Epoch
			c.owed, c.newest = 0, max(c.newest, p.Newest[partition])
		}
	}
	if len(p.Next) > 0 {
		r.proved(t)
		if len(t.behind) > 0 {
			t.measured = time.Time{} // what was measured is old now
		}
	}
	for _, h := range p.Holds {
		if c, ours := r.claims[h.Partition]; ours && c.session == cut[h.Partition].Session {
			c.position = h.Offset
			r.end(c)
			c.owed = p.Owed[h.Partition]
			r.stand(c, h, "batch_id", batch)
		}
	}
}

// proved ends what a won commit disproves.
func (r *Reader) proved(t *tableState) {
	for _, c := range t.claims {
		if c.fences = 0; c.state == proving {
			r.release(c)
		}
	}
}

// absolve ends what a commit found if nothing of it is left: the records were lost with their claims, or somebody else took
// the positions past them. No commit might come to disprove it.
func (r *Reader) absolve(t *tableState) {
	for _, c := range t.claims {
		if c.witness {
			return
		}
	}
	for _, c := range t.claims {
		if c.state == proving {
			r.release(c)
		}
		if c.hold != nil {
			c.ends = endOf(c.hold.Reason)
		}
	}
}

// fenced drops the cut and everything behind it. Positions moved, or nobody knows whether they did: all claims of the
// table resume from the log.
func (r *Reader) fenced(t *tableState, o commit.Outcome) {
	if !o.Broken {
		r.Metrics.fenced.Inc()
		r.Logger.Warn("FENCED: everything read and not committed is dropped, its claims resume from the table",
			append([]any{"table", t.name, "err", o.Err}, batchOf(&o)...)...)
	}
	r.dropAll(t)
	if t.again = nil; o.Again {
		t.again = map[connector.Partition]int64{}
		for p, span := range o.Cut.Claims {
			t.again[p] = span.Next
		}
	}
	var again []*claim
	for _, c := range t.claims {
		if !r.joined && r.assigned { // no generation and a fence: somebody else works on them
			r.lose(c)
			continue
		}
		r.end(c)
		again = append(again, c)
	}
	r.ask(t, again...)
}

// failed holds all claims of a table that cannot be written. If it was a commit that said so, only a commit can take it
// back: that the table can be read proves nothing.
func (r *Reader) failed(t *tableState, o commit.Outcome) {
	reason, detail, _ := hold.Of(o.Err)
	r.dropAll(t)
	for _, c := range t.claims {
		r.end(c)
		if c.isPaused() && r.Decisions.Paused(c.Partition) != nil {
			r.enter(c, held)
			continue // nobody tries for it
		}
		r.stand(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.position}, batchOf(&o)...)
		if o.Cut != nil {
			_, in := o.Cut.Claims[c.Partition]
			c.ends, c.witness = byCommit, c.witness || in
		}
	}
}

// dropAll drops the batch that fills and the cut behind which nothing can follow any more.
func (r *Reader) dropAll(t *tableState) {
	open := t.cutting
	if open != nil {
		r.Logger.Debug("cut dropped", "table", t.name, "batch_id", open.ID)
	}
	t.cutting, t.opened, t.looking = nil, time.Time{}, false
	t.writer.Requests.Abandon(open)
	r.dropOpen(t)
}

// resumed starts a claim where the table stands, or holds it.
func (r *Reader) resumed(c *claim, f commit.Found) {
	if !c.state.asked() {
		return
	}
	if f.Bounds != (connector.Bounds{}) { // else nobody asked, or was answered: what was known is the better guess at the lag
		c.bounds = f.Bounds
	}
	moved := false
	if f.At.Partition == c.Partition {
		moved = c.position >= 0 && f.At.Next != c.position
		c.witness = c.witness && !moved
		if moved {
			c.owed = 0 // others brought it to the table, or nobody will
		}
		c.position, c.positionEp = f.At.Next, f.At.Epoch
	}
	if h := r.Decisions.Paused(c.Partition); h != nil {
		r.pause(c, h)
		return
	}
	if f.Hold != nil {
		r.stand(c, *f.Hold)
		return
	}
	if moved && c.hold == nil {
		if c.fences++; c.fences >= 3 {
			c.fences, c.quiet, c.quietAt = 0, 0, f.At.Next
			r.stand(c, hold.Hold{Reason: hold.Contested, Detail: "others moved this position three times between our commits", Offset: f.At.Next})
			return
		}
	}
	if c.target < 0 {
		c.target = f.Bounds.LastStable
	}
	if f.Mend {
		r.Offsets.note(c.Partition, connector.GroupOffset{Next: f.At.Next, Epoch: f.At.Epoch}, "")
	}
	if c.hold != nil && !r.maySucceed(c, f) {
		r.enter(c, held)
		return
	}
	if c.hold != nil && (c.ends == byCheck || c.ends == byRecord && moved) {
		r.release(c)
	}
	if f.At.Epoch < 0 && f.At.Next > f.Bounds.LogStart { // else nothing was read before it
		r.Metrics.unchecked.Inc()
	}
	r.end(c)
	r.begin(c, f.At)
	r.absolve(c.table)
}

// maySucceed tells whether a held claim may be read again. The hold is shown until records flow.
func (r *Reader) maySucceed(c *claim, f commit.Found) bool {
	switch c.hold.Reason {
	case hold.Poison:
		return f.At.Next != c.hold.Offset // the same bytes would fail again
	case hold.Flood:
		return f.At.Next != c.hold.Offset || r.Decisions.FloodAllowed(c.Topic) // the same batch would be judged again
	case hold.AheadOfLogEnd, hold.Truncated:
		// That the log reaches the position now proves nothing: other records may have taken the place of those that were
		// read. Only the epoch tells, or an operator.
		return f.At.Next != c.hold.Offset || f.At.Epoch >= 0
	case hold.Contested:
		if c.quiet++; f.At.Next != c.quietAt {
			c.quiet, c.quietAt = 0, f.At.Next
		}
		if c.quiet < 2 {
			c.hold.Offset = f.At.Next
			return false
		}
	default: // the finding is gone, or only reading on can tell
	}
	return true
}

// floodPasses reports whether an operator lets pass what a claim holds for.
func (r *Reader) floodPasses(c *claim) bool {
	return c.hold.Reason == hold.Flood && r.Decisions.FloodAllowed(c.Topic)
}

// check has held claims and idle ones compared with the table from time to time.
func (r *Reader) check(t *tableState) {
	now := time.Now()
	var again []*claim
	for _, c := range t.claims {
		if c.state == held && (r.floodPasses(c) || !now.Before(c.checks)) {
			c.checks = now.Add(c.checkEvery())
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		r.ask(t, again...)
	}
	if t.checks.IsZero() {
		t.checks = now.Add(recheck)
	}
	if now.Before(t.checks) || t.looking {
		return
	}
	t.checks = now.Add(recheck)
	expected := map[connector.Partition]int64{}
	for p, c := range t.claims {
		if c.state.reads() && c.next == c.from && !t.cuts(p) {
			expected[p] = c.from
		}
	}
	if len(expected) > 0 {
		t.looking = true
		t.writer.Requests.Compare(expected)
	}
}
