package kafka

import (
	"errors"
	"slices"
	"time"

	"github.com/segmentio/kafka-go"

	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// noBroker is the leader of a partition that has none that we know.
const noBroker int32 = -1

// cursorState is where a partition is on its way from request to answer.
//
//	          Fetch                  take                 answer
//	resting ─────────▶ queued ──────────────▶ flying ───────────────▶ resting
//	   │  no leader      ▲ located              │ leader moved, connection failed
//	   └────────────────lost ◀──────────────────┤
//	                     ▲ not confirmed        ▼ the broker refuses the position
//	                     └─────────────────  suspected ─── confirmed ──▶ resting
type cursorState uint8

const (
	resting   cursorState = iota // nothing is asked
	lost                         // wants a leader, from retryAt on
	queued                       // waits in a fetcher's queue
	flying                       // part of a request under way
	suspected                    // its position is compared with its log, from retryAt on
)

// cursor is a partition that is read. The Log's mutex guards it.
type cursor struct {
	state  cursorState
	wanted bool // false only for one that was forgotten while it was flying
	req    connector.FetchRequest
	// seq is raised by every Fetch and Forget, ticket by every entry into a queue: what carries an older one is stale.
	seq, ticket uint64
	result      *connector.Fetched // not yet delivered
	next        int64              // where the last request or answer left the position

	leader, epoch int32
	replica       int32 // to read from instead of the leader until replicaUntil
	replicaUntil  time.Time

	failures int       // in a row
	retryAt  time.Time // while lost or suspected

	// behind says that there is or may be something to read at once.
	behind bool
	// maxBytes is what a large batch at the position needs, 0 if nothing special; alone asks for it without others.
	maxBytes int
	alone    bool

	// finding is what was found wrong with the position findingOn by the leader of findingEpoch, and when first.
	finding      hold.Reason
	findingAt    time.Time
	findingOn    int64
	findingEpoch int32
	// refused is since when the broker has refused a position that the bounds allow.
	refused time.Time
	// unchecked says that the position is suspected only because its broker is too old to compare its epoch, or is not the
	// leader; checked is the leader's epoch in which it was compared.
	unchecked bool
	checked   int32

	logged   connector.Bounds // by the last answer
	loggedAt time.Time        // zero if this session had none
}

// source is the broker that the partition is read from.
func (c *cursor) source() int32 {
	if c.leader != noBroker && time.Now().Before(c.replicaUntil) {
		return c.replica
	}
	return c.leader
}

// drop forgets an answer that was not delivered.
func (c *cursor) drop() {
	if c.result != nil && c.result.Records != nil {
		c.result.Records.Release()
	}
	c.result = nil
}

// stands notes a finding and tells whether it was already there long enough ago, in the same leader epoch. What was read
// once can come from bytes damaged on their way, or from a broker that does not know the newest state: a leader that was
// just elected may not know its own end.
func (c *cursor) stands(reason hold.Reason, epoch int32) bool {
	now := time.Now()
	if c.finding != reason || c.findingOn != c.req.Next || c.findingEpoch != epoch {
		c.finding, c.findingAt, c.findingOn, c.findingEpoch = reason, now, c.req.Next, epoch
	}
	return now.Sub(c.findingAt) >= confirm
}

// clear drops a finding of these reasons: what it found is not there any more.
func (c *cursor) clear(reasons ...hold.Reason) {
	if slices.Contains(reasons, c.finding) {
		c.finding = ""
	}
}

// served notes that the position was served.
func (c *cursor) served() {
	c.failures, c.finding, c.refused = 0, "", time.Time{}
}

// retry counts a failure and says when to try again.
func (c *cursor) retry(err error) time.Time {
	c.failures++
	if code := kafka.Error(0); errors.As(err, &code) && denied(code) && !untrusted(err) { // that is remembered by the dialer
		return time.Now().Add(reliability.Backoff{Initial: retryDenied, Max: retryDenied, Jitter: retryJitter}.Pause(1))
	}
	return time.Now().Add(retryPause(c.failures))
}

// isRefusal tells whether the cluster knows us and does not want us to.
func isRefusal(err error) bool {
	var code kafka.Error
	return errors.As(err, &code) && denied(code) || err != nil && untrusted(err)
}

// noBounds are bounds of which nothing is known.
func noBounds() connector.Bounds {
	return connector.Bounds{LogStart: -1, LastStable: -1, HighWatermark: -1, LeaderEpoch: -1, DivergedAt: -1}
}

// lose looks for the leader of a partition, from a time on. The lock is held.
func (l *Log) lose(c *cursor, from time.Time) {
	c.state, c.retryAt = lost, from
	wake(l.locate)
}

// suspect compares a position with the log, from a time on. The lock is held.
func (l *Log) suspect(c *cursor, from time.Time) {
	c.state, c.retryAt = suspected, from
	wake(l.judge)
}

// enqueue lets a partition take part in the next request to its broker, or looks for that first. The lock is held.
func (l *Log) enqueue(c *cursor) {
	f := l.fetchers[c.source()]
	if f == nil {
		l.lose(c, time.Now())
		return
	}
	q := f.tail
	if c.behind {
		q = f.ahead
	}
	c.ticket++
	c.state = queued
	q.entries = append(q.entries, entry{c, c.ticket})
	wake(q.wake)
}

// conclude ends a request with a finding if it stands, and else arranges the second reading. The lock is held.
func (l *Log) conclude(c *cursor, found error, bounds connector.Bounds, again func(*cursor, time.Time)) {
	var h *hold.Error
	if !errors.As(found, &h) || c.stands(h.Reason, bounds.LeaderEpoch) {
		l.enqueueResult(c, connector.Fetched{Bounds: bounds, Next: c.req.Next, Epoch: c.req.Epoch, Err: found})
		return
	}
	again(c, c.findingAt.Add(confirm))
}
