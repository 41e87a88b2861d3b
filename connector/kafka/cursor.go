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
	resting   cursorState = iota // no request, and nothing to do
	unlocated                    // needs a leader from new metadata, not before retryAt
	queued                       // waits in the queue of a fetcher
	inFlight                     // part of a request in flight
	suspected                    // its position has to be compared with its log, not before retryAt
)

// cursor is the state of fetching one partition. The Log's mutex guards it.
type cursor struct {
	state  cursorState
	wanted bool // false after Forget; the cursor then remains only in a queue or in a request in flight
	req    connector.FetchRequest
	// seq grows with every Fetch and Forget, ticket with every entry into a queue. A request or entry with an older
	// number is stale.
	seq, ticket uint64
	result      *connector.Fetched // a result that is ready and not delivered yet
	next        int64              // the position of the last request, or the one after the last result

	leader, epoch int32
	replica       int32 // until replicaUntil the partition is read from this replica instead of its leader
	replicaUntil  time.Time

	failures int       // the number of failures in a row
	retryAt  time.Time // for unlocated and suspected

	// behind is true if the log has, or may have, records at the position. Then a request need not wait at the broker
	// for records to arrive.
	behind bool
	// maxBytes is the size that a large batch at the position needs, 0 for the default. alone means that the partition
	// must be the only one in its request.
	maxBytes int
	alone    bool

	// finding is the reason of a hold which a reading has shown, "" if there is none. findingOn is the position,
	// findingEpoch the leader's epoch, and findingAt the time of the first such reading. The method stands sets them.
	finding      hold.Reason
	findingAt    time.Time
	findingOn    int64
	findingEpoch int32
	// refused is the time of the first comparison that found the position in its log although brokers refuse it; zero
	// if there was none.
	refused time.Time
	// unchecked means that the broker which served or refused the position could not check it: it is too old to compare
	// epochs, or is not the leader. Then only the leader's log decides about the suspected position. checked is the
	// leader epoch of the last decision.
	unchecked bool
	checked   int32

	logged   connector.Bounds // the bounds in the last result
	loggedAt time.Time        // when the last result was enqueued; zero if this session had none
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

// stands records a finding at the requested position. It returns true if the same finding was first recorded at least
// the time of confirm ago, at the same position and in the same leader epoch. One reading is not enough: bytes can be
// damaged in transit, and a newly elected leader may not know the end of its log yet.
func (c *cursor) stands(reason hold.Reason, epoch int32) bool {
	now := time.Now()
	if c.finding != reason || c.findingOn != c.req.Next || c.findingEpoch != epoch {
		c.finding, c.findingAt, c.findingOn, c.findingEpoch = reason, now, c.req.Next, epoch
	}
	return now.Sub(c.findingAt) >= confirm
}

// clear removes the recorded finding if it has one of these reasons, because a later reading contradicts it.
func (c *cursor) clear(reasons ...hold.Reason) {
	if slices.Contains(reasons, c.finding) {
		c.finding = ""
	}
}

// served resets failures, finding and refused, because a broker has served the position.
func (c *cursor) served() {
	c.failures, c.finding, c.refused = 0, "", time.Time{}
}

// retry counts a failure and returns when to try again: after a minute if the cluster denies access to the topic,
// otherwise after a growing pause. If brokers refuse the connection, a short pause does no harm, because the dialer
// makes no new attempt for a while.
func (c *cursor) retry(err error) time.Time {
	c.failures++
	if code := kafka.Error(0); errors.As(err, &code) && denied(code) && !untrusted(err) {
		return time.Now().Add(reliability.Backoff{Initial: retryDenied, Max: retryDenied, Jitter: retryJitter}.Pause(1))
	}
	return time.Now().Add(retryPause(c.failures))
}

// isRefusal reports whether the cluster denies access, or no connection can be opened until an operator changes
// something, or a file with credentials or certificates changes.
func isRefusal(err error) bool {
	var code kafka.Error
	return errors.As(err, &code) && denied(code) || err != nil && untrusted(err)
}

// noBounds returns Bounds in which everything is unknown.
func noBounds() connector.Bounds {
	return connector.Bounds{LogStart: -1, LastStable: -1, HighWatermark: -1, LeaderEpoch: -1, DivergedAt: -1}
}

// relocate schedules a lookup of the leader of a partition, not before from. The caller holds the lock.
func (l *Log) relocate(c *cursor, from time.Time) {
	c.state, c.retryAt = unlocated, from
	wake(l.locate)
}

// suspect schedules a comparison of the position of a partition with its log, not before from. The caller holds the
// lock.
func (l *Log) suspect(c *cursor, from time.Time) {
	c.state, c.retryAt = suspected, from
	wake(l.judge)
}

// enqueue adds a partition to a queue of the fetcher for its broker. If there is no such fetcher, it schedules a lookup
// of the leader. The caller holds the lock.
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

// conclude delivers the error found as the result of a partition. If found is a hold, a second reading must confirm it
// first: see the method stands. Until then, conclude calls the parameter again, which is relocate or suspect, to
// schedule that reading. The caller holds the lock.
func (l *Log) conclude(c *cursor, found error, bounds connector.Bounds, again func(*cursor, time.Time)) {
	var h *hold.Error
	if !errors.As(found, &h) || c.stands(h.Reason, bounds.LeaderEpoch) {
		l.enqueueResult(c, connector.Fetched{Bounds: bounds, Next: c.req.Next, Epoch: c.req.Epoch, Err: found})
		return
	}
	again(c, c.findingAt.Add(confirm))
}
