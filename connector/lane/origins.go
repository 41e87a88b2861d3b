package lane

import (
	"log/slog"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability"
	"sluice/reliability/origin"
)

// OriginReader checks whether a record of a topic was produced again by a replay of dead letters, and by which one. All
// lanes share it.
type OriginReader struct {
	pipeline        string
	keys            func() origin.Keys
	logger          *slog.Logger
	forged, strange prometheus.Counter
	logged          *reliability.Sparse // limits the lines about origins that do not count
}

// NewOriginReader returns the reader of a topic, nil if keys is nil: then the header means nothing.
func NewOriginReader(topic, pipeline string, keys func() origin.Keys, logger *slog.Logger, m *Metrics) *OriginReader {
	if keys == nil {
		return nil
	}
	return &OriginReader{
		pipeline: pipeline, keys: keys, logger: logger, forged: m.origins.WithLabelValues(topic, originForged), strange: m.origins.WithLabelValues(topic, originStrange),
		logged: reliability.NewSparse(1, originLogInterval),
	}
}

const (
	originForged  = "forged"
	originStrange = "unknown"
	// originLogInterval is the minimum interval between log lines about origins that do not count.
	originLogInterval = time.Minute
	// originBytes is the memory, in bytes, that an origin takes in a part, including the run that its record has.
	originBytes = 320
)

// of returns the authentic origin of a record; false if it has none. If the origin is forged, or of another pipeline or
// partition, it counts and logs this and returns false: the record is an ordinary one.
func (f *OriginReader) of(p connector.Partition, r *connector.Record) (origin.Origin, bool) {
	header, ok := connector.LastHeader(r.Headers, origin.Header)
	if !ok {
		return origin.Origin{}, false
	}
	o, err := f.keys().Verify(header, r.Key, r.Value)
	counter, why := f.forged, "no key of this pipeline signed it"
	switch {
	case err != nil:
	case o.Pipeline != f.pipeline || o.Record.Partition != p:
		counter, why = f.strange, "it names another pipeline or partition"
	default:
		return o, true
	}
	counter.Inc()
	if left, ok := f.logged.Next(); ok {
		f.logger.Warn("the header sluice-origin of a record does not count; the record is an ordinary one",
			"why", why, "topic", p.Topic, "partition", p.ID, "offset", r.Offset, "left_out", left)
	}
	return origin.Origin{}, false
}

// keepOrigin returns true if a record has an authentic origin, and keeps the origin for Decide. Such a record gets a
// run of its own, so that Decide can leave it out.
func (o *openPart) keepOrigin(b *Block, r *connector.Record) bool {
	from, ok := b.Origins.of(b.Partition, r)
	if !ok {
		return false
	}
	o.origins = append(o.origins, plan.Origin{
		Partition: b.Partition, Session: b.Session, Offset: r.Offset, TableID: from.TableID, Intent: from.Intent, Number: from.Number,
	})
	o.letterBytes += originBytes
	o.breakRun = true
	return true
}
