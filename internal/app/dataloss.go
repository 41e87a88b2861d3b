package app

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
	"sluice/reliability/hold"
)

const (
	// watchLoss is the pause between two polls of the retention of topics and of the timestamps at positions. soonLoss
	// is the pause before the first poll.
	watchLoss = time.Minute
	soonLoss  = 10 * time.Second
	// lossTimeout bounds one request to Kafka.
	lossTimeout = 10 * time.Second
)

// lossWatch computes sluice_seconds_to_data_loss for each claim: how long retention still keeps the oldest record that
// is not in the table. It considers time only: brokers keep a record batch for at least retention.ms after its newest
// timestamp, unless retention.bytes deletes it earlier. A claim whose records cannot be lost has +Inf.
type lossWatch struct {
	status   func() connector.Status
	settings func(ctx context.Context, topic string) (kafka.TopicSettings, error)
	timeAt   func(ctx context.Context, p connector.Partition, offset, largest int64) (time.Time, error)
	logger   *slog.Logger
	left     *prometheus.Desc
	kept     *prometheus.Desc

	refused map[string]bool // topics whose settings Kafka refused to this member, which is logged once; owned by run

	mu        sync.Mutex
	until     map[connector.Partition]deadline
	retention map[string]float64 // the retention of each topic, in seconds
}

// deadline is the time from which the brokers may delete the oldest record of a claim that is not in the table.
type deadline struct {
	never bool      // true if retention.ms does not apply to the topic, or if all records are in the table
	at    time.Time // zero if the record is deleted already
	// newest is the newest timestamp of the record batch at position; zero if Kafka was not asked for it.
	newest   time.Time
	position int64
}

func newLossWatch(s *Member) *lossWatch {
	w := &lossWatch{
		status: s.pipeline.Status, settings: s.client.TopicSettings, timeAt: s.log.TimeAt, logger: s.logger,
		refused: map[string]bool{}, until: map[connector.Partition]deadline{}, retention: map[string]float64{},
	}
	w.describe()
	return w
}

func (w *lossWatch) describe() {
	w.left = prometheus.NewDesc("sluice_seconds_to_data_loss",
		"Time until retention.ms lets brokers delete the oldest record that is not in the table, 0 if they have, +Inf if they never do.",
		[]string{"topic", "partition"}, nil)
	w.kept = prometheus.NewDesc("sluice_topic_retention_seconds",
		"How long retention.ms lets records of a topic live, +Inf if they are never deleted for their age.", []string{"topic"}, nil)
}

// run polls once a minute until ctx ends.
func (w *lossWatch) run(ctx context.Context) {
	for pause := soonLoss; reliability.Wait(ctx, pause) == nil; pause = watchLoss {
		w.poll(ctx)
	}
}

// poll computes the deadlines of the claims that this member has now, and the retention of their topics, and stores
// them in place of the earlier ones. If ctx ends, it stores nothing.
func (w *lossWatch) poll(ctx context.Context) {
	topics := map[string][]connector.ClaimStatus{}
	for _, c := range w.status().Claims {
		topics[c.Partition.Topic] = append(topics[c.Partition.Topic], c)
	}
	found, retention := map[connector.Partition]deadline{}, map[string]float64{}
	for _, name := range slices.Sorted(maps.Keys(topics)) {
		settings, err := w.topic(ctx, name)
		if ctx.Err() != nil {
			return
		}
		switch {
		case err == nil && settings.Delete && settings.RetentionTime >= 0:
			retention[name] = settings.RetentionTime.Seconds()
		case err == nil:
			retention[name] = math.Inf(1)
		case !w.refused[name]:
			if before, ok := w.retention[name]; ok { // needs no lock, because no other goroutine changes it
				retention[name] = before
			}
		}
		for _, c := range topics[name] {
			if c.Position < 0 {
				continue
			}
			switch d, known := w.claim(ctx, c, settings, err); {
			case ctx.Err() != nil:
				return
			case known:
				found[c.Partition] = d
			}
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.until, w.retention = found, retention
}

// topic fetches the settings of a topic. If Kafka denies them, topic notes the topic in w.refused and logs that once,
// until a request succeeds again.
func (w *lossWatch) topic(ctx context.Context, name string) (kafka.TopicSettings, error) {
	asking, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	s, err := w.settings(asking, name)
	switch {
	case err == nil:
		delete(w.refused, name)
	case ctx.Err() != nil || w.refused[name]:
	case classify.Of(err) == classify.Fatal:
		w.refused[name] = true
		w.logger.WarnContext(ctx, "failed to read the retention of a topic, so sluice_seconds_to_data_loss is missing for it; allow DescribeConfigs on the topic",
			"topic", name, "err", err)
	default:
		w.logger.DebugContext(ctx, "failed to read the settings of a topic; keeping the last retention", "topic", name, "err", err)
	}
	return s, err
}

// claim returns the deadline of a claim; the zero deadline if records are lost already, and false if it is unknown.
// failure is the error of reading the topic's settings, or nil. While Kafka does not respond, claim returns the
// deadline of the last poll, because an outage does not postpone the loss.
func (w *lossWatch) claim(ctx context.Context, c connector.ClaimStatus, s kafka.TopicSettings, failure error) (deadline, bool) {
	switch {
	case c.Hold != nil && c.Hold.Reason == hold.BehindLogStart:
		return deadline{}, true
	case w.refused[c.Partition.Topic]:
		return deadline{}, false
	case failure != nil:
		return w.before(c.Partition)
	case c.Hold == nil && c.Position >= c.End, !s.Delete, s.RetentionTime < 0: // only if the claim is not held, because the end offset of a held claim may be old
		return deadline{never: true}, true
	}
	asking, cancel := context.WithTimeout(ctx, lossTimeout)
	defer cancel()
	newest, err := w.timeAt(asking, c.Partition, c.Position, s.MaxBatch)
	if err == nil {
		return deadline{at: newest.Add(s.RetentionTime), newest: newest, position: c.Position}, true
	}
	held := (*hold.Error)(nil)
	switch errors.As(err, &held); {
	case held != nil && held.Reason == hold.BehindLogStart:
		return deadline{}, true
	case held != nil && held.Reason == hold.AheadOfLogEnd: // the position is after the end of the log, so there is no unread record
		return deadline{never: true}, true
	}
	w.logger.DebugContext(ctx, "failed to read the timestamp of the next record; keeping the last deadline", "topic", c.Partition.Topic, "partition", c.Partition.ID, "err", err)
	return w.before(c.Partition)
}

// before returns the deadline of a claim from the last poll, for use while the current one is unknown. Positions only
// advance, so the current one is not earlier. It returns false if the last poll found no deadline. If the last poll
// found all records in the table, it also returns false, unless the topic keeps records for ever: newer ones may be
// lost.
func (w *lossWatch) before(p connector.Partition) (deadline, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	d, ok := w.until[p]
	return d, ok && (!d.never || math.IsInf(w.retention[p.Topic], 1))
}

// longest returns the longest known retention of those topics for which meant returns true. It returns 0 if none is
// known, and math.MaxInt64 if Kafka keeps the records of one of them for ever.
func (w *lossWatch) longest(meant func(topic string) bool) (longest time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for topic, seconds := range w.retention {
		switch {
		case !meant(topic):
		case seconds >= math.MaxInt64/float64(time.Second):
			return math.MaxInt64
		default:
			longest = max(longest, time.Duration(seconds*float64(time.Second)))
		}
	}
	return longest
}

// timeOf returns the newest timestamp of the record batch at a position, or the zero time if the watch has not fetched
// it.
func (w *lossWatch) timeOf(p connector.Partition, position int64) time.Time {
	if w == nil {
		return time.Time{}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if d, ok := w.until[p]; ok && d.position == position {
		return d.newest
	}
	return time.Time{}
}

// Describe implements prometheus.Collector.
func (w *lossWatch) Describe(descs chan<- *prometheus.Desc) {
	descs <- w.left
	descs <- w.kept
}

// Collect implements prometheus.Collector. It counts the time down between two polls.
func (w *lossWatch) Collect(metrics chan<- prometheus.Metric) {
	w.mu.Lock()
	defer w.mu.Unlock()
	sent := map[string]bool{}
	for p, d := range w.until {
		// After the topic was created again, there may be two claims of this name; a second sample with equal labels
		// would fail the scrape.
		if sent[p.String()] {
			continue
		}
		sent[p.String()] = true
		left := math.Inf(1)
		if !d.never {
			left = max(0, time.Until(d.at).Seconds())
		}
		metrics <- prometheus.MustNewConstMetric(w.left, prometheus.GaugeValue, left, p.Topic, strconv.Itoa(int(p.ID)))
	}
	for topic, seconds := range w.retention {
		metrics <- prometheus.MustNewConstMetric(w.kept, prometheus.GaugeValue, seconds, topic)
	}
}

// watchDataLoss registers the metrics of data loss and starts the watch that computes them. The watch ends with ctx.
func (s *Member) watchDataLoss(ctx context.Context, background *sync.WaitGroup) error {
	if err := s.registry.Register(s.losses); err != nil {
		return fmt.Errorf("register the metrics of data loss: %w", err)
	}
	background.Go(func() { s.losses.run(ctx) })
	return nil
}
