package connector

import "time"

// How an operator's pause stops a claim: fetching ends at once, what was read before is cut and committed, the position
// stays. A pause comes before every other hold: what is found about a paused claim only matters once it ends.

// pauses holds the claims that an operator paused since the last look, and has those looked at that may go on.
func (r *reader) pauses() {
	now := time.Now()
	if r.paused == nil || now.Sub(r.pausesSeen) < showEvery {
		return
	}
	r.pausesSeen = now
	again := map[*tableState][]*claim{}
	for _, c := range r.claims {
		switch h := r.paused(c.Partition); {
		case c.state == resuming: // it is looked at when the table has said where it stands
		case h != nil && (!c.isPaused() || h.Detail != c.hold.Detail):
			r.pause(c, h)
		case h == nil && c.isPaused() && c.next == c.from && !c.table.cuts(c.Partition): // what was read before has settled
			c.state = resuming
			again[c.table] = append(again[c.table], c)
		}
	}
	for t, claims := range again {
		r.resume(t, claims...)
	}
}

// pause holds a claim where it stands: behind what was handed over, while that waits for its commit.
func (r *reader) pause(c *claim, h *Hold) {
	pause := *h
	pause.Offset = c.position
	if c.state == reading {
		pause.Offset = c.next
	}
	c.unproven = false
	r.stand(c, pause)
}

// pausedBy returns the hold of a partition that an operator paused, or nil.
func (r *reader) pausedBy(p Partition) *Hold {
	if r.paused == nil {
		return nil
	}
	return r.paused(p)
}

// isPaused tells whether the claim is held by a pause.
func (c *claim) isPaused() bool { return c.hold != nil && c.hold.Reason == ReasonPaused }
