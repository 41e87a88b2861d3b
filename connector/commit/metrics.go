package commit

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// Metrics are the metrics of the writers of all tables.
type Metrics struct {
	commits, failed, full                                                               prometheus.Counter
	commitSeconds, batchRows, processing, freshness, rebuilt                            prometheus.Histogram
	rows, failedRecords, lettersByTopic, letters, retries, duplicates, lookups, origins *prometheus.CounterVec
}

// NewMetrics returns the metrics and registers them with reg unless it is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		rows: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_rows_committed_total", Help: "Rows in successful commits, by the topic of the records.",
		}, []string{"topic"}),
		failedRecords: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_records_failed_total",
			Help: "Failed records, by the class of the error. Class poison: the record cannot become a row. Other classes: its batch was dropped, and the record is read again. A batch that waits for a dependency does not count.",
		}, []string{"topic", "class"}),
		commits: counter("sluice_commits_total", "Successful commits."),
		failed:  counter("sluice_commit_failures_total", "Commits that failed for an unknown reason."),
		full:    counter("sluice_new_columns_full_total", "Batches with fields that got no column because new_columns allowed no more. Their values are in the column _rescued."),
		lettersByTopic: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_dlq_messages_total", Help: "Durable dead letters, by the topic of the record. One that is written again after a failed commit counts again.",
		}, []string{"topic"}),
		letters: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_dead_letters_total", Help: "Durable dead letters, by the topic of the record and the reason. One that is written again after a failed commit counts again.",
		}, []string{"topic", "reason"}),
		retries: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "worker_retry_count_total", Help: "Retries by record_retry, after failures of single records or of batches with an unknown cause.",
		}, []string{"worker", "error", "topic"}),
		commitSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_commit_seconds", Help: "Duration from decision to successful commit.", Buckets: prometheus.ExponentialBuckets(0.01, 2.5, 10),
		}),
		batchRows: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_batch_rows", Help: "Rows of a successful commit that has any.", Buckets: prometheus.ExponentialBuckets(10, 10, 7),
		}),
		processing: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_processing_seconds", Help: "Time from enqueueing records to the commit of their rows. Adjacent records count once.",
			Buckets: []float64{.1, .25, .5, 1, 2.5, 5, 10, 20, 40, 60, 90, 120, 300, 900, 3600},
		}),
		freshness: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_freshness_seconds", Help: "Time from the timestamp of records to the commit of their rows. Adjacent records count once, as the oldest of them.",
			Buckets: []float64{.5, 1, 2.5, 5, 10, 20, 40, 60, 90, 120, 300, 900, 3600, 14_400, 86_400, 604_800},
		}),
		duplicates: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_duplicates_total", Help: "Records left out because their identity was in the window already.",
		}, []string{"topic"}),
		lookups: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_fingerprint_lookups_total", Help: "Records looked up in the window: hit, miss, none (no identity), undated (no timestamp).",
		}, []string{"topic", "result"}),
		origins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_origins_total",
			Help: "Committed records that a replay of dead letters has produced again: accepted, repeated (left out), missing (left out, because one before it has not come), unknown (the table does not know the replay; an ordinary record).",
		}, []string{"topic", "result"}),
		rebuilt: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_fingerprint_rebuild_seconds", Help: "Time to read fingerprints back from a table.", Buckets: prometheus.ExponentialBuckets(0.01, 4, 9),
		}),
	}
	if reg != nil {
		reg.MustRegister(m.rows, m.failedRecords, m.commits, m.failed, m.lettersByTopic, m.letters, m.retries, m.commitSeconds, m.batchRows, m.processing, m.freshness, m.duplicates, m.lookups, m.origins, m.full, m.rebuilt)
	}
	return m
}

// follows creates the series of a topic, so that they are exported with 0.
func (m *Metrics) follows(topic, pipeline string, letters bool) {
	m.rows.WithLabelValues(topic)
	m.retries.WithLabelValues(pipeline, failedCode, topic)
	for _, c := range []classify.Class{classify.Transient, classify.Poison, classify.Fatal, classify.Fenced} {
		m.failedRecords.WithLabelValues(topic, c.String())
	}
	if letters {
		m.lettersByTopic.WithLabelValues(topic)
	}
}

// leaves deletes the series of a topic.
func (m *Metrics) leaves(topic string) {
	for _, v := range []*prometheus.CounterVec{m.rows, m.failedRecords, m.lettersByTopic, m.letters, m.retries, m.duplicates, m.lookups, m.origins} {
		v.DeletePartialMatch(prometheus.Labels{"topic": topic})
	}
}

// committed counts a committed plan. took is the time from the decision about the plan to the end of the commit.
func (m *Metrics) committed(p *plan.Plan, took time.Duration) {
	m.commits.Inc()
	m.commitSeconds.Observe(took.Seconds())
	var rows int64
	for _, r := range p.Commit.Ranges {
		rows += r.Rows
		m.rows.WithLabelValues(r.Topic).Add(float64(r.Rows))
		m.countFailed(r.Topic, classify.Poison, r.Letters)
	}
	for partition, n := range p.Origins {
		for result, n := range map[string]int64{"accepted": n.Accepted, "repeated": n.Repeated, "missing": n.Missing, "unknown": n.Unknown} {
			m.origins.WithLabelValues(partition.Topic, result).Add(float64(n))
		}
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

// stopped counts the bad records at which the plan holds claims.
func (m *Metrics) stopped(p *plan.Plan) {
	for _, h := range p.Holds {
		if h.Reason == hold.Poison {
			m.countFailed(h.Partition.Topic, classify.Poison, 1)
		}
	}
}

// failedRecordsOf counts the records of a plan whose commit failed with an error of this class. The commit itself is
// not counted here.
func (m *Metrics) failedRecordsOf(p *plan.Plan, class classify.Class) {
	if class == classify.Canceled { // the process stops, which is not a failure of the records
		return
	}
	for _, r := range p.Commit.Ranges {
		m.countFailed(r.Topic, class, r.Rows+r.Letters)
	}
}

// failedBatch counts the records of a sealed batch that cannot be committed because of a local failure.
func (m *Metrics) failedBatch(c *plan.SealedBatch) {
	rows := func(runs []plan.Run) {
		for i := range runs {
			if r := &runs[i]; r.Within(c.Claims) {
				m.countFailed(r.Partition.Topic, classify.Transient, r.To-r.From)
			}
		}
	}
	for _, chunk := range c.Chunks {
		rows(chunk.Runs)
	}
	for _, f := range c.Failures {
		if rows(f.Runs); !f.Sealing { // rows of a chunk that could not be sealed are counted by rows alone
			m.countFailed(f.Partition.Topic, classify.Transient, 1)
		}
	}
}

// countFailed counts failed records.
func (m *Metrics) countFailed(topic string, class classify.Class, records int64) {
	m.failedRecords.WithLabelValues(topic, class.String()).Add(float64(records))
}

// judged counts, by result, the records of a topic that were compared with a dedup window: hit, miss, none (a record
// without identity) and undated (without a timestamp that counts).
func (m *Metrics) judged(topic string, n idempotency.Counts) {
	m.duplicates.WithLabelValues(topic).Add(float64(n.Hits))
	for result, n := range map[string]int64{"hit": n.Hits, "miss": n.Misses, "none": n.None, "undated": n.Undated} {
		m.lookups.WithLabelValues(topic, result).Add(float64(n))
	}
}
