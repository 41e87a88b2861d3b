package connector

import (
	"maps"
	"slices"
	"time"

	"sluice/reliability/hold"
)

// Status is what health and operators may see, as of a moment ago.
type Status struct {
	At       time.Time
	Joined   bool // a generation is valid
	Resumed  bool // every claim knows where it stands, or holds
	Started  bool // both were true at once, now or before
	Draining bool
	Paused   bool // backpressure stops reading, for one table at least
	Queued   int64
	Claims   []ClaimStatus
	// Left are paused partitions that others may work on, behind the ends that a run until current is for.
	Left []hold.Hold
}

// ClaimStatus is one claim. Offsets are -1 while unknown.
type ClaimStatus struct {
	Partition Partition
	Table     string
	// Since is when this member got it: a claim that comes back is another one.
	Since    time.Time
	State    string
	Position int64 // in the table
	Next     int64 // read so far
	End      int64 // last stable offset
	Lag      int64 // End - Position
	Hold     *hold.Hold
	// Consumed is the next offset behind the records that are in the table, or that the open batch or the cut on its way has
	// as rows. What waits for a lane is not, nor what lies behind a record that will hold the claim.
	Consumed int64
	// Waiting is since when rows of its table wait for their commit, or letters, whichever claim they are of: those of the
	// cut on its way, too. The zero time if none do. Every is how long they should.
	Waiting time.Time
	Every   time.Duration
	// Oldest is the timestamp of the oldest record that was handed over and is not in the table, as far as it will be. Newest
	// is that of the newest row that this member brought there. The zero time if there is none.
	Oldest, Newest time.Time
	// LastRecord is when a record of it was last handed over.
	LastRecord time.Time
}

// Status returns the latest status; it never waits for the work.
func (c *Connector) Status() Status {
	if s := c.status.Load(); s != nil {
		return *s
	}
	return Status{}
}

// show publishes the status, at most every so often.
func (r *reader) show() {
	now := time.Now()
	if now.Sub(r.shown) < showEvery {
		return
	}
	r.shown = now
	s := &Status{At: now, Joined: r.joined, Resumed: r.assigned, Draining: r.draining, Paused: r.pressure.pauses > 0, Queued: r.valve.queued.Load()}
	stand := map[standing][]*hold.Hold{}
	waiting := map[*tableState]time.Time{}
	for _, t := range r.tables {
		waiting[t] = t.waits()
	}
	for _, p := range slices.SortedFunc(maps.Keys(r.claims), Partition.Compare) {
		c := r.claims[p]
		cs := ClaimStatus{
			Partition: p, Table: c.table.name, Since: c.since, State: c.state.String(), Position: c.position, Next: c.next, End: c.bounds.LastStable, Hold: c.hold,
			Consumed: c.consumed(), Waiting: waiting[c.table], Every: c.table.limits.Every,
			Oldest: stamped(c.oldest()), Newest: stamped(c.newest), LastRecord: c.last,
		}
		if cs.Hold != nil { // a copy: the claim's own goes on changing
			h := *cs.Hold
			cs.Hold = &h
		} else if r.standing != nil {
			if cs.Hold = r.standing(c.table.name, p); cs.Hold != nil {
				cs.Hold.Partition, cs.Hold.Offset = p, c.position
				stand[standing{c.table.name, cs.Hold.Reason}] = append(stand[standing{c.table.name, cs.Hold.Reason}], cs.Hold)
			}
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
	r.outages(stand)
	for _, t := range r.tables {
		s.Left = append(s.Left, t.left...)
	}
	r.started = r.started || s.Joined && s.Resumed
	s.Started = r.started
	r.metrics.queued.Set(float64(s.Queued))
	r.publish(s)
}
