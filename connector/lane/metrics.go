package lane

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the metrics of all lanes.
type Metrics struct {
	tombstones, ignored    prometheus.Counter
	health, healthUnproven *prometheus.CounterVec
	origins                *prometheus.CounterVec
}

// NewMetrics returns the metrics and registers them with reg unless it is nil.
func NewMetrics(reg prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	m := &Metrics{
		tombstones: counter("sluice_tombstones_total", "Records without a value, passed over by the tombstones policy."),
		ignored:    counter("sluice_unknown_fields_total", "Fields that the table does not have, passed over."),
		health: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_health_records_total", Help: "Records that are health checks (header HEALTHCHECK=TRUE), dropped.",
		}, []string{"topic"}),
		healthUnproven: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_health_records_unproven_total", Help: "Records that claim to be health checks without the secret; they are ordinary records.",
		}, []string{"topic"}),
		origins: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_origins_refused_total",
			Help: "Records whose header sluice-origin does not count: forged (no key of this pipeline signed it) or unknown (of another pipeline or partition). They are ordinary records.",
		}, []string{"topic", "result"}),
	}
	if reg != nil {
		reg.MustRegister(m.tombstones, m.ignored, m.health, m.healthUnproven, m.origins)
	}
	return m
}

// Leaves deletes the metric series of a topic that the member no longer reads.
func (m *Metrics) Leaves(topic string) {
	for _, v := range []*prometheus.CounterVec{m.health, m.healthUnproven, m.origins} {
		v.DeletePartialMatch(prometheus.Labels{"topic": topic})
	}
}
