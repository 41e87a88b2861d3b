package app

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/open"
	"sluice/reliability"
)

// newFingerprints returns the memory for the fingerprints of all tables of this member. When the memory is full, it
// drops the oldest fingerprints and logs that at most once a minute.
func newFingerprints(c *config.Config, logger *slog.Logger) *idempotency.Memory {
	lines := reliability.NewSparse(1, time.Minute)
	return idempotency.NewMemory(c.Budget.Fingerprints, func(f idempotency.Forgotten) {
		if left, ok := lines.Next(); ok {
			logger.Warn("fingerprint memory is full; forgetting the oldest, so their duplicates become rows; raise memory.limit, or declare the rate",
				"topic", f.Scope.Partition.Topic, "partition", f.Scope.Partition.ID, "forgotten", f.Entries,
				"whole_since", time.UnixMilli(f.Before).UTC(), "limit", config.RoundSize(c.Budget.Fingerprints), "left_out", left)
		}
	})
}

// remember opens the store of fingerprints: this process's memory, or Postgres if the configuration names it. Tests
// replace Postgres by their own store.
func (s *Member) remember(ctx context.Context, replaced func(*reliability.Guard) idempotency.Store) error {
	s.fingerprints = newFingerprints(s.config, s.logger)
	s.registry.MustRegister(newFingerprintMetrics(s.fingerprints))
	s.remembering = s.fingerprints
	if s.config.Fingerprints.Store != "postgres" {
		return nil
	}
	s.fingerprintGuard = s.guard("postgres")
	if replaced != nil {
		s.remembering = replaced(s.fingerprintGuard)
		return nil
	}
	store, err := open.Fingerprints(ctx, s.config, s.fingerprintGuard, s.logger)
	if err != nil {
		return fmt.Errorf("fingerprints.url_file: %w", err)
	}
	s.remembering, s.forget = store, store.Close
	return nil
}

// duplicates returns the settings by which the table of a topic detects duplicates, nil if the topic declares no
// identity.
func (s *Member) duplicates(t config.Topic) *connector.Duplicates {
	id := t.ProducerIdentity()
	if id.By == idempotency.ByNone {
		return nil
	}
	return &connector.Duplicates{
		Identity: id, Window: t.Identity.Window, Sweep: t.Identity.Sweep, Store: s.remembering, IDs: s.config.Fingerprints.Store == "postgres",
		Reset: func(p connector.Partition) int64 {
			return s.operations.State().Forgotten(p.Topic, p.TopicID.String(), p.ID)
		},
	}
}

// fingerprintMetrics collects the use of the fingerprint memory.
type fingerprintMetrics struct {
	memory                         *idempotency.Memory
	entries, bytes, limit, dropped *prometheus.Desc
}

func newFingerprintMetrics(m *idempotency.Memory) fingerprintMetrics {
	return fingerprintMetrics{
		memory:  m,
		entries: prometheus.NewDesc("sluice_fingerprints", "Fingerprints that are remembered.", nil, nil),
		bytes:   prometheus.NewDesc("sluice_fingerprint_bytes", "Memory that fingerprints take.", nil, nil),
		limit:   prometheus.NewDesc("sluice_fingerprint_limit_bytes", "Memory that fingerprints may take.", nil, nil),
		dropped: prometheus.NewDesc("sluice_fingerprints_forgotten_total", "Fingerprints that were forgotten before their time, for want of memory.", nil, nil),
	}
}

// Describe implements prometheus.Collector.
func (f fingerprintMetrics) Describe(out chan<- *prometheus.Desc) {
	out <- f.entries
	out <- f.bytes
	out <- f.limit
	out <- f.dropped
}

// Collect implements prometheus.Collector.
func (f fingerprintMetrics) Collect(out chan<- prometheus.Metric) {
	s := f.memory.Stats()
	out <- prometheus.MustNewConstMetric(f.entries, prometheus.GaugeValue, float64(s.Entries))
	out <- prometheus.MustNewConstMetric(f.bytes, prometheus.GaugeValue, float64(s.Bytes))
	out <- prometheus.MustNewConstMetric(f.limit, prometheus.GaugeValue, float64(s.Limit))
	out <- prometheus.MustNewConstMetric(f.dropped, prometheus.CounterValue, float64(s.Lost))
}
