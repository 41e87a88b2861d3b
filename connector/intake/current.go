package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/commit"
)

// current says when a run until current is done: the tables have what the topics held at the start, or hold.
type current struct{ *base }

// reached tells whether every claim was read to where the topics ended at the start, or holds.
func (u *current) reached() bool {
	if !u.joined || u.backpressure.Queued.Load() > 0 {
		return false
	}
	for _, c := range u.claims {
		if c.hold == nil && (c.target < 0 || c.next < c.target) {
			return false
		}
	}
	return true
}

// current tells whether an until-current run is done.
func (u *current) done() bool {
	if !u.UntilCurrent || !u.reached() {
		return false
	}
	for _, t := range u.tables {
		if t.sealed != nil || t.OpenBatch.Records() > 0 {
			return false
		}
	}
	holds := false
	for _, c := range u.claims {
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
	for _, t := range u.tables {
		if u.complete(t) {
			continue
		}
		if all = false; !t.measuring && time.Since(t.measured) >= u.measureEvery() {
			t.measure()
		}
	}
	return all
}

// complete tells whether a table was once seen to have everything: the ends are those of the start, so it has it for good.
// What is paused and not ours will not come, whoever works on it, and is left.
func (u *current) complete(t *tableState) bool {
	if t.measured.IsZero() || t.behind == nil {
		return false
	}
	t.left = nil
	for _, at := range t.behind {
		h := u.Decisions.Paused(at.Partition)
		if _, ours := u.claims[at.Partition]; h == nil || ours {
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
func (u *current) measureEvery() time.Duration {
	return max(time.Second, time.Duration(len(u.tables))*10*time.Millisecond)
}

// measured notes how far the whole table is.
func (u *current) measured(t *tableState, o commit.Outcome) {
	t.measuring, t.measured = false, time.Now()
	if t.behind = o.Behind; t.behind == nil && !o.Unknown {
		t.behind = []connector.Position{}
	}
}
