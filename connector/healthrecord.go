package connector

import (
	"crypto/subtle"
	"log/slog"
	"slices"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/reliability"
)

// The headers of a health-check record: somebody sent it to see whether the topic takes records. It is no data.
const (
	// HealthHeader with the value [HealthValue], exactly, makes a record one.
	HealthHeader = "HEALTHCHECK"
	HealthValue  = "TRUE"
	// HealthSecretHeader carries the secret, of topics that ask for one.
	HealthSecretHeader = "HEALTHCHECK-SECRET"
)

// HealthRecords says what becomes of the health-check records of a topic.
type HealthRecords struct {
	// Drop leaves them out of the table, counted and explained by [Range]. Without it they are ordinary records.
	Drop bool
	// Secret returns what a record must carry to be dropped; one that does not is ordinary. It is asked for each record
	// that claims to be a health check, by any goroutine, and answers at once. nil asks for none; "" is what none has.
	Secret func() string
}

// ClaimsHealthCheck tells whether a record says of itself that it is a health check. Of headers that repeat the last
// one counts, as Kafka's lastHeader has it.
func ClaimsHealthCheck(headers []Header) bool {
	return string(lastHeader(headers, HealthHeader)) == HealthValue
}

// proves tells whether the record carries the secret. The time that it takes says nothing about how much of it is right.
func (h HealthRecords) proves(headers []Header) bool {
	if h.Secret == nil {
		return true
	}
	secret := h.Secret()
	return subtle.ConstantTimeCompare(lastHeader(headers, HealthSecretHeader), []byte(secret)) == 1 && secret != ""
}

// lastHeader returns the value of the last header of a name, nil if there is none.
func lastHeader(headers []Header, name string) []byte {
	for _, h := range slices.Backward(headers) {
		if h.Key == name {
			return h.Value
		}
	}
	return nil
}

// Dropped is health-check records of one session of a claim: Count of them at offsets [First, Last]. No candidate lies
// between them, so that they are in a plan or out of it as a whole.
type Dropped struct {
	Partition   Partition
	Session     uint64
	First, Last int64
	Count       int64

	candidates int // that the lane had before
}

// healthFilter takes the health-check records out of a topic. Lanes share it.
type healthFilter struct {
	HealthRecords
	logger            *slog.Logger
	dropped, unproven prometheus.Counter
	told, toldOf      *reliability.Sparse // of those dropped, of those that prove nothing
}

// healthLines is how often a topic's dropped records are worth a line: a producer that marks all of its records makes
// them vanish, and somebody must see it.
const healthLines = time.Minute

// newHealthFilter returns the filter of a topic, nil if it drops nothing.
func newHealthFilter(topic string, h HealthRecords, logger *slog.Logger, m *metrics) *healthFilter {
	if !h.Drop {
		return nil
	}
	return &healthFilter{
		HealthRecords: h, logger: logger,
		dropped: m.health.WithLabelValues(topic), unproven: m.healthUnproven.WithLabelValues(topic),
		told: reliability.NewSparse(1, healthLines), toldOf: reliability.NewSparse(1, healthLines),
	}
}

// drops tells whether a record is a health check that goes no further, and counts it.
func (f *healthFilter) drops(p Partition, r *Record) bool {
	if !ClaimsHealthCheck(r.Headers) {
		return false
	}
	if !f.proves(r.Headers) {
		f.unproven.Inc()
		if left, ok := f.toldOf.Next(); ok {
			f.logger.Info("a health-check record without the secret is an ordinary record",
				"topic", p.Topic, "partition", p.ID, "offset", r.Offset, "left_out", left)
		}
		return false
	}
	f.dropped.Inc()
	f.logger.Debug("Received a healthcheck message. Discarding message", "topic", p.Topic, "partition", p.ID, "offset", r.Offset)
	if left, ok := f.told.Next(); ok {
		f.logger.Info("health-check records are dropped", "topic", p.Topic, "partition", p.ID, "offset", r.Offset, "left_out", left)
	}
	return true
}

// drop notes a health-check record of a claim.
func (o *openChunk) drop(p Partition, session uint64, offset int64) {
	if i, ok := o.lastDropped[session]; ok && o.dropped[i].candidates == len(o.candidates) {
		o.dropped[i].Last = offset
		o.dropped[i].Count++
		return
	}
	if o.lastDropped == nil {
		o.lastDropped = map[uint64]int{}
	}
	o.lastDropped[session] = len(o.dropped)
	o.dropped = append(o.dropped, Dropped{p, session, offset, offset, 1, len(o.candidates)})
}

// explained counts the health-check records that a plan passes, by claim.
func explained(dropped []Dropped, next map[Partition]Span) map[Partition]int64 {
	counts := map[Partition]int64{}
	for _, d := range dropped {
		if span, ok := next[d.Partition]; ok && span.Session == d.Session && d.First < span.Next {
			counts[d.Partition] += d.Count
		}
	}
	return counts
}
