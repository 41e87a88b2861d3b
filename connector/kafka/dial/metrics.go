package dial

import (
	"errors"

	"github.com/prometheus/client_golang/prometheus"
)

type metrics struct {
	dials, reauthentications *prometheus.CounterVec
	files, malformed         prometheus.Counter
}

func newMetrics(reg prometheus.Registerer) *metrics {
	m := &metrics{
		dials: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_kafka_connects_total", Help: "Attempts to connect to brokers, by result: ok, or the cause of the failure.",
		}, []string{"result"}),
		reauthentications: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "sluice_kafka_reauthentications_total", Help: "Attempts to authenticate open connections again before their session ended (KIP-368), by result: ok, or the cause of the failure.",
		}, []string{"result"}),
		files: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_kafka_unusable_files_total", Help: "Changes of TLS and credentials files that could not be used; the content before stays in force.",
		}),
		malformed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "sluice_kafka_malformed_responses_total", Help: "Responses of brokers that were refused because their sizes contradict their bytes; each ends its connection.",
		}),
	}
	if reg != nil {
		reg.MustRegister(m.dials, m.reauthentications, m.files, m.malformed)
	}
	return m
}

func (m *metrics) dialed(err error)          { m.dials.WithLabelValues(result(err)).Inc() }
func (m *metrics) reauthenticated(err error) { m.reauthentications.WithLabelValues(result(err)).Inc() }

// result returns the metric label for an error: ok for nil, its cause, or other.
func result(err error) string {
	if err == nil {
		return "ok"
	}
	if e, ok := errors.AsType[*Error](err); ok {
		return string(e.Cause)
	}
	return "other"
}
