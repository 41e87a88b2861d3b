package intake

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of the reader.
type Metrics struct {
	read, fenced, offsetFailures, paused, resumed, closedSeconds, longPauses, shed, unchecked prometheus.Counter
	queued                                                                                    prometheus.Gauge
	sealed, holds, keyWaits                                                                   *prometheus.CounterVec
}

// NewMetrics returns the metrics and registers them with reg unless it is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		queued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_queued_records", Help: "Records enqueued to the lanes and not yet decoded.",
		}),
		read:           counter("sluice_records_read_total", "Records enqueued to the lanes."),
		fenced:         counter("sluice_fenced_total", "Times that all uncommitted records of a table were dropped because another writer moved a position or changed the table's columns."),
		offsetFailures: counter("sluice_group_offset_failures_total", "Failed commits of the group's offsets; they are retried."),
		paused:         counter("sluice_backpressure_started_total", "Times that backpressure paused reading, of all tables or of one."),
		resumed:        counter("sluice_backpressure_ended_total", "Times that reading resumed after backpressure."),
		closedSeconds:  counter("sluice_backpressure_seconds_total", "Time in which backpressure paused reading of at least one table."),
		longPauses:     counter("sluice_backpressure_long_total", "Pauses of reading that lasted a second or longer; the log has a line for each."),
		shed:           counter("sluice_shed_total", "Times that the fetched records of a partition were dropped to free memory; they are read again."),
		unchecked:      counter("sluice_positions_unchecked_total", "Positions without a leader epoch from which a member read on: it could not check whether the log was truncated below them."),
		sealed: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_batches_sealed_total", Help: "Sealed batches, by the reason to seal them.",
		}, []string{"reason"}),
		holds: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_holds_total", Help: "Claims that were held, by reason. A claim that waits for a dependency counts once per outage.",
		}, []string{"reason"}),
		keyWaits: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_key_waits_total", Help: "Times that a partition waited because queue.per_key records of the key of its next record, or of keys in the same hash slot, were queued.",
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

// leaves deletes the series of a topic.
func (m *Metrics) leaves(topic string) { m.keyWaits.DeleteLabelValues(topic) }
