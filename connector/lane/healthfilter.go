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

// drops reports whether the record is a health check that must be dropped, and counts and logs it. A record that claims
// to be a health check without the secret is not dropped, but counted and logged as such.
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

// drop counts a health-check record of a session. The record extends the last range of the session, or begins a new one
// if the lane has kept a candidate for the table since then: see [plan.Dropped].
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

// healthLogInterval is the shortest interval between two log lines about a topic's dropped records. There must be such
// lines, because an operator must be able to see that a producer marks all of its records.
const healthLogInterval = time.Minute
