package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// A claim is a partition that this member works on. Owned by the reader.
type claim struct {
	connector.Partition
	since   time.Time // this member has it
	table   *tableState
	refuse  connector.Refusals
	lane    *lane.Lane
	health  *lane.HealthFilter
	state   state
	session uint64
	trail   *lane.Trail // of the session
	letters bool        // bad records may become letters

	// The batch that fills holds [from, next); next is where the next record to hand over lies, or a later one. epoch is
	// the leader epoch before next; earlier are those before places further back in that batch.
	from, next int64
	epoch      int32
	earlier    []plan.EpochUntil
	// position is where the table stands, as far as we know: from, or less while a cut is under way. positionEp is the
	// leader epoch before it, -1 unknown.
	position   int64
	positionEp int32

	// Answers that wait for the hand-over, and the parsed records of the first one.
	queue    []*lane.Answer
	parsed   *lane.Block
	fetching bool  // an answer is asked for
	ahead    int64 // where the next request starts
	aheadEp  int32

	// wants is how much of the batch pool the next block waits for, 0 if it does not; since wantsSince. shed says that the
	// block was given up meanwhile for want of memory to fetch with.
	wants      int64
	wantsSince time.Time
	shed       int64
	// keyFull says that the next record waits because its key has its share queued.
	keyFull bool

	flights []flight  // blocks that the lane is not done with
	last    time.Time // when a record was handed over
	// owed is the least timestamp of records from position on that an earlier session handed over, newest the greatest one
	// of the rows that this member brought to the table; in milliseconds, 0 if there is none.
	owed, newest int64

	bounds connector.Bounds
	target int64      // until-current: where it may end
	hold   *hold.Hold // why it stands still; shown until records flow again
	ends   endsBy     // what ends the hold
	// witness says that a commit with its records found the hold: they will show whether that is over.
	witness  bool
	checks   time.Time
	rechecks int64 // number of the last request of an operator to check the claim
	fences   int   // how often others moved it since the last won commit of the table
	quiet    int   // contested: how often the position was seen unmoved
	quietAt  int64 // contested: where
}

// wanted is how many answers a claim may have waiting or on their way: one to hand over, one to follow.
const wanted = 2

// request asks for what comes next, if there is room for it.
func (r *Reader) request(c *claim) {
	if !c.state.reads() || c.fetching || len(c.queue) >= wanted || r.draining || c.table.stuck || c.shed > 0 {
		return
	}
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return
	}
	c.fetching = true
	r.Log.Fetch(connector.FetchRequest{Position: connector.Position{Partition: c.Partition, Next: c.ahead, Epoch: c.aheadEp}, Session: c.session})
}

// begin starts a session at a position.
func (r *Reader) begin(c *claim, at connector.Position) {
	switch {
	case c.hold == nil:
		r.enter(c, reading)
	case c.ends == byCommit:
		r.enter(c, proving)
	default:
		r.enter(c, retrying)
	}
	c.from, c.next, c.epoch, c.earlier, c.position, c.positionEp = at.Next, at.Next, at.Epoch, nil, at.Next, at.Epoch
	c.ahead, c.aheadEp = at.Next, at.Epoch
	r.request(c)
}

// pass notes that everything before next was handed over or passed. epoch is that of the last record batch before it, and
// of the record or the end of a batch at first. Which epoch the offsets between belong to is unknown: they may be markers
// of either, or gone.
func (c *claim) pass(next int64, epoch int32, first int64) {
	if c.epoch != epoch {
		c.earlier = append(c.earlier, plan.EpochUntil{Epoch: c.epoch, Until: c.next})
		if first > c.next {
			c.earlier = append(c.earlier, plan.EpochUntil{Epoch: -1, Until: first})
		}
	}
	c.next, c.epoch = next, epoch
}

// end ends a session: whatever carries it is dropped from now on.
func (r *Reader) end(c *claim) {
	r.sessions++
	c.session = r.sessions
	r.Log.Forget(c.Partition)
	r.drop(c)
	if c.trail != nil {
		c.owed = c.oldest()
	}
	c.from, c.next = c.position, c.position // nothing of the batch that fills is its any more
	c.trail, c.flights = &lane.Trail{Began: time.Now()}, nil
}

// stand holds a claim. Its part of the batch that fills stays good: it ends before the place of the hold.
//
// said is what its line says beside: the batch that it was found in.
func (r *Reader) stand(c *claim, h hold.Hold, said ...any) {
	if c.hold == nil || c.hold.Reason != h.Reason {
		if h.Since.IsZero() {
			h.Since = time.Now()
		}
		line := []any{"topic", c.Topic, "partition", c.ID, "reason", string(h.Reason), "detail", h.Detail, "offset", h.Offset}
		if h.Reason == hold.Poison {
			line = append(line, "correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: c.Partition, Offset: h.Offset}))
		}
		h.Reason.Tell(r.Logger)("HOLD", append(line, said...)...)
		r.Metrics.holds.WithLabelValues(string(h.Reason)).Inc()
	} else {
		h.Since = c.hold.Since
	}
	h.Partition = c.Partition
	if c.hold = &h; c.ends != byCommit {
		c.ends = endOf(h.Reason)
	}
	if c.next > c.from || c.table.cuts(c.Partition) {
		r.enter(c, settling)
	} else {
		r.enter(c, held)
	}
	c.checks = time.Now().Add(c.checkEvery())
	r.Log.Forget(c.Partition)
	r.drop(c)
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

// release ends a hold.
func (r *Reader) release(c *claim) {
	if c.hold == nil {
		return
	}
	r.Logger.Info("hold ended", "topic", c.Topic, "partition", c.ID, "reason", string(c.hold.Reason), "after", time.Since(c.hold.Since).Round(time.Second))
	c.hold, c.ends, c.witness = nil, byCheck, false
	if c.state.reads() {
		r.enter(c, reading)
	}
}

// ask asks the writer where claims stand.
func (r *Reader) ask(t *tableState, claims ...*claim) {
	asked := make(map[connector.Partition]commit.ResumeRequest, len(claims))
	for _, c := range claims {
		if c.hold == nil {
			r.enter(c, resuming)
		} else {
			r.enter(c, checking)
		}
		q := commit.ResumeRequest{Session: c.session, Last: connector.Position{Partition: c.Partition, Next: c.position, Epoch: c.positionEp}, Paused: r.Decisions.Paused(c.Partition) != nil}
		if c.hold != nil {
			q.Standing = c.hold.Reason
		}
		asked[c.Partition] = q
	}
	t.writer.Requests.Resume(asked)
}
