package delta

import "github.com/prometheus/client_golang/prometheus"

type metrics struct {
	commits     *prometheus.CounterVec
	unresolved  prometheus.Counter
	seconds     prometheus.Histogram
	size        prometheus.Histogram
	version     prometheus.Gauge
	overwritten prometheus.Counter
	orphans     prometheus.Counter
	checkpoints *prometheus.CounterVec
	columns     prometheus.Counter
	crowded     prometheus.Counter
}

// Values of the label result of the metrics of commits and checkpoints.
const (
	resultCommitted = "committed"
	resultConflict  = "conflict"
	resultUndecided = "undecided"
	resultOK        = "ok"
	resultFailed    = "failed"
)

func newMetrics(reg prometheus.Registerer) (*metrics, error) {
	m := &metrics{
		commits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_delta_commits_total", Help: "Versions tried in the table's log, by outcome.",
		}, []string{"result"}),
		unresolved: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_delta_commit_unknown_total", Help: "Versions tried in the table's log whose outcome was not known from the store's first answer.",
		}),
		seconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_delta_commit_duration_seconds", Help: "Duration of a commit, from the first read of the log to its outcome.",
			Buckets: []float64{.01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60, 300},
		}),
		size: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "sluice_delta_file_size_bytes", Help: "Sizes of data files in committed versions.", Buckets: prometheus.ExponentialBuckets(16<<10, 4, 9),
		}),
		version: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_delta_table_version", Help: "Newest version of the table that is known.",
		}),
		overwritten: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_delta_commits_overwritten_total", Help: "Times that commits in the log were overwritten or removed by another program.",
		}),
		orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_delta_orphan_files_total", Help: "Data files left behind because a version may name them, or that could not be deleted.",
		}),
		checkpoints: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_delta_checkpoints_total", Help: "Checkpoints of the table's log, by outcome.",
		}, []string{"result"}),
		columns: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_columns_added_total", Help: "Columns and struct fields that commits of this member added to the table.",
		}),
		crowded: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_delta_small_file_batches_total", Help: "Batches with more than 1000 data files of less than 1 MiB on average, because partition_by has too many different values.",
		}),
	}
	for _, r := range []string{resultCommitted, resultConflict, resultUndecided} {
		m.commits.WithLabelValues(r)
	}
	for _, r := range []string{resultOK, resultFailed} {
		m.checkpoints.WithLabelValues(r)
	}
	if reg == nil {
		return m, nil
	}
	for _, c := range []prometheus.Collector{
		m.commits, m.unresolved, m.seconds, m.size, m.version, m.overwritten, m.orphans, m.checkpoints, m.columns, m.crowded,
	} {
		if err := reg.Register(c); err != nil {
			return nil, err
		}
	}
	return m, nil
}
