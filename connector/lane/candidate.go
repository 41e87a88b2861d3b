package lane

import (
	"slices"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
)

const (
	// candidateBytes is what a candidate takes beside the bytes of its record: itself, its error, the letter; headerBytes
	// what each header takes, in record and letter.
	candidateBytes, headerBytes = 1112, 88
	// pageBytes is what Go rounds large pieces of memory up to. Small ones lose an eighth at most.
	pageBytes = 8 << 10
)

// Weight is what a record takes of memory as a candidate.
func Weight(r *connector.Record) int64 {
	bytes := len(r.Key) + len(r.Value)
	names := 0
	for i := range r.Headers {
		bytes += len(r.Headers[i].Value)
		names += headerBytes + len(r.Headers[i].Key)
	}
	return int64(candidateBytes + names + bytes + min(bytes/8, pageBytes))
}

// Reject notes why a record of a block is none of the rows. It tells whether the lane may go on behind it: only a
// record that can have a letter lets others pass.
func Reject(b *Block, r *connector.Record, err error) (c plan.Candidate, pass bool) {
	now := time.Now()
	c = plan.Candidate{Partition: b.Partition, Session: b.Session, Offset: r.Offset, Err: err, First: now, Last: now, Timestamp: r.Timestamp}
	if b.Letters && classify.Of(err) == classify.Poison {
		c.Record, c.Allocated = clone(r), Weight(r)
	}
	return c, c.Record != nil
}

// clone copies a record into memory of its own, of one piece. Header names are strings that nobody overwrites.
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
