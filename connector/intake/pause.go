package intake

import (
	"time"

	"sluice/reliability/hold"
)

// How an operator's pause stops a claim: fetching ends at once, what was read before is cut and committed, the position
// stays. A pause comes before every other hold: what is found about a paused claim only matters once it ends.

// wishes does what operators wanted since the last time: it pauses and resumes claims, and makes checks due.
func (r *Reader) wishes() {
	if now := time.Now(); now.Sub(r.wishesSeen) >= showEvery {
		r.wishesSeen = now
		r.pauses()
		r.rechecks(now)
	}
}

// rechecks makes the checks due of claims that an operator asks to check.
func (r *Reader) rechecks(now time.Time) {
	for _, c := range r.claims {
		asked := r.Decisions.Rechecks(c.Partition)
		if asked == c.rechecks {
			continue
		}
		c.rechecks = asked
		if c.hold == nil || c.hold.Reason != hold.Contested { // which counts its checks
			c.checks, c.table.checks = now, now
		}
	}
}

// pauses holds the claims that an operator paused, and resumes those that are no longer paused.
func (r *Reader) pauses() {
	again := map[*tableState][]*claim{}
	for _, c := range r.claims {
		switch h := r.Decisions.Paused(c.Partition); {
		case c.state == resuming: // the answer is looked at first
		case h != nil && (!c.isPaused() || h.Detail != c.hold.Detail):
			r.pause(c, h)
		case h == nil && c.isPaused() && c.state != settling:
			again[c.table] = append(again[c.table], c)
		}
	}
	for t, claims := range again {
		r.ask(t, claims...)
	}
}

// pause holds a claim where it stands: behind what was handed over, while that waits for its commit.
func (r *Reader) pause(c *claim, h *hold.Hold) {
	pause := *h
	pause.Offset = c.position
	if c.state.reads() {
		pause.Offset = c.next
	}
	c.ends = byCheck
	r.stand(c, pause)
}

// isPaused tells whether the claim is held by a pause.
func (c *claim) isPaused() bool { return c.hold != nil && c.hold.Reason == hold.Paused }
