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

// holds sets the states of claims: it stops them, requests their positions from the writers, and releases them.
type holds struct {
	*base

	room *room

	sessions  uint64
	appliedAt time.Time // when the decisions of operators were last applied
}

// endSession gives a claim a new session, from its position in the table on. It cancels the request and drops the fetch
// results; blocks and rows that carry the old session are dropped later.
func (hs *holds) endSession(c *claim) {
	hs.sessions++
	c.session = hs.sessions
	hs.Log.Forget(c.Partition)
	hs.dropQueued(c)
	if c.laneProgress != nil {
		c.oldestUncommitted = c.oldest()
	}
	c.from, c.next = c.position, c.position // the claim has no records in the open batch any more
	c.laneProgress, c.inFlight = &lane.Progress{Began: time.Now()}, nil
}

// hold holds a claim. Its records in the open batch are still committed, because they are before the offset of the
// hold. attrs are further log attributes, such as the id of the batch in which the hold was found.
func (hs *holds) hold(c *claim, h hold.Hold, attrs ...any) {
	if c.hold == nil || c.hold.Reason != h.Reason {
		if h.Since.IsZero() {
			h.Since = time.Now()
		}
		line := []any{"topic", c.Topic, "partition", c.ID, "reason", string(h.Reason), "detail", h.Detail, "offset", h.Offset}
		if h.Reason == hold.Poison {
			line = append(line, "correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: c.Partition, Offset: h.Offset}))
		}
		h.Reason.LogFunc(hs.Logger)("HOLD", append(line, attrs...)...)
		hs.Metrics.holds.WithLabelValues(string(h.Reason)).Inc()
	} else {
		h.Since = c.hold.Since
	}
	h.Partition = c.Partition
	if c.hold = &h; c.ends != byCommit {
		c.ends = endEventOf(h.Reason)
	}
	if c.next > c.from || c.table.inSealed(c.Partition) {
		hs.enter(c, finishing)
	} else {
		hs.enter(c, held)
	}
	c.nextCheck = time.Now().Add(c.checkEvery())
	hs.Log.Forget(c.Partition)
	hs.dropQueued(c)
}

// recheckEvery is the interval at which held claims are checked, and the positions of idle claims are compared with the
// table.
const recheckEvery = time.Minute

// checkEvery returns the interval at which a held claim is checked. A contested claim is checked once per commit
// interval, and released when its position has stayed the same for two intervals.
func (c *claim) checkEvery() time.Duration {
	switch {
	case c.hold != nil && c.hold.Reason == hold.Contested:
		return c.table.limits.Every
	case c.hold != nil && c.hold.Reason == hold.KafkaDown:
		return recheckEvery / 2 // an outage of Kafka is usually over soon
	}
	return recheckEvery
}

// leaveBatch ends the session of a claim whose records failed locally, and lets the claim wait until l.Until. It
// returns false if the claim need not wait: then the caller requests its position. A claim that was held meanwhile
// stays held.
func (hs *holds) leaveBatch(c *claim, l commit.Leave) bool {
	wait := time.Now().Before(l.Until)
	hs.endSession(c)
	switch {
	case c.hold != nil && !c.state.reads():
		hs.enter(c, held)
		return true
	case wait:
		hs.enter(c, leaving)
		c.until, c.refetchTo = l.Until, l.Next
	default:
		c.table.refetchUntil(c.Partition, l.Next)
	}
	return wait
}

// release ends the hold of a claim, if it has one. If the claim is being read already, its state becomes reading.
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

// requestResume requests the positions of claims from their writer.
func (hs *holds) requestResume(t *tableState, claims ...*claim) {
	asked := make(map[connector.Partition]commit.ResumeRequest, len(claims))
	for _, c := range claims {
		if c.hold == nil {
			hs.enter(c, resuming)
		} else {
			hs.enter(c, checking)
		}
		q := commit.ResumeRequest{Session: c.session, Last: connector.Position{Partition: c.Partition, Next: c.position, Epoch: c.positionEpoch}, Paused: hs.Decisions.Paused(c.Partition) != nil}
		if c.hold != nil {
			q.Held = c.hold.Reason
		}
		asked[c.Partition] = q
	}
	t.writer.Requests.Resume(asked)
}

// enter sets the state of a claim. If the transition is not allowed, it logs an error and sets the state all the same.
func (hs *holds) enter(c *claim, next state) {
	if !slices.Contains(c.state.next(), next) {
		hs.Logger.Error(IllegalTransition, "topic", c.Topic, "partition", c.ID, "from", c.state.String(), "to", next.String())
	}
	c.state = next
}

// releaseProvisionalHolds runs after a successful commit that has moved positions. It ends the holds of claims in state
// proving, which a failed commit had found, because the success shows that their cause is gone.
func (hs *holds) releaseProvisionalHolds(t *tableState) {
	for _, c := range t.claims {
		if c.fences = 0; c.state == proving {
			hs.release(c)
		}
	}
}

// forgetFailedCommits runs when a claim is lost or resumes. If no claim is left whose records were in the failed commit
// (each was lost, or resumed elsewhere), these records will not be committed and cannot end the holds. So claims in
// state proving are released, and other holds end by a check or a record instead of a commit.
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
			c.ends = endEventOf(c.hold.Reason)
		}
	}
}

// maySucceed reports whether a held claim may be read again, given what the check has found. The hold is shown until
// records are read again.
func (hs *holds) maySucceed(c *claim, f commit.Found) bool {
	switch c.hold.Reason {
	case hold.Poison:
		return f.At.Next != c.hold.Offset // unless the position was moved, the same record would fail again
	case hold.Flood:
		// Unless the position was moved or the flood is allowed, the same batch would be refused again.
		return f.At.Next != c.hold.Offset || hs.Decisions.FloodAllowed(c.Topic)
	case hold.AheadOfLogEnd, hold.Truncated:
		// It does not matter that the log reaches the position now, because other records may have replaced those that
		// were read. Either the leader epoch has proved the position, or an operator must have moved it.
		return f.At.Next != c.hold.Offset || f.At.Epoch >= 0
	case hold.Contested:
		if c.unmovedChecks++; f.At.Next != c.unmovedAt {
			c.unmovedChecks, c.unmovedAt = 0, f.At.Next
		}
		if c.unmovedChecks < 2 {
			c.hold.Offset = f.At.Next
			return false
		}
	default: // the cause is gone, or only reading can show whether it is
	}
	return true
}

// floodPasses reports whether an operator allows the flood for which the claim is held.
func (hs *holds) floodPasses(c *claim) bool {
	return c.hold.Reason == hold.Flood && hs.Decisions.FloodAllowed(c.Topic)
}

// checkDue requests from the writer the positions of the held claims whose check is due, and of the claims in state
// leaving whose wait is over. Every recheckEvery it also requests a comparison of the idle claims with the table.
func (hs *holds) checkDue(t *tableState) {
	now := time.Now()
	var again []*claim
	for _, c := range t.claims {
		switch {
		case c.state == leaving && !now.Before(c.until):
			t.refetchUntil(c.Partition, c.refetchTo)
			again = append(again, c)
		case c.state == held && (hs.floodPasses(c) || !now.Before(c.nextCheck)):
			c.nextCheck = now.Add(c.checkEvery())
			again = append(again, c)
		}
	}
	if len(again) > 0 {
		hs.requestResume(t, again...)
	}
	if t.nextCompare.IsZero() {
		t.nextCompare = now.Add(recheckEvery)
	}
	if now.Before(t.nextCompare) || t.comparing {
		return
	}
	t.nextCompare = now.Add(recheckEvery)
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

// dropQueued drops the fetch results of a claim. Blocks that are already in lanes stay there.
func (hs *holds) dropQueued(c *claim) {
	if c.parsed != nil {
		hs.blocks.Put(c.parsed)
	}
	for _, a := range c.queue {
		a.Release()
	}
	c.queue, c.parsed, c.fetching, c.shedBytes = nil, nil, false, 0
	hs.room.unwait(c)
}
