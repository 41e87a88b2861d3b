package intake

import (
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// holds set the states of claims: they stop claims, ask the writers where they stand, and release them.
type holds struct {
	*base

	room *room

	sessions   uint64
	comparedAt time.Time // when the claims were last compared with what operators decided
}

// endSession ends a session: whatever carries it is dropped from now on.
func (hs *holds) endSession(c *claim) {
	hs.sessions++
	c.session = hs.sessions
	hs.Log.Forget(c.Partition)
	hs.dropQueued(c)
	if c.laneProgress != nil {
		c.oldestUncommitted = c.oldest()
	}
	c.from, c.next = c.position, c.position // nothing of the batch that fills is its any more
	c.laneProgress, c.inFlight = &lane.Progress{Began: time.Now()}, nil
}

// hold holds a claim. Its part of the batch that fills stays good: it ends before the place of the hold.
//
// said is what its line says beside: the batch that it was found in.
func (hs *holds) hold(c *claim, h hold.Hold, said ...any) {
	if c.hold == nil || c.hold.Reason != h.Reason {
		if h.Since.IsZero() {
			h.Since = time.Now()
		}
		line := []any{"topic", c.Topic, "partition", c.ID, "reason", string(h.Reason), "detail", h.Detail, "offset", h.Offset}
		if h.Reason == hold.Poison {
			line = append(line, "correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: c.Partition, Offset: h.Offset}))
		}
		h.Reason.LogFunc(hs.Logger)("HOLD", append(line, said...)...)
		hs.Metrics.holds.WithLabelValues(string(h.Reason)).Inc()
	} else {
		h.Since = c.hold.Since
	}
	h.Partition = c.Partition
	if c.hold = &h; c.ends != byCommit {
		c.ends = endOf(h.Reason)
	}
	if c.next > c.from || c.table.inSealed(c.Partition) {
		hs.enter(c, finishing)
	} else {
		hs.enter(c, held)
	}
	c.checks = time.Now().Add(c.checkEvery())
	hs.Log.Forget(c.Partition)
	hs.dropQueued(c)
}

// recheck is how often holds and idle claims are held against the table.
const recheck = time.Minute

// checkEvery is how often a held claim is compared with the table. Who is contested waits for a position that stands
// still for two commit intervals.
func (c *claim) checkEvery() time.Duration {
	switch {
	case c.hold != nil && c.hold.Reason == hold.Contested:
		return c.table.limits.Every
	case c.hold != nil && c.hold.Reason == hold.KafkaDown:
		return recheck / 2 // it passes by itself, mostly soon
	}
	return recheck
}

// leave ends the session of a claim whose records failed in our own work, and has it wait. It returns false if it need not wait. A
// claim that was stopped meanwhile stays so.
func (hs *holds) leave(c *claim, l commit.Leave) bool {
	wait := time.Now().Before(l.Until)
	hs.endSession(c)
	switch {
	case c.hold != nil && !c.state.reads():
		hs.enter(c, held)
		return true
	case wait:
		hs.enter(c, leaving)
		c.until, c.reach = l.Until, l.Next
	default:
		c.table.refetchUntil(c.Partition, l.Next)
	}
	return wait
}

// release ends a hold.
func (hs *holds) release(c *claim) {
	if c.hold == nil {
		return
	}
	hs.Logger.Info("hold ended", "topic", c.Topic, "partition", c.ID, "reason", string(c.hold.Reason), "after", time.Since(c.hold.Since).Round(time.Second))
	c.hold, c.ends, c.inFailedCommit = nil, byCheck, false
	if c.state.reads() {
		hs.enter(c, reading)
	}
}

// requestResume asks the writer where claims stand.
func (hs *holds) requestResume(t *tableState, claims ...*claim) {
	asked := make(map[connector.Partition]commit.ResumeRequest, len(claims))
	for _, c := range claims {
		if c.hold == nil {
			hs.enter(c, resuming)
		} else {
			hs.enter(c, checking)
		}
		q := commit.ResumeRequest{Session: c.session, Last: connector.Position{Partition: c.Partition, Next: c.position, Epoch: c.positionEp}, Paused: hs.Decisions.Paused(c.Partition) != nil}
		if c.hold != nil {
			q.Standing = c.hold.Reason
		}
		asked[c.Partition] = q
	}
	t.writer.Requests.Resume(asked)
}

// enter sets the state of a claim.
func (hs *holds) enter(c *claim, next state) {
	if !slices.Contains(c.state.next(), next) {
		hs.Logger.Error(IllegalTransition, "topic", c.Topic, "partition", c.ID, "from", c.state.String(), "to", next.String())
	}
	c.state = next
}

// releaseProvisionalHolds ends what a won commit disproves.
func (hs *holds) releaseProvisionalHolds(t *tableState) {
	for _, c := range t.claims {
		if c.fences = 0; c.state == proving {
			hs.release(c)
		}
	}
}

// forgetFailedCommits ends what a commit found if nothing of it is left: the records were lost with their claims, or somebody else took
// the positions past them. No commit might come to disprove it.
func (hs *holds) forgetFailedCommits(t *tableState) {
	for _, c := range t.claims {
		if c.inFailedCommit {
			return
		}
	}
	for _, c := range t.claims {
		if c.state == proving {
			hs.release(c)
		}
		if c.hold != nil {
			c.ends = endOf(c.hold.Reason)
		}
	}
}

// maySucceed tells whether a held claim may be read again. The hold is shown until records flow.
func (hs *holds) maySucceed(c *claim, f commit.Found) bool {
	switch c.hold.Reason {
	case hold.Poison:
		return f.At.Next != c.hold.Offset // the same bytes would fail again
	case hold.Flood:
		return f.At.Next != c.hold.Offset || hs.Decisions.FloodAllowed(c.Topic) // the same batch would be judged again
	case hold.AheadOfLogEnd, hold.Truncated:
		// That the log reaches the position now proves nothing: other records may have taken the place of those that were
		// read. Only the epoch tells, or an operator.
		return f.At.Next != c.hold.Offset || f.At.Epoch >= 0
	case hold.Contested:
		if c.unmovedChecks++; f.At.Next != c.unmovedAt {
			c.unmovedChecks, c.unmovedAt = 0, f.At.Next
		}
		if c.unmovedChecks < 2 {
			c.hold.Offset = f.At.Next
			return false
		}
	default: // the finding is gone, or only reading on can tell
	}
	return true
}

// floodPasses reports whether an operator lets pass what a claim holds for.
func (hs *holds) floodPasses(c *claim) bool {
	return c.hold.Reason == hold.Flood && hs.Decisions.FloodAllowed(c.Topic)
}

// checkDue has held claims and idle ones compared with the table from time to time.
func (hs *holds) checkDue(t *tableState) {
	now := time.Now()
	var again []*claim
	for _, c := range t.claims {
		switch {
		case c.state == leaving && !now.Before(c.until):
			t.refetchUntil(c.Partition, c.reach)
			again = append(again, c)
		case c.state == held && (hs.floodPasses(c) || !now.Before(c.checks)):
			c.checks = now.Add(c.checkEvery())
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		hs.requestResume(t, again...)
	}
	if t.checks.IsZero() {
		t.checks = now.Add(recheck)
	}
	if now.Before(t.checks) || t.comparing {
		return
	}
	t.checks = now.Add(recheck)
	expected := map[connector.Partition]int64{}
	for p, c := range t.claims {
		if c.state.reads() && c.next == c.from && !t.inSealed(p) {
			expected[p] = c.from
		}
	}
	if len(expected) > 0 {
		t.comparing = true
		t.writer.Requests.Compare(expected)
	}
}

// dropQueued forgets what a claim has waiting. Blocks that are in lanes stay.
func (hs *holds) dropQueued(c *claim) {
	if c.parsed != nil {
		hs.blocks.Put(c.parsed)
	}
	for _, a := range c.queue {
		a.Release()
	}
	c.queue, c.parsed, c.fetching, c.shed = nil, nil, false, 0
	hs.room.unwait(c)
}
