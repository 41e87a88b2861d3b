package reliability

import "github.com/prometheus/client_golang/prometheus"

// metrics are the metrics of one guard.
type metrics struct {
	retries, unknown prometheus.Counter
	state            prometheus.Gauge
	changes          *prometheus.CounterVec
}

// newMetrics returns the metrics of a dependency and registers them, unless reg is nil.
func newMetrics(reg prometheus.Registerer, dependency string) metrics {
	l := prometheus.Labels{"dependency": dependency}
	m := metrics{
		retries: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_retries_total", ConstLabels: l, Help: "Requests retried after a transient failure.",
		}),
		unknown: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_unknown_errors_total", ConstLabels: l, Help: "Errors that no rule of the classification matches.",
		}),
		state: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "sluice_breaker_state", ConstLabels: l, Help: "0 closed, 1 half-open, 2 open.",
		}),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_breaker_changes_total", ConstLabels: l, Help: "State changes of the circuit breaker.",
		}, []string{"to"}),
	}
	for _, to := range []string{"closed", "half-open", "open"} {
		m.changes.WithLabelValues(to)
	}
	if reg != nil {
		for _, c := range []prometheus.Collector{m.retries, m.unknown, m.state, m.changes} {
			reg.MustRegister(c)
		}
	}
	return m
}
