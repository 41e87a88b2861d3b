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

// noBroker is the leader of a partition without a known leader.
const noBroker int32 = -1

// cursorState is the stage of a partition between request and result.
//
//	           Fetch                  take                result
//	resting ─────────▶ queued ─────────────▶ inFlight ──────────────▶ resting
//	   │  no leader      ▲ located              │ leader moved, connection failed
//	   └─────────────unlocated ◀────────────────┤
//	                     ▲ not confirmed        ▼ the broker refuses the position
//	                     └─────────────────  suspected ─── confirmed ──▶ resting
type cursorState uint8

const (
	resting   cursorState = iota // no request is pending
	unlocated                    // needs its leader from new metadata, not before retryAt
	queued                       // waits in a fetcher's queue
	inFlight                     // part of a request in flight
	suspected                    // its position must be compared with its log, not before retryAt
)

// cursor is the fetch state of one partition. The Log's mutex guards it.
type cursor struct {
	state  cursorState
	wanted bool // false after Forget; such a cursor stays only in a queue or in a request in flight
	req    connector.FetchRequest
	// seq grows with every Fetch and Forget, ticket with every entry into a queue. A request or entry with an older
	// number is stale.
	seq, ticket uint64
	result      *connector.Fetched // ready, but not yet delivered
	next        int64              // position of the last request, or after the last result

	leader, epoch int32
	replica       int32 // read from this replica instead of the leader until replicaUntil
	replicaUntil  time.Time

	failures int       // consecutive ones
	retryAt  time.Time // of unlocated and suspected

	// behind is true if the log has, or may have, records at the position, so that a request need not wait at the
	// broker.
	behind bool
	// maxBytes is the size needed for a large batch at the position, 0 for the default. alone means that the
	// partition needs a request of its own.
	maxBytes int
	alone    bool

	// finding is the reason of a hold that the leader of findingEpoch showed at position findingOn, first at findingAt.
	// It is "" if there is none. See stands.
	finding      hold.Reason
	findingAt    time.Time
	findingOn    int64
	findingEpoch int32
	// refused is the time of the first comparison that found the position in its log although brokers refuse it; zero
	// if there was none.
	refused time.Time
	// unchecked means that the broker that served or refused the position could not check it: it is too old to compare
	// epochs, or is not the leader. Then the leader's log alone decides about the suspected position. checked is the
	// leader epoch of the last such decision.
	unchecked bool
	checked   int32

	logged   connector.Bounds // bounds in the last result
	loggedAt time.Time        // zero if this session had no result
}

// source returns the broker to read the partition from: the replica until replicaUntil, then the leader. It returns
// noBroker if the leader is not known.
func (c *cursor) source() int32 {
	if c.leader != noBroker && time.Now().Before(c.replicaUntil) {
		return c.replica
	}
	return c.leader
}

// drop releases a result that was not delivered.
func (c *cursor) drop() {
	if c.result != nil && c.result.Records != nil {
		c.result.Records.Release()
	}
	c.result = nil
}

// stands records a finding at the requested position. It reports whether the finding was first seen at least the time
// of confirm ago, at the same position and in the same leader epoch. A single reading may be wrong: bytes can be
// damaged in transit, and a newly elected leader may not know its own log end yet.
func (c *cursor) stands(reason hold.Reason, epoch int32) bool {
	now := time.Now()
	if c.finding != reason || c.findingOn != c.req.Next || c.findingEpoch != epoch {
		c.finding, c.findingAt, c.findingOn, c.findingEpoch = reason, now, c.req.Next, epoch
	}
	return now.Sub(c.findingAt) >= confirm
}

// clear drops a finding with one of these reasons, because a later reading refuted it.
func (c *cursor) clear(reasons ...hold.Reason) {
	if slices.Contains(reasons, c.finding) {
		c.finding = ""
	}
}

// served drops failures, finding and refusal, because a broker served the position.
func (c *cursor) served() {
	c.failures, c.finding, c.refused = 0, "", time.Time{}
}

// retry counts a failure and returns the time of the next try: after a minute if the cluster denied access to the
// topic, else after a growing pause. For refused connections the pause may be short, because the dialer itself makes no
// new attempt for a while.
func (c *cursor) retry(err error) time.Time {
	c.failures++
	if code := kafka.Error(0); errors.As(err, &code) && denied(code) && !untrusted(err) {
		return time.Now().Add(reliability.Backoff{Initial: retryDenied, Max: retryDenied, Jitter: retryJitter}.Pause(1))
	}
	return time.Now().Add(retryPause(c.failures))
}

// isRefusal reports whether the cluster denies access, or no connection can be opened until a person or a file changes
// something.
func isRefusal(err error) bool {
	var code kafka.Error
	return errors.As(err, &code) && denied(code) || err != nil && untrusted(err)
}

// noBounds returns unknown bounds.
func noBounds() connector.Bounds {
	return connector.Bounds{LogStart: -1, LastStable: -1, HighWatermark: -1, LeaderEpoch: -1, DivergedAt: -1}
}

// relocate schedules a search for the leader of a partition, not before the time from. The caller holds the lock.
func (l *Log) relocate(c *cursor, from time.Time) {
	c.state, c.retryAt = unlocated, from
	wake(l.locate)
}

// suspect schedules a comparison of a position with its log, not before the time from. The caller holds the lock.
func (l *Log) suspect(c *cursor, from time.Time) {
	c.state, c.retryAt = suspected, from
	wake(l.judge)
}

// enqueue adds a partition to the queue of its broker's fetcher, or first schedules a search for the broker. The
// caller holds the lock.
func (l *Log) enqueue(c *cursor) {
	f := l.fetchers[c.source()]
	if f == nil {
		l.relocate(c, time.Now())
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

// conclude delivers the error found as the result of a request. A hold is delivered only once a second reading confirms
// it (see stands); until then, conclude calls again, which is relocate or suspect, to schedule that reading. The caller
// holds the lock.
func (l *Log) conclude(c *cursor, found error, bounds connector.Bounds, again func(*cursor, time.Time)) {
	var h *hold.Error
	if !errors.As(found, &h) || c.stands(h.Reason, bounds.LeaderEpoch) {
		l.enqueueResult(c, connector.Fetched{Bounds: bounds, Next: c.req.Next, Epoch: c.req.Epoch, Err: found})
		return
	}
	again(c, c.findingAt.Add(confirm))
}
