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
	// endsTimeout bounds the requests for all end offsets of one poll. A partition whose leader does not respond in
	// this time has no end offset in this poll. It is half of the default interval, because in an outage of Kafka these
	// requests must open the breaker: five of them must fail within a minute.
	endsTimeout = 5 * time.Second
	// statusAge is a part of the time that a poll waits between the end offsets and the positions. The status that the
	// pipeline publishes is never older, so it then has the positions of a later moment.
	statusAge = time.Second
	// lagLogEvery is the time between two log lines while the lag stays unhealthy.
	lagLogEvery = 5 * time.Minute
)

// lagWatch polls the end offsets of all claims, held ones too, and lets the monitor judge the lag. It has its own
// goroutine and requests, so the pipeline never waits for it.
type lagWatch struct {
	rules      health.LagRules
	grace      time.Duration
	status     func() connector.Status
	bounds     func(context.Context, []connector.Position) (map[connector.Partition]connector.Bounds, error)
	ask        func(ctx context.Context, op func(context.Context) error) error // calls op once through the guard of Kafka; returns an error if its breaker is open
	thresholds func(topic string) health.LagThresholds
	logger     *slog.Logger

	latest atomic.Pointer[lagFindings]

	// Owned by run:
	monitor           *health.Monitor
	unhealthy         time.Time              // when the lag became unhealthy; zero while it is healthy
	logged            time.Time              // the time of the last log line UNHEALTHY
	endOffsetsFailing reliability.FailureLog // limits the log lines about failed polls
}

// lagFindings is the result of one poll. It is immutable.
type lagFindings struct {
	health.LagReport
	ends map[connector.Partition]int64 // the newest known end offsets
}

func newLagWatch(s *Member) *lagWatch {
	c := s.config
	rules := c.LagRules()
	return &lagWatch{
		rules: rules, grace: min(c.Kafka.Fetch.MaxWait+statusAge, rules.Every), status: s.pipeline.Status, bounds: s.log.Bounds, ask: s.kafkaGuard.Try,
		thresholds: func(topic string) health.LagThresholds {
			t, _, _ := c.Route(topic) // a topic outside the configuration has none
			return t.Lag
		},
		logger: s.logger, monitor: health.NewMonitor(rules),
	}
}

// run polls at the configured interval until ctx ends.
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

// poll fetches the end offsets, waits for a moment, reads the claims' positions, and judges the lag. The moment gives
// the pipeline time to read records that were produced just before the end offsets were fetched.
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
		} else if before := w.latest.Load(); before != nil { // an end offset from an earlier poll is reported, but not judged
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

// ends requests the end offsets of the claims once. If some leaders do not respond, it returns the end offsets from the
// leaders that do, and an error.
func (w *lagWatch) ends(ctx context.Context, claims []connector.ClaimStatus) (map[connector.Partition]int64, error) {
	if len(claims) == 0 {
		return nil, nil
	}
	positions := make([]connector.Position, len(claims))
	for i, c := range claims {
		positions[i] = connector.Position{Partition: c.Partition, Next: -1, Epoch: -1}
	}
	asking, cancel := context.WithTimeout(ctx, min(endsTimeout, w.rules.Every))
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
			return nil // if single leaders do not respond, this must not open the breaker of all requests to Kafka
		}
		return missed
	})
	err = cmp.Or(err, missed)
	return ends, err
}

// sample returns the lag sample of a claim, without its end offset.
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

// log logs each change between healthy and unhealthy, and repeats the line every lagLogEvery while the lag is
// unhealthy. It also logs err, the failure of the poll, as often as endOffsetsFailing allows.
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
		w.endOffsetsFailing.Over(ctx, w.logger, "fetching end offsets works again")
		return
	}
	w.endOffsetsFailing.Failed(ctx, w.logger, slog.LevelWarn, "failed to fetch end offsets; keeping the last lag", "err", err)
}

// found returns the result of the last poll. It returns nil before the first poll, and if w is nil.
func (w *lagWatch) found() *lagFindings {
	if w == nil {
		return nil
	}
	return w.latest.Load()
}

// of returns the progress of a claim in its table, with the verdict of the last poll. The end offset is the greater one
// of two: the newest one that a poll has fetched, and that of the claim's last fetch. A held claim does not fetch, so
// its end offset is that of the polls, or that of its last fetch if no poll has one.
func (f *lagFindings) of(c connector.ClaimStatus) health.Partition {
	p := health.Partition{Topic: c.Partition.Topic, ID: c.Partition.ID, Position: c.Position, End: c.End, Table: c.Table}
	if f == nil {
		return p
	}
	if end, ok := f.ends[c.Partition]; ok {
		if p.End = max(end, c.End); c.Hold != nil { // a held claim does not fetch, so its own end offset may be old
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
