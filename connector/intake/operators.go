package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/reliability/hold"
)

// applyDecisions applies pauses, requested checks and requested flushes of operators, at most once in showEvery.
func (hs *holds) applyDecisions() {
	if now := time.Now(); now.Sub(hs.appliedAt) >= showEvery {
		hs.appliedAt = now
		hs.applyPauses()
		hs.applyRechecks(now)
		hs.applyFlushes(now)
	}
}

// applyRechecks makes the check of a claim due at once if an operator has requested it. It also makes the comparison of
// the claim's table due.
func (hs *holds) applyRechecks(now time.Time) {
	for _, c := range hs.claims {
		asked := hs.Decisions.Rechecks(c.Partition)
		if asked == c.rechecks {
			continue
		}
		c.rechecks = asked
		if c.hold == nil || c.hold.Reason != hold.Contested { // an additional check would release a contested claim too early
			c.nextCheck, c.table.nextCompare = now, now
		}
	}
}

// applyFlushes notes the requests of operators to commit the batches of tables now; sealIfDue seals them in the same
// turn.
func (hs *holds) applyFlushes(now time.Time) {
	for _, c := range hs.claims {
		asked := hs.Decisions.Flushes(c.Partition)
		if asked > c.flushesBefore && asked > c.table.flush.Request {
			c.table.flush = connector.Flush{Table: c.table.name, Request: asked, State: connector.FlushWaits, At: now}
		}
	}
}

// answerFlush answers a requested flush: with the batch that was sealed, which has all that was enqueued by now, or with
// nil if nothing waits.
func (t *tableState) answerFlush(sealed *lane.Barrier) {
	if t.flush.State != connector.FlushWaits {
		return
	}
	t.flush.At, t.flush.State = time.Now(), connector.FlushNothing
	if sealed == nil {
		return
	}
	t.flush.State, t.flush.Batch, t.flush.Partitions = connector.FlushSealed, sealed.ID, len(sealed.Claims)
	for _, span := range sealed.Claims {
		t.flush.Offsets += span.Next - span.From
	}
}

// applyPauses holds the claims that an operator has paused, and resumes those that are no longer paused.
func (hs *holds) applyPauses() {
	again := map[*tableState][]*claim{}
	for _, c := range hs.claims {
		switch h := hs.Decisions.Paused(c.Partition); {
		case c.state == resuming: // the claim waits for its position first
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

// pause holds a claim for an operator. If the claim is read, the hold is at the offset after its enqueued records,
// which are still committed; otherwise it is at the position.
func (hs *holds) pause(c *claim, h *hold.Hold) {
	pause := *h
	pause.Offset = c.position
	if c.state.reads() {
		pause.Offset = c.next
	}
	c.ends = byCheck
	hs.hold(c, pause)
}

// isPaused reports whether an operator's pause holds the claim.
func (c *claim) isPaused() bool { return c.hold != nil && c.hold.Reason == hold.Paused }
