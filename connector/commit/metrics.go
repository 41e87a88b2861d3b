package commit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// Metrics are what the writers of all tables count.
type Metrics struct {
	commits, failed                                                           prometheus.Counter
	commitSeconds, batchRows, processing, freshness, rebuilt                  prometheus.Histogram
	rows, spoiled, lettersOf, letters, replayed, retries, duplicates, lookups *prometheus.CounterVec
}

// NewMetrics returns the metrics, registered with reg unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_rows_committed_total", Help: "Rows in won commits, by the topic of the records.",
		}, []string{"topic"}),
		spoiled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_records_failed_total",
			Help: "Records of batches that were given up and of records that cannot be rows, by the class of the error: poison ones cannot be rows, all others are read again. A batch that waits for a dependency is not given up.",
		}, []string{"topic", "class"}),
		commits: counter("sluice_commits_total", "Won commits."),
		failed:  counter("sluice_commit_failures_total", "Commits that failed for an unknown reason."),
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
	if reg != nil {
		reg.MustRegister(m.rows, m.spoiled, m.commits, m.failed, m.lettersOf, m.letters, m.replayed, m.retries, m.commitSeconds, m.batchRows, m.processing, m.freshness, m.duplicates, m.lookups, m.rebuilt)
	}
	return m
}

// follows shows what is counted by topic, from 0 on, for one that feeds a table.
func (m *Metrics) follows(topic, pipeline string, letters bool) {
	m.rows.WithLabelValues(topic)
	m.retries.WithLabelValues(pipeline, failedCode, topic)
	for _, c := range []classify.Class{classify.Transient, classify.Poison, classify.Fatal, classify.Fenced} {
		m.spoiled.WithLabelValues(topic, c.String())
	}
	if letters {
		m.lettersOf.WithLabelValues(topic)
		m.replayed.WithLabelValues(topic)
	}
}

// leaves forgets a topic.
func (m *Metrics) leaves(topic string) {
	for _, v := range []*prometheus.CounterVec{m.rows, m.spoiled, m.lettersOf, m.letters, m.replayed, m.retries, m.duplicates, m.lookups} {
		v.DeletePartialMatch(prometheus.Labels{"topic": topic})
	}
}

// committed counts what a plan brought to the table.
func (m *Metrics) committed(p *plan.Plan, took time.Duration) {
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
	for _, w := range p.Arrivals {
		m.processing.Observe(now.Sub(time.Unix(0, w.Enqueued)).Seconds())
		if w.Oldest > 0 {
			m.freshness.Observe(max(now.Sub(time.UnixMilli(w.Oldest)).Seconds(), 0))
		}
	}
}

// stopped counts the records that stop their claims behind a plan.
func (m *Metrics) stopped(p *plan.Plan) {
	for _, h := range p.Holds {
		if h.Reason == hold.Poison {
			m.spoils(h.Partition.Topic, classify.Poison, 1)
		}
	}
}

// conflict counts the records of a plan that did not come to the table.
func (m *Metrics) conflict(p *plan.Plan, class classify.Class) {
	if class == classify.Canceled {
		return // we were asked to stop
	}
	for _, r := range p.Commit.Ranges {
		m.spoils(r.Topic, class, r.Rows+r.Letters)
	}
}

// broken counts the records of a cut that failed in our own work.
func (m *Metrics) broken(c *plan.SealedBatch) {
	rows := func(runs []plan.Run) {
		for i := range runs {
			if r := &runs[i]; r.Within(c.Claims) {
				m.spoils(r.Partition.Topic, classify.Transient, r.To-r.From)
			}
		}
	}
	for _, chunk := range c.Chunks {
		rows(chunk.Runs)
	}
	for _, f := range c.Failures {
		if rows(f.Runs); !f.Sealing { // else the record is one of the rows
			m.spoils(f.Partition.Topic, classify.Transient, 1)
		}
	}
}

func (m *Metrics) spoils(topic string, class classify.Class, records int64) {
	m.spoiled.WithLabelValues(topic, class.String()).Add(float64(records))
}

// judged counts what became of the records of a claim that were looked up.
func (m *Metrics) judged(topic string, n idempotency.Counts) {
	m.duplicates.WithLabelValues(topic).Add(float64(n.Hits))
	for result, n := range map[string]int64{"hit": n.Hits, "miss": n.Misses, "none": n.None, "undated": n.Undated} {
		m.lookups.WithLabelValues(topic, result).Add(float64(n))
	}
}
