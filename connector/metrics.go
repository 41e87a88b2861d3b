package connector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/idempotency"
)

type metrics struct {
	queued prometheus.Gauge

	read, tombstones, ignored prometheus.Counter
	rows, commits, fenced     prometheus.Counter
	failed, offsetFailures    prometheus.Counter
	paused, closedSeconds     prometheus.Counter
	shed, unchecked           prometheus.Counter
	cuts, holds               *prometheus.CounterVec
	health, healthUnproven    *prometheus.CounterVec
	lettersOf, letters        *prometheus.CounterVec
	retries                   *prometheus.CounterVec
	commitSeconds             prometheus.Histogram
	duplicates, lookups       *prometheus.CounterVec
	rebuilt                   prometheus.Histogram
}

func newMetrics(reg prometheus.Registerer) *metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &metrics{
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_queued_records", Help: "Records handed over to the lanes that are not rows yet.",
		}),
		read:           counter("sluice_records_read_total", "Records handed over to the lanes."),
		tombstones:     counter("sluice_tombstones_total", "Records without a value, passed over by the tombstones policy."),
		ignored:        counter("sluice_unknown_fields_total", "Fields that the table does not have, passed over."),
		rows:           counter("sluice_rows_committed_total", "Rows in won commits."),
		commits:        counter("sluice_commits_total", "Won commits."),
		fenced:         counter("sluice_fenced_total", "Times that everything uncommitted of a table was dropped because a position moved or an outcome stayed unknown."),
		failed:         counter("sluice_commit_failures_total", "Commits that failed for an unknown reason."),
		offsetFailures: counter("sluice_group_offset_failures_total", "Writes of group offsets that failed; they are tried again."),
		paused:         counter("sluice_paused_total", "Times that the valve closed."),
		closedSeconds:  counter("sluice_paused_seconds_total", "Time that the valve was closed."),
		shed:           counter("sluice_shed_total", "Times that what a partition had waiting was dropped for want of memory; it is read again."),
		unchecked:      counter("sluice_positions_unchecked_total", "Positions that were read on from without their leader epoch: nobody could see whether the log was truncated below them."),
		cuts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_cuts_total", Help: "Batches closed, by what made them due.",
		}, []string{"reason"}),
		health: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_health_records_total", Help: "Records that are health checks (header HEALTHCHECK=TRUE), dropped.",
		}, []string{"topic"}),
		healthUnproven: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_health_records_unproven_total", Help: "Records that claim to be health checks without the secret; they are ordinary records.",
		}, []string{"topic"}),
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_holds_total", Help: "Claims that began to stand still, by reason.",
		}, []string{"reason"}),
		lettersOf: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_dlq_messages_total", Help: "Dead letters that are durable, by the topic of the record. One that is written again after a lost commit counts again.",
		}, []string{"topic"}),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_dead_letters_total", Help: "Dead letters that are durable, by the topic of the record and why it cannot be a row. One that is written again after a lost commit counts again.",
		}, []string{"topic", "reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_retry_count_total", Help: "Attempts after failures of single records, or of batches for a reason that nobody knows, by record_retry.",
		}, []string{"worker", "error", "topic"}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_commit_seconds", Help: "From decision to won commit.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 10),
		}),
		duplicates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_duplicates_total", Help: "Records left out because their identity was in the window already.",
		}, []string{"topic"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_fingerprint_lookups_total", Help: "Records looked up in the window: hit, miss, none (no identity), undated (no timestamp).",
		}, []string{"topic", "result"}),
		rebuilt: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_fingerprint_rebuild_seconds", Help: "Time to read fingerprints back from a table.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.queued, m.read, m.tombstones, m.ignored, m.rows, m.commits, m.fenced,
			m.failed, m.offsetFailures, m.paused, m.closedSeconds, m.shed, m.unchecked, m.cuts, m.holds, m.lettersOf, m.letters, m.commitSeconds,
			m.health, m.healthUnproven, m.duplicates, m.lookups, m.rebuilt, m.retries)
	}
	return m
}

func (m *metrics) committed(p *Plan, took time.Duration) {
	m.commits.Inc()
	m.commitSeconds.Observe(took.Seconds())
	for _, r := range p.Commit.Ranges {
		m.rows.Add(float64(r.Rows))
	}
}

// judged counts what became of the records of a claim that were looked up.
func (m *metrics) judged(topic string, n idempotency.Counts) {
	m.duplicates.WithLabelValues(topic).Add(float64(n.Hits))
	for result, n := range map[string]int64{"hit": n.Hits, "miss": n.Misses, "none": n.None, "undated": n.Undated} {
		m.lookups.WithLabelValues(topic, result).Add(float64(n))
	}
}
