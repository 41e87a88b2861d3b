package intake

import (
	"maps"
	"slices"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
)

// status publishes the member's status.
type status struct {
	*base

	pauses *pauseLog

	started bool      // true once this member was in a generation with all claims resumed
	shown   time.Time // when the status was last published
	outage  map[outageKey]*outage
}

// show publishes the status, at most every showEvery.
func (st *status) show() {
	now := time.Now()
	if now.Sub(st.shown) < showEvery {
		return
	}
	st.shown = now
	s := &connector.Status{At: now, Joined: st.joined, Resumed: st.assigned, Draining: st.draining, Paused: st.pauses.active > 0, Queued: st.backpressure.Queued.Load()}
	stand := map[outageKey][]*hold.Hold{}
	waiting := map[*tableState]time.Time{}
	for _, t := range st.tables {
		waiting[t] = t.waitingSince()
	}
	for _, p := range slices.SortedFunc(maps.Keys(st.claims), connector.Partition.Compare) {
		c := st.claims[p]
		cs := connector.ClaimStatus{
			Partition: p, Table: c.table.name, Since: c.since, State: c.state.display(), Position: c.position, Next: c.next, End: c.bounds.LastStable, Hold: c.hold,
			Consumed: c.consumed(), Waiting: waiting[c.table], Every: c.table.limits.Every,
			Oldest: timeOf(c.oldest()), Newest: timeOf(c.newestCommitted), LastRecord: c.last,
		}
		if cs.Hold != nil { // copied, because the claim may change its hold
			h := *cs.Hold
			cs.Hold = &h
		} else if cs.Hold = st.Tables.Blocked(c.table.name, p); cs.Hold != nil {
			cs.Hold.Partition, cs.Hold.Offset = p, c.position
			stand[outageKey{c.table.name, cs.Hold.Reason}] = append(stand[outageKey{c.table.name, cs.Hold.Reason}], cs.Hold)
		}
		if c.state == resuming && cs.Hold == nil {
			s.Resumed = false
			cs.Position, cs.Next, cs.End, cs.Consumed = -1, -1, -1, -1
		}
		if cs.Position >= 0 {
			cs.Lag = max(cs.End-cs.Position, 0)
		}
		s.Claims = append(s.Claims, cs)
	}
	st.outages(stand)
	for _, t := range st.tables {
		if t.flush.Request > 0 {
			s.Flushes = append(s.Flushes, t.flush)
		}
		s.Left = append(s.Left, t.left...)
	}
	st.started = st.started || s.Joined && s.Resumed
	s.Started = st.started
	st.Metrics.queued.Set(float64(s.Queued))
	st.Publish(s)
}
