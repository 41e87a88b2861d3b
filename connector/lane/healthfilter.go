package lane

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability"
)

// HealthFilter drops the health-check records of a topic. All lanes share it.
type HealthFilter struct {
	connector.HealthRecords
	logger                 *slog.Logger
	dropped, unproven      prometheus.Counter
	logged, loggedUnproven *reliability.Sparse // limit the log lines: about dropped records, and about records without the secret
}

// NewHealthFilter returns the filter of a topic, nil if the topic drops nothing.
func NewHealthFilter(topic string, h connector.HealthRecords, logger *slog.Logger, m *Metrics) *HealthFilter {
	if !h.Drop {
		return nil
	}
	return &HealthFilter{
		HealthRecords: h, logger: logger,
		dropped: m.health.WithLabelValues(topic), unproven: m.healthUnproven.WithLabelValues(topic),
		logged: reliability.NewSparse(1, healthLogInterval), loggedUnproven: reliability.NewSparse(1, healthLogInterval),
	}
}

// drops reports whether the record is a health check to be dropped; if so, drops counts and logs it. A record that
// claims to be a health check but does not prove the secret is not dropped. It is counted and logged separately.
func (f *HealthFilter) drops(p connector.Partition, r *connector.Record) bool {
	if !connector.ClaimsHealthCheck(r.Headers) {
		return false
	}
	if !f.Proves(r.Headers) {
		f.unproven.Inc()
		if left, ok := f.loggedUnproven.Next(); ok {
			f.logger.Info("a health-check record without the secret is an ordinary record",
				"topic", p.Topic, "partition", p.ID, "offset", r.Offset, "left_out", left)
		}
		return false
	}
	f.dropped.Inc()
	f.logger.Debug("Received a healthcheck message. Discarding message", "topic", p.Topic, "partition", p.ID, "offset", r.Offset)
	if left, ok := f.logged.Next(); ok {
		f.logger.Info("health-check records are dropped", "topic", p.Topic, "partition", p.ID, "offset", r.Offset, "left_out", left)
	}
	return true
}

// drop counts a dropped health-check record. If the lane has kept no candidate for the table since the session's last
// range in o.dropped, that range is extended to this record. Otherwise a new range begins: see [plan.Dropped].
func (o *openPart) drop(p connector.Partition, session uint64, offset int64) {
	if i, ok := o.lastDropped[session]; ok && o.dropped[i].Candidates == len(o.candidates) {
		o.dropped[i].Last = offset
		o.dropped[i].Count++
		return
	}
	if o.lastDropped == nil {
		o.lastDropped = map[uint64]int{}
	}
	o.lastDropped[session] = len(o.dropped)
	o.dropped = append(o.dropped, plan.Dropped{Partition: p, Session: session, First: offset, Last: offset, Count: 1, Candidates: len(o.candidates)})
}

// healthLogInterval is the shortest time between two INFO lines about dropped records of a topic. These lines exist so
// that an operator notices a producer that marks all of its records as health checks.
const healthLogInterval = time.Minute
