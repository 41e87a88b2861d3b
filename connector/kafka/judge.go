package kafka

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
)

// suspicion is a position that may be unreadable, and that is due to be compared with its log.
type suspicion struct {
	c        *cursor
	seq      uint64
	position connector.Position
}

// judging compares suspected positions with their logs until ctx ends. A suspicion alone is not enough for a hold: the
// broker that refused the position may have old metadata. Some old brokers even serve a position without comparing its
// epoch, so such a position is suspected, too.
func (l *Log) judging(ctx context.Context) error {
	for {
		due, next := l.dueSuspicions(time.Now())
		if len(due) == 0 {
			if err := wait(ctx, l.judge, next); err != nil {
				return err
			}
			continue
		}
		positions := make([]connector.Position, len(due))
		for i := range due {
			positions[i] = due[i].position
		}
		readings, err := l.readOnce(ctx, positions)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		l.mu.Lock()
		for _, s := range due {
			if s.c.seq == s.seq && s.c.state == suspected {
				r := readings[s.position.Partition]
				r.err = cmp.Or(err, r.err)
				l.decide(s.c, r)
			}
		}
		l.mu.Unlock()
	}
}

// dueSuspicions returns the positions to compare now, and when the next one is due; the time is zero if no other is
// suspected.
func (l *Log) dueSuspicions(now time.Time) (due []suspicion, next time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range l.cursors {
		switch {
		case c.state != suspected:
		case !c.retryAt.After(now):
			due = append(due, suspicion{c, c.seq, c.req.Position})
		case next.IsZero() || c.retryAt.Before(next):
			next = c.retryAt
		}
	}
	return due, next
}

// decide handles r, what the log says about a suspected position. If reading the log failed, it is read again later. If
// the position is not in the log, this is a finding, which becomes the result once a second reading confirms it. If the
// position is in the log, it is fetched again; if brokers still refuse it after the time of confirm, the partition gets
// the hold truncated. The caller holds the lock.
func (l *Log) decide(c *cursor, r reading) {
	switch {
	case r.err != nil:
		l.metrics.failed(r.err)
		l.suspect(c, c.retry(r.err))
	case r.hold != nil:
		if r.gone {
			r.bounds = noBounds()
		}
		l.conclude(c, r.hold, r.bounds, l.suspect)
	case c.unchecked:
		c.unchecked, c.checked = false, r.bounds.LeaderEpoch
		l.relocate(c, c.retry(nil))
	case c.refused.IsZero() || time.Since(c.refused) < confirm:
		if c.refused.IsZero() {
			c.refused = time.Now()
		}
		c.clear(hold.BehindLogStart, hold.AheadOfLogEnd, hold.Truncated)
		l.relocate(c, c.retry(nil))
	default:
		// Brokers refuse a position within their log if they do not know the leader epoch in which it was read.
		l.enqueueResult(c, connector.Fetched{
			Bounds: r.bounds, Next: c.req.Next, Epoch: c.req.Epoch,
			Err: hold.New(hold.Truncated, fmt.Sprintf(
				"the broker refuses position %d, read in leader epoch %d, though its log reaches from %d to %d",
				c.req.Next, c.req.Epoch, r.bounds.LogStart, r.bounds.HighWatermark), nil),
		})
	}
}
