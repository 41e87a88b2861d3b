package lane

import (
	"sync/atomic"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability/bytepool"
)

// Barrier seals a batch. It passes through the queues of all lanes, and each adds its part of the batch.
type Barrier struct {
	ID        string // the id of the batch
	Began     time.Time
	Claims    map[connector.Partition]plan.Span
	Parts     chan Part    // receives one part from each lane; its buffer has room for all parts
	Passed    atomic.Int32 // how many lanes it has passed
	Allocated atomic.Int64 // how many bytes of the batch pool the batch still has
	Taken     bool         // true once the writer has taken it and owns its parts
}

// NewBarrier returns a barrier for a batch with these claims. It has room for the parts of that many lanes.
func NewBarrier(id string, claims map[connector.Partition]plan.Span, lanes int) *Barrier {
	return &Barrier{ID: id, Began: time.Now(), Claims: claims, Parts: make(chan Part, lanes)}
}

// Sweep releases the parts that no writer took from a barrier. Call it after the lanes have ended. The barrier may be
// nil.
func (b *Barrier) Sweep(pool *bytepool.Pool) {
	for b != nil && len(b.Parts) > 0 {
		p := <-b.Parts
		p.Release(pool)
	}
}

// PassedAll reports whether the barrier has passed all lanes.
func (b *Barrier) PassedAll(lanes int) bool { return int(b.Passed.Load()) == lanes }

// Part is one lane's part of a sealed batch.
type Part struct {
	Lane       int
	Chunks     []plan.Chunk
	Candidates []plan.Candidate
	Dropped    []plan.Dropped
	Origins    []plan.Origin
	Ignored    plan.IgnoredNames
	Failed     *plan.Failure // if set, the sealed batch cannot be committed
}

// AllocatedBy returns how many bytes of the batch pool candidates and origins have.
func AllocatedBy(candidates []plan.Candidate, origins []plan.Origin) (n int64) {
	for i := range candidates {
		n += candidates[i].Allocated
	}
	return n + int64(len(origins))*originBytes
}

// Release releases a part that will not be committed.
func (p *Part) Release(pool *bytepool.Pool) {
	ReleaseRows(pool, p.Chunks)
	pool.Adjust(-AllocatedBy(p.Candidates, p.Origins))
	p.Chunks, p.Candidates, p.Origins = nil, nil, nil
}
