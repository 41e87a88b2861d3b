package connector

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

type metrics struct {
	queued prometheus.Gauge

	read, tombstones, ignored prometheus.Counter
	rows, spoiled             *prometheus.CounterVec
	commits, fenced           prometheus.Counter
	failed, offsetFailures    prometheus.Counter
	paused, resumed           prometheus.Counter
	closedSeconds, longPauses prometheus.Counter
	shed, unchecked           prometheus.Counter
	cuts, holds               *prometheus.CounterVec
	health, healthUnproven    *prometheus.CounterVec
	lettersOf, letters        *prometheus.CounterVec
	replayed                  *prometheus.CounterVec
	retries, keyWaits         *prometheus.CounterVec
	commitSeconds, batchRows  prometheus.Histogram
	processing, freshness     prometheus.Histogram
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
		read:       counter("sluice_records_read_total", "Records handed over to the lanes."),
		tombstones: counter("sluice_tombstones_total", "Records without a value, passed over by the tombstones policy."),
		ignored:    counter("sluice_unknown_fields_total", "Fields that the table does not have, passed over."),
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_rows_committed_total", Help: "Rows in won commits, by the topic of the records.",
		}, []string{"topic"}),
		spoiled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_records_failed_total",
			Help: "Records of batches that were given up and of records that cannot be rows, by the class of the error: poison ones cannot be rows, all others are read again. A batch that waits for a dependency is not given up.",
		}, []string{"topic", "class"}),
		commits:        counter("sluice_commits_total", "Won commits."),
		fenced:         counter("sluice_fenced_total", "Times that everything uncommitted of a table was dropped because a position moved or an outcome stayed unknown."),
		failed:         counter("sluice_commit_failures_total", "Commits that failed for an unknown reason."),
		offsetFailures: counter("sluice_group_offset_failures_total", "Writes of group offsets that failed; they are tried again."),
		paused:         counter("sluice_paused_total", "Times that backpressure paused reading, of all tables or of one."),
		resumed:        counter("sluice_resumed_total", "Times that reading resumed after backpressure."),
		closedSeconds:  counter("sluice_paused_seconds_total", "Time in which backpressure paused reading, of one table at least."),
		longPauses:     counter("sluice_long_pauses_total", "Pauses of reading that lasted a second or longer; the log has a line of each."),
		shed:           counter("sluice_shed_total", "Times that what a partition had waiting was dropped for want of memory; it is read again."),
		unchecked:      counter("sluice_positions_unchecked_total", "Positions that a member read on from without their leader epoch: it could not see whether the log was truncated below them."),
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
			Name: "sluice_holds_total", Help: "Claims that began to stand still, by reason. A claim that waits for a dependency counts once for each outage.",
		}, []string{"reason"}),
		lettersOf: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_dlq_messages_total", Help: "Dead letters that are durable, by the topic of the record. One that is written again after a lost commit counts again.",
		}, []string{"topic"}),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_dead_letters_total", Help: "Dead letters that are durable, by the topic of the record and why it cannot be a row. One that is written again after a lost commit counts again.",
		}, []string{"topic", "reason"}),
		replayed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_dlq_replayed_total", Help: "Dead letters that were brought to the table after all, by the topic of the record.",
		}, []string{"topic"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_retry_count_total", Help: "Attempts after failures of single records, or of batches for a reason that nobody knows, by record_retry.",
		}, []string{"worker", "error", "topic"}),
		keyWaits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_key_waits_total", Help: "Times that a partition waited because queue.per_key records were queued of the key of its next record, or of keys in the same hash slot.",
		}, []string{"topic"}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_commit_seconds", Help: "From decision to won commit.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 10),
		}),
		batchRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_batch_rows", Help: "Rows in a won commit that has any.", Buckets: prometheus.ExponentialBuckets(10, 10, 7),
		}),
		processing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_processing_seconds", Help: "From the hand-over of records to the commit that has them in the table. Records that lie together count once.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 90, 120, 300, 900, 3600},
		}),
		freshness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_freshness_seconds", Help: "From the timestamp of records to the commit that has them in the table. Records that lie together count once, as the oldest of them.",
			Buckets: []float64{.5, 1, 2.5, 5, 10, 20, 40, 60, 90, 120, 300, 900, 3600, 14_400, 86_400, 604_800},
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
	for _, reason := range cutReasons() {
		m.cuts.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(m.queued, m.read, m.tombstones, m.ignored, m.rows, m.spoiled, m.commits, m.fenced,
			m.failed, m.offsetFailures, m.paused, m.resumed, m.closedSeconds, m.longPauses, m.shed, m.unchecked, m.cuts, m.holds, m.lettersOf, m.letters, m.replayed, m.commitSeconds,
			m.batchRows, m.processing, m.freshness,
			m.health, m.healthUnproven, m.duplicates, m.lookups, m.rebuilt, m.retries, m.keyWaits)
	}
	return m
}

// follows shows what is counted by topic, from 0 on, for one that feeds a table.
func (m *metrics) follows(topic, pipeline string, letters bool) {
	m.rows.WithLabelValues(topic)
	m.retries.WithLabelValues(pipeline, failedCode, topic)
	m.keyWaits.WithLabelValues(topic)
	for _, c := range []classify.Class{classify.Transient, classify.Poison, classify.Fatal, classify.Fenced} {
		m.spoiled.WithLabelValues(topic, c.String())
	}
	if letters {
		m.lettersOf.WithLabelValues(topic)
		m.replayed.WithLabelValues(topic)
	}
}

// leaves forgets a topic.
func (m *metrics) leaves(topic string) {
	for _, v := range []*prometheus.CounterVec{
		m.rows, m.spoiled, m.health, m.healthUnproven, m.lettersOf, m.letters, m.replayed, m.retries, m.keyWaits, m.duplicates, m.lookups,
	} {
		v.DeletePartialMatch(prometheus.Labels{"topic": topic})
	}
}

// committed counts what a plan brought to the table.
func (m *metrics) committed(p *Plan, took time.Duration) {
	m.commits.Inc()
	m.commitSeconds.Observe(took.Seconds())
	var rows int64
	for _, r := range p.Commit.Ranges {
		rows += r.Rows
		m.rows.WithLabelValues(r.Topic).Add(float64(r.Rows))
		m.spoils(r.Topic, classify.Poison, r.Letters)
	}
	if rows > 0 {
		m.batchRows.Observe(float64(rows))
	}
	now := time.Now()
	for _, w := range p.ways {
		m.processing.Observe(now.Sub(time.Unix(0, w.handed)).Seconds())
		if w.oldest > 0 {
			m.freshness.Observe(max(now.Sub(time.UnixMilli(w.oldest)).Seconds(), 0))
		}
	}
}

// stopped counts the records that stop their claims behind a plan.
func (m *metrics) stopped(p *Plan) {
	for _, h := range p.Holds {
		if h.Reason == hold.Poison {
			m.spoils(h.Partition.Topic, classify.Poison, 1)
		}
	}
}

// lost counts the records of a plan that did not come to the table.
func (m *metrics) lost(p *Plan, class classify.Class) {
	if class == classify.Canceled {
		return // we were asked to stop
	}
	for _, r := range p.Commit.Ranges {
		m.spoils(r.Topic, class, r.Rows+r.Letters)
	}
}

// broken counts the records of a cut that failed in our own work.
func (m *metrics) broken(c *Cut) {
	rows := func(runs []Run) {
		for i := range runs {
			if r := &runs[i]; r.within(c.Claims) {
				m.spoils(r.Partition.Topic, classify.Transient, r.To-r.From)
			}
		}
	}
	for _, chunk := range c.Chunks {
		rows(chunk.Runs)
	}
	for _, f := range c.failures {
		if rows(f.runs); !f.sealing { // else the record is one of the rows
			m.spoils(f.partition.Topic, classify.Transient, 1)
		}
	}
}

func (m *metrics) spoils(topic string, class classify.Class, records int64) {
	m.spoiled.WithLabelValues(topic, class.String()).Add(float64(records))
}

// judged counts what became of the records of a claim that were looked up.
func (m *metrics) judged(topic string, n idempotency.Counts) {
	m.duplicates.WithLabelValues(topic).Add(float64(n.Hits))
	for result, n := range map[string]int64{"hit": n.Hits, "miss": n.Misses, "none": n.None, "undated": n.Undated} {
		m.lookups.WithLabelValues(topic, result).Add(float64(n))
	}
}
