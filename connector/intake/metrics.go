package intake

import "github.com/prometheus/client_golang/prometheus"

// Metrics are what the reader counts.
type Metrics struct {
	read, fenced, offsetFailures, paused, resumed, closedSeconds, longPauses, shed, unchecked prometheus.Counter
	queued                                                                                    prometheus.Gauge
	sealed, holds, keyWaits                                                                   *prometheus.CounterVec
}

// NewMetrics returns the metrics, registered with reg unless that is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_queued_records", Help: "Records handed over to the lanes that are not rows yet.",
		}),
		read:           counter("sluice_records_read_total", "Records handed over to the lanes."),
		fenced:         counter("sluice_fenced_total", "Times that everything uncommitted of a table was dropped because a position moved or an outcome stayed unknown."),
		offsetFailures: counter("sluice_group_offset_failures_total", "Writes of group offsets that failed; they are tried again."),
		paused:         counter("sluice_backpressure_started_total", "Times that backpressure paused reading, of all tables or of one."),
		resumed:        counter("sluice_backpressure_ended_total", "Times that reading resumed after backpressure."),
		closedSeconds:  counter("sluice_backpressure_seconds_total", "Time in which backpressure paused reading, of one table at least."),
		longPauses:     counter("sluice_backpressure_long_total", "Pauses of reading that lasted a second or longer; the log has a line of each."),
		shed:           counter("sluice_shed_total", "Times that what a partition had waiting was dropped for want of memory; it is read again."),
		unchecked:      counter("sluice_positions_unchecked_total", "Positions that a member read on from without their leader epoch: it could not see whether the log was truncated below them."),
		sealed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_batches_sealed_total", Help: "Batches closed, by what made them due.",
		}, []string{"reason"}),
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_holds_total", Help: "Claims that began to stand still, by reason. A claim that waits for a dependency counts once for each outage.",
		}, []string{"reason"}),
		keyWaits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_key_waits_total", Help: "Times that a partition waited because queue.per_key records were queued of the key of its next record, or of keys in the same hash slot.",
		}, []string{"topic"}),
	}
	for _, reason := range sealReasons() {
		m.sealed.WithLabelValues(reason)
	}
	if reg != nil {
		reg.MustRegister(m.queued, m.read, m.fenced, m.offsetFailures, m.paused, m.resumed, m.closedSeconds, m.longPauses, m.shed, m.unchecked, m.sealed, m.holds, m.keyWaits)
	}
	return m
}

// leaves forgets a topic.
func (m *Metrics) leaves(topic string) { m.keyWaits.DeleteLabelValues(topic) }
