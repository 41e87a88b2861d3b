package lane

import (
	"slices"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
)

const (
	// candidateBytes is the memory of a candidate without the bytes of its record: its struct, its error and its dead
	// letter. headerBytes is what each header takes in the record and in the dead letter.
	candidateBytes, headerBytes = 1112, 88
	// pageBytes is the unit to which Go rounds up the size of a large allocation. A small one grows by an eighth at
	// most.
	pageBytes = 8 << 10
)

// Weight returns the memory in bytes that a candidate with a copy of the record takes.
func Weight(r *connector.Record) int64 {
	bytes := len(r.Key) + len(r.Value)
	names := 0
	for i := range r.Headers {
		bytes += len(r.Headers[i].Value)
		names += headerBytes + len(r.Headers[i].Key)
	}
	return int64(candidateBytes + names + bytes + min(bytes/8, pageBytes))
}

// NewCandidate returns the candidate for a record that cannot become a row. If the record can become a dead letter, the
// candidate has a copy of it, and pass is true: the lane continues with the next record. Otherwise the claim must stop
// before this record.
func NewCandidate(b *Block, r *connector.Record, err error) (c plan.Candidate, pass bool) {
	now := time.Now()
	c = plan.Candidate{Partition: b.Partition, Session: b.Session, Offset: r.Offset, Err: err, First: now, Last: now, Timestamp: r.Timestamp}
	if b.Letters && classify.Of(err) == classify.Poison {
		c.Record, c.Allocated = clone(r), Weight(r)
	}
	return c, c.Record != nil
}

// clone copies a record into one allocation. The names of headers are immutable strings, so they are not copied.
func clone(r *connector.Record) *connector.Record {
	n := len(r.Key) + len(r.Value)
	for _, h := range r.Headers {
		n += len(h.Value)
	}
	memory := make([]byte, 0, n)
	keep := func(b []byte) []byte {
		if b == nil {
			return nil
		}
		from := len(memory)
		memory = append(memory, b...)
		return memory[from:len(memory):len(memory)]
	}
	c := &connector.Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: keep(r.Key), Value: keep(r.Value)}
	c.Headers = slices.Grow(c.Headers, len(r.Headers))
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, connector.Header{Key: h.Key, Value: keep(h.Value)})
	}
	return c
}
