package app

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/connector"
	"sluice/health"
	"sluice/reliability"
)

const (
	// endsEvery bounds the question for all ends. A partition whose leader does not answer in this time has no end at this look.
	// It is half of the usual interval: these questions are what opens the breaker while everything else only waits for
	// Kafka, and five of them must fail within a minute.
	endsEvery = 5 * time.Second
	// statusAge is how old the connector's status may be, with some room.
	statusAge = time.Second
	// lagLogEvery is how often it is logged that the lag is still unhealthy.
	lagLogEvery = 5 * time.Minute
)

// lagWatch asks the leaders for the ends of all claims, of those that are not read as well, and has the monitor judge the
// lag. It has a goroutine and questions of its own: nothing waits for it.
type lagWatch struct {
	rules      health.LagRules
	grace      time.Duration
	status     func() connector.Status
	bounds     func(context.Context, []connector.Position) (map[connector.Partition]connector.Bounds, error)
	ask        func(ctx context.Context, op func(context.Context) error) error // once, unless the breaker is open
	thresholds func(topic string) health.LagThresholds
	logger     *slog.Logger

	latest atomic.Pointer[lagFindings]

	// Owned by run:
	monitor           *health.Monitor
	unhealthy         time.Time              // since when, zero if it is not
	logged            time.Time              // when that was last logged
	endOffsetsFailing reliability.FailureLog // the ends cannot be learnt
}

// lagFindings are what the last look found. They are not changed afterwards.
type lagFindings struct {
	health.LagReport
	ends map[connector.Partition]int64 // the newest that are known
}

func newLagWatch(s *Member) *lagWatch {
	c := s.config
	rules := c.LagRules()
	return &lagWatch{
		rules: rules, grace: min(c.Kafka.Fetch.MaxWait+statusAge, rules.Every), status: s.connector.Status, bounds: s.log.Bounds, ask: s.asking.Try,
		thresholds: func(topic string) health.LagThresholds {
			t, _, _ := c.Route(topic) // of a topic that is not ours there are none
			return t.Lag
		},
		logger: s.logger, monitor: health.NewMonitor(rules),
	}
}

// run looks every so often until ctx ends.
func (w *lagWatch) run(ctx context.Context) {
	turns := time.NewTicker(w.rules.Every)
	defer turns.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-turns.C:
			w.poll(ctx)
		}
	}
}

// poll learns the ends, then where the claims stand, and judges. A record that was just produced is on its way: it is given
// the time to be read before it counts.
func (w *lagWatch) poll(ctx context.Context) {
	ends, err := w.ends(ctx, w.status().Claims)
	if reliability.Wait(ctx, w.grace) != nil {
		return
	}
	now := time.Now()
	found := &lagFindings{ends: map[connector.Partition]int64{}}
	var samples []health.LagSample
	for _, c := range w.status().Claims {
		s := w.sample(c)
		if end, ok := ends[c.Partition]; ok {
			s.End, found.ends[c.Partition] = end, end
		} else if before := w.latest.Load(); before != nil { // of an earlier look: shown, and no sample
			if end, ok := before.ends[c.Partition]; ok {
				found.ends[c.Partition] = end
			}
		}
		samples = append(samples, s)
	}
	found.LagReport = w.monitor.Observe(now, samples)
	if err != nil {
		found.Status.Error = err.Error()
	}
	w.latest.Store(found)
	w.log(ctx, now, &found.Status, err)
}

// ends asks the leaders once. With an error it returns those that answered.
func (w *lagWatch) ends(ctx context.Context, claims []connector.ClaimStatus) (map[connector.Partition]int64, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	positions := make([]connector.Position, len(claims))
	for i, c := range claims {
		positions[i] = connector.Position{Partition: c.Partition, Next: -1, Epoch: -1}
	}
	asking, cancel := context.WithTimeout(ctx, min(endsEvery, w.rules.Every))
	defer cancel()
	ends := map[connector.Partition]int64{}
	var missed error
	err := w.ask(asking, func(ctx context.Context) error {
		var bounds map[connector.Partition]connector.Bounds
		bounds, missed = w.bounds(ctx, positions)
		for p, b := range bounds {
			ends[p] = b.LastStable
		}
		if _, unread := errors.AsType[*connector.UnreadError](missed); unread || len(ends) > 0 {
			return nil // a leader that is missing must not open the breaker that all questions to Kafka stand behind
		}
		return missed
	})
	err = cmp.Or(err, missed)
	return ends, err
}

// sample is what a claim says of itself, without its end.
func (w *lagWatch) sample(c connector.ClaimStatus) health.LagSample {
	s := health.LagSample{
		TopicPartition: health.TopicPartition{Topic: c.Partition.Topic, Partition: c.Partition.ID},
		Identity: struct {
			connector.Partition
			since time.Time
		}{c.Partition, c.Since},
		Table: c.Table, End: -1, Position: c.Position, Consumed: c.Consumed,
		Waiting: c.Waiting, CommitEvery: c.Every, Thresholds: w.thresholds(c.Partition.Topic),
	}
	if c.Hold != nil {
		s.Hold = string(c.Hold.Reason)
	}
	return s
}

// log logs what changes, and now and then what stays.
func (w *lagWatch) log(ctx context.Context, now time.Time, st *health.LagStatus, err error) {
	if ctx.Err() != nil {
		return
	}
	switch {
	case !st.Healthy && w.unhealthy.IsZero():
		w.unhealthy, w.logged = now, now
		w.logger.WarnContext(ctx, "Consumer UNHEALTHY", "reason", st.Reason)
	case !st.Healthy && now.Sub(w.logged) >= lagLogEvery:
		w.logged = now
		w.logger.WarnContext(ctx, "Consumer UNHEALTHY", "reason", st.Reason, "since", w.unhealthy)
	case st.Healthy && !w.unhealthy.IsZero():
		w.logger.InfoContext(ctx, "Consumer healthy again", "after", now.Sub(w.unhealthy).Round(time.Second))
		w.unhealthy = time.Time{}
	}
	if err == nil {
		w.endOffsetsFailing.Over(ctx, w.logger, "the ends of partitions are learnt again")
		return
	}
	w.endOffsetsFailing.Failed(ctx, w.logger, slog.LevelWarn, "the ends of partitions cannot be learnt; their lag stays as it was known", "err", err)
}

// found is what the last look found, nil before the first one and without a watch.
func (w *lagWatch) found() *lagFindings {
	if w == nil {
		return nil
	}
	return w.latest.Load()
}

// of is how far the table has taken a claim. What it says of the lag is of the last look, unless the claim knows a newer
// end.
func (f *lagFindings) of(c connector.ClaimStatus) health.Partition {
	p := health.Partition{Topic: c.Partition.Topic, ID: c.Partition.ID, Position: c.Position, End: c.End, Table: c.Table}
	if f == nil {
		return p
	}
	if end, ok := f.ends[c.Partition]; ok {
		if p.End = max(end, c.End); c.Hold != nil { // a held claim is not read, so its own end is old
			p.End = end
		}
	}
	if l, ok := f.Partitions[health.TopicPartition{Topic: p.Topic, Partition: p.ID}]; ok {
		p.Verdict, p.Level = l.Verdict, l.Level
		if l.Adjusted >= 0 {
			p.Adjusted = &l.Adjusted
		}
	}
	return p
}
