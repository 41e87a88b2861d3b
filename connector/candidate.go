package connector

import (
	"slices"
	"time"

	"sluice/classify"
	"sluice/reliability/bytepool"
)

// Candidate is a record that could not become a row. With the record it may become a dead letter; without, it stops its
// claim.
type Candidate struct {
	Partition Partition
	Session   uint64
	Offset    int64
	Err       error
	// Record is a copy, since the memory of what was fetched goes back when its block is done. nil: the claim holds here.
	Record *Record
	// Retries is how often it was tried again. First and Last are when it failed.
	Retries     int
	First, Last time.Time

	timestamp int64 // of the record

	held int64 // of the batch pool, in bytes
}

const (
	// candidateBytes is what a candidate takes beside the bytes of its record: itself, its error, the letter; headerBytes
	// what each header takes, in record and letter.
	candidateBytes, headerBytes = 1112, 88
	// pageBytes is what Go rounds large pieces of memory up to. Small ones lose an eighth at most.
	pageBytes = 8 << 10
)

// weight is what a record takes of memory as a candidate.
func weight(r *Record) int64 {
	bytes := len(r.Key) + len(r.Value)
	names := 0
	for i := range r.Headers {
		bytes += len(r.Headers[i].Value)
		names += headerBytes + len(r.Headers[i].Key)
	}
	return int64(candidateBytes + names + bytes + min(bytes/8, pageBytes))
}

// candidate notes why a record of a block is none of the rows. It tells whether the lane may go on behind it: only a
// record that can have a letter lets others pass.
func candidate(b *block, r *Record, err error) (c Candidate, pass bool) {
	now := time.Now()
	c = Candidate{Partition: b.partition, Session: b.session, Offset: r.Offset, Err: err, First: now, Last: now, timestamp: r.Timestamp}
	if b.letters && classify.Of(err) == classify.Poison {
		c.Record, c.held = r.clone(), weight(r)
	}
	return c, c.Record != nil
}

// clone copies the record into memory of its own, of one piece. Header names are strings that nobody overwrites.
func (r *Record) clone() *Record {
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
	c := &Record{Offset: r.Offset, Timestamp: r.Timestamp, Key: keep(r.Key), Value: keep(r.Value)}
	c.Headers = slices.Grow(c.Headers, len(r.Headers))
	for _, h := range r.Headers {
		c.Headers = append(c.Headers, Header{Key: h.Key, Value: keep(h.Value)})
	}
	return c
}

// heldBy is what candidates have of the batch pool.
func heldBy(candidates []Candidate) (n int64) {
	for i := range candidates {
		n += candidates[i].held
	}
	return n
}

// release gives back what one lane had for a cut that nobody wants.
func (p *part) release(pool *bytepool.Pool) {
	releaseRows(pool, p.chunks)
	pool.Adjust(-heldBy(p.candidates))
	p.chunks, p.candidates = nil, nil
}
