package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"math"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/reliability"
)

const (
	// watchLoss is how often a topic's retention and the records at its positions are looked at, soonLoss how soon first.
	watchLoss = time.Minute
	soonLoss  = 10 * time.Second
	// askLoss bounds one question.
	askLoss = 10 * time.Second
)

// lossWatch says how long retention lets the oldest record of each claim live that is not in the table:
// sluice_seconds_to_data_loss. It promises no more than time: brokers keep a batch for retention.ms after its newest
// timestamp at least, unless retention.bytes is reached before. A claim whose records cannot be lost has +Inf.
type lossWatch struct {
	status   func() connector.Status
	settings func(ctx context.Context, topic string) (kafka.TopicSettings, error)
	timeAt   func(ctx context.Context, p connector.Partition, offset, largest int64) (time.Time, error)
	logger   *slog.Logger
	desc     *prometheus.Desc

	refused map[string]bool // topics whose settings we may not see, as the log has it; owned by run

	mu    sync.Mutex
	until map[connector.Partition]deadline
}

// deadline is when the brokers may delete what a claim has not read.
type deadline struct {
	never bool
	at    time.Time // the zero time: it is deleted already
}

func newLossWatch(s *system) *lossWatch {
	return &lossWatch{
		status: s.connector.Status, settings: s.client.TopicSettings, timeAt: s.log.TimeAt, logger: s.logger,
		desc: prometheus.NewDesc("sluice_seconds_to_data_loss",
			"Time until retention.ms lets brokers delete the oldest record that is not in the table, 0 if they have, +Inf if they never do.",
			[]string{"topic", "partition"}, nil),
		refused: map[string]bool{}, until: map[connector.Partition]deadline{},
	}
}

// run looks once a minute until ctx ends.
func (w *lossWatch) run(ctx context.Context) {
	for pause := soonLoss; reliability.Wait(ctx, pause) == nil; pause = watchLoss {
		w.look(ctx)
	}
}

// look asks for what it takes to know the deadlines of the claims that this member has now.
func (w *lossWatch) look(ctx context.Context) {
	topics := map[string][]connector.ClaimStatus{}
	for _, c := range w.status().Claims {
		if c.Position >= 0 {
			topics[c.Partition.Topic] = append(topics[c.Partition.Topic], c)
		}
	}
	found := map[connector.Partition]deadline{}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		settings, err := w.topic(ctx, name)
		if ctx.Err() != nil {
			return
		}
		for _, c := range topics[name] {
			switch d, known := w.claim(ctx, c, settings, err == nil); {
			case ctx.Err() != nil:
				return
			case known:
				found[c.Partition] = d
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until = found
}

// topic asks for the settings of a topic. That we may not see them is told once.
func (w *lossWatch) topic(ctx context.Context, name string) (kafka.TopicSettings, error) {
	asking, cancel := context.WithTimeout(ctx, askLoss)
	defer cancel()
	s, err := w.settings(asking, name)
	switch {
	case err == nil:
		delete(w.refused, name)
	case ctx.Err() != nil || w.refused[name]:
	case classify.Of(err) == classify.Fatal:
		w.refused[name] = true
		w.logger.WarnContext(ctx, "the retention of a topic cannot be seen, sluice_seconds_to_data_loss is missing for it; allow DescribeConfigs on the topic",
			"topic", name, "err", err)
	default:
		w.logger.DebugContext(ctx, "retention of a topic", "topic", name, "err", err)
	}
	return s, err
}

// claim finds the deadline of a claim. known says whether the topic's settings are.
func (w *lossWatch) claim(ctx context.Context, c connector.ClaimStatus, s kafka.TopicSettings, known bool) (deadline, bool) {
	switch {
	case c.Hold != nil && c.Hold.Reason == connector.ReasonBehindLogStart:
		return deadline{}, true
	case !known:
		return deadline{}, false
	case c.Hold == nil && c.Position >= c.End, !s.Delete, s.RetentionTime < 0: // the end that a held claim knows may be old
		return deadline{never: true}, true
	}
	asking, cancel := context.WithTimeout(ctx, askLoss)
	defer cancel()
	newest, err := w.timeAt(asking, c.Partition, c.Position, s.MaxBatch)
	if err == nil {
		return deadline{at: newest.Add(s.RetentionTime)}, true
	}
	held := (*connector.HoldError)(nil)
	switch errors.As(err, &held); {
	case held != nil && held.Reason == connector.ReasonBehindLogStart:
		return deadline{}, true
	case held != nil && held.Reason == connector.ReasonAheadOfLogEnd: // nothing is there that could be lost
		return deadline{never: true}, true
	}
	w.logger.DebugContext(ctx, "time of the record at a position", "topic", c.Partition.Topic, "partition", c.Partition.ID, "err", err)
	w.mu.Lock()
	defer w.mu.Unlock()
	before, ok := w.until[c.Partition] // of an earlier position, so no later than the one that is not known
	return before, ok && !before.never
}

// Describe implements prometheus.Collector.
func (w *lossWatch) Describe(descs chan<- *prometheus.Desc) { descs <- w.desc }

// Collect implements prometheus.Collector. The time goes on between the looks.
func (w *lossWatch) Collect(metrics chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	told := map[string]bool{}
	for p, d := range w.until {
		if told[p.String()] { // a topic that was created again: a second sample of the same labels would fail the scrape
			continue
		}
		told[p.String()] = true
		left := math.Inf(1)
		if !d.never {
			left = max(0, time.Until(d.at).Seconds())
		}
		metrics <- prometheus.MustNewConstMetric(w.desc, prometheus.GaugeValue, left, p.Topic, strconv.Itoa(int(p.ID)))
	}
}

// watchDataLoss starts to say how long unread records live. It ends with ctx.
func (s *system) watchDataLoss(ctx context.Context, background *sync.WaitGroup) error {
	w := newLossWatch(s)
	if err := s.registry.Register(w); err != nil {
		return fmt.Errorf("metric of data loss: %w", err)
	}
	background.Go(func() { w.run(ctx) })
	return nil
}
