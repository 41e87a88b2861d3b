// Package canary produces a test record at intervals to a topic of its own and measures the time until a reader of the
// table sees it. It knows neither Kafka nor Delta: its caller provides the functions that produce a record and that
// query the table.
package canary

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/health"
	"sluice/reliability"
)

// Place is where a record was put.
type Place struct {
	Partition int32
	Offset    int64
}

// Config of a canary. All fields are needed.
type Config struct {
	Topic string
	// Every is the interval at which records are sent. A record is sent only once the one before is seen or given up,
	// so a late record delays the next one.
	Every time.Duration
	// Deadline is the longest time that a record may take from before it is sent until it is found. A record that takes
	// longer has failed.
	Deadline time.Duration
	// Poll is the interval at which the table is searched for a record that was sent and not seen yet.
	Poll time.Duration
	// Produce sends the n-th record, once, and returns its place when it is durable.
	Produce func(ctx context.Context, n int64, sent time.Time) (Place, error)
	// Visible reports whether readers of the table see the record at a place. It must read the table as they do, not
	// the state of a writer.
	Visible func(ctx context.Context, n int64, at Place) (bool, error)

	Logger     *slog.Logger
	Registerer prometheus.Registerer
}

// The stages in which a record may fail.
const (
	stageProduce = "produce"
	stageVisible = "visible"
)

// A Canary sends the canary records of one member and searches the table for them. If they fail, no claim is held and
// nothing is stopped.
type Canary struct {
	Config
	took     prometheus.Histogram
	success  prometheus.Gauge
	failures *prometheus.CounterVec

	mu      sync.Mutex
	state   health.Canary
	failing reliability.FailureLog
}

// New returns a canary that sends nothing before Run. An error means that its metrics cannot be registered.
func New(c Config) (*Canary, error) {
	k := &Canary{
		Config: c,
		took: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "sluice_canary_seconds",
			Help:    "How long canaries took from before they were produced until a reader of their table could see them.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 30, 60, 120, 300},
		}),
		success: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_canary_last_success_timestamp_seconds",
			Help: "When the last canary was seen in its table, 0 if none was.",
		}),
		failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_canary_failures_total",
			Help: "Canaries that were not produced, or not visible in time, by stage.",
		}, []string{"stage"}),
		state: health.Canary{Topic: c.Topic},
	}
	for _, stage := range []string{stageProduce, stageVisible} {
		k.failures.WithLabelValues(stage)
	}
	interval := prometheus.NewGauge(prometheus.GaugeOpts{
		Name: "sluice_canary_interval_seconds", Help: "How often canaries are sent.",
	})
	interval.Set(c.Every.Seconds())
	for _, m := range []prometheus.Collector{k.took, k.success, k.failures, interval} {
		if err := c.Registerer.Register(m); err != nil {
			return nil, fmt.Errorf("metrics of the canary: %w", err)
		}
	}
	return k, nil
}

// State returns the result of the last canary records. It is safe for concurrent use.
func (k *Canary) State() health.Canary {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.state
}

// Run sends canaries until ctx ends.
func (k *Canary) Run(ctx context.Context) {
	for n := int64(0); ; n++ {
		sent := time.Now()
		stage, err := k.send(ctx, n, sent)
		if ctx.Err() != nil {
			return
		}
		k.note(ctx, sent, stage, err)
		if reliability.Wait(ctx, time.Until(sent.Add(k.Every))) != nil {
			return
		}
	}
}

// send sends one canary record and waits until it is visible; then it returns "" and nil. If it fails, stage is the
// stage in which it failed.
func (k *Canary) send(ctx context.Context, n int64, sent time.Time) (stage string, err error) {
	ctx, cancel := context.WithDeadline(ctx, sent.Add(k.Deadline))
	defer cancel()
	at, err := k.Produce(ctx, n, sent)
	if err != nil {
		return stageProduce, err
	}
	poll := time.NewTicker(k.Poll)
	defer poll.Stop()
	var last error
	for {
		seen, err := k.Visible(ctx, n, at)
		if seen {
			return "", nil
		}
		if ctx.Err() == nil {
			last = err
		}
		select {
		case <-ctx.Done():
			if last == nil {
				last = errors.New("it is not in the table")
			}
			return stageVisible, fmt.Errorf("partition %d, offset %d, after %v: %w", at.Partition, at.Offset, k.Deadline, last)
		case <-poll.C:
		}
	}
}

// note puts the result of a canary record into the state, the metrics and the log. stage and err are what send
// returned.
func (k *Canary) note(ctx context.Context, sent time.Time, stage string, err error) {
	now := time.Now()
	k.mu.Lock()
	defer k.mu.Unlock()
	if err == nil {
		seconds := now.Sub(sent).Seconds()
		k.took.Observe(seconds)
		k.success.Set(float64(now.UnixMilli()) / 1e3)
		k.state = health.Canary{Topic: k.Topic, Seen: &now, Seconds: &seconds}
		k.failing.Over(ctx, k.Logger, "canaries arrive again", "topic", k.Topic, "took", now.Sub(sent))
		return
	}
	k.failures.WithLabelValues(stage).Inc()
	k.state.Stage, k.state.Error = stage, err.Error()
	if k.state.Failing == nil {
		k.state.Failing = &sent
	}
	k.failing.Failed(ctx, k.Logger, slog.LevelWarn, "UNHEALTHY: a canary did not arrive", "topic", k.Topic, "stage", stage, "err", err)
}
