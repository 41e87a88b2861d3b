package intake

import (
	"time"

	"sluice/reliability/hold"
)

// wishes does what operators wanted since the last time: it pauses and resumes claims, and makes checks due.
func (hs *holds) wishes() {
	if now := time.Now(); now.Sub(hs.comparedAt) >= showEvery {
		hs.comparedAt = now
		hs.pauses()
		hs.rechecks(now)
	}
}

// rechecks makes the checks due of claims that an operator asks to check.
func (hs *holds) rechecks(now time.Time) {
	for _, c := range hs.claims {
		asked := hs.Decisions.Rechecks(c.Partition)
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
func (hs *holds) pauses() {
	again := map[*tableState][]*claim{}
	for _, c := range hs.claims {
		switch h := hs.Decisions.Paused(c.Partition); {
		case c.state == resuming: // the answer is looked at first
		case h != nil && (!c.isPaused() || h.Detail != c.hold.Detail):
			hs.pause(c, h)
		case h == nil && c.isPaused() && c.state != finishing:
			again[c.table] = append(again[c.table], c)
		}
	}
	for t, claims := range again {
		hs.requestResume(t, claims...)
	}
}

// pause holds a claim where it stands: behind what was handed over, while that waits for its commit.
func (hs *holds) pause(c *claim, h *hold.Hold) {
	pause := *h
	pause.Offset = c.position
	if c.state.reads() {
		pause.Offset = c.next
	}
	c.ends = byCheck
	hs.hold(c, pause)
}

// isPaused tells whether the claim is held by a pause.
func (c *claim) isPaused() bool { return c.hold != nil && c.hold.Reason == hold.Paused }
