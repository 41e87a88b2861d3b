package lane

import (
	"sync/atomic"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability/bytepool"
)

// Barrier is a cut whose marker is on its way through the lanes.
type Barrier struct {
	ID        string // of the batch
	Began     time.Time
	Claims    map[connector.Partition]plan.Span
	Parts     chan Part // one from each lane, with room for all
	Passed    atomic.Int32
	Allocated atomic.Int64 // of the batch pool, in bytes
	Taken     bool         // by its writer, who owns this
}

// NewBarrier returns a cut of so many lanes.
func NewBarrier(id string, claims map[connector.Partition]plan.Span, lanes int) *Barrier {
	return &Barrier{ID: id, Began: time.Now(), Claims: claims, Parts: make(chan Part, lanes)}
}

// Sweep gives back what the lanes had for a cut that no writer took. They have ended. nil has nothing.
func (b *Barrier) Sweep(pool *bytepool.Pool) {
	for b != nil && len(b.Parts) > 0 {
		p := <-b.Parts
		p.Release(pool)
	}
}

// PassedAll tells whether the marker is through all lanes.
func (b *Barrier) PassedAll(lanes int) bool { return int(b.Passed.Load()) == lanes }

// Part is what one lane had for a cut.
type Part struct {
	Lane       int
	Chunks     []plan.Chunk
	Candidates []plan.Candidate
	Dropped    []plan.Dropped
	Ignored    plan.IgnoredNames
	Failed     *plan.Failure // nothing of the part is usable, nor of the cut
}

// AllocatedBy is what candidates have of the batch pool.
func AllocatedBy(candidates []plan.Candidate) (n int64) {
	for i := range candidates {
		n += candidates[i].Allocated
	}
	return n
}

// Release gives back what one lane had for a cut that nobody wants.
func (p *Part) Release(pool *bytepool.Pool) {
	ReleaseRows(pool, p.Chunks)
	pool.Adjust(-AllocatedBy(p.Candidates))
	p.Chunks, p.Candidates = nil, nil
}
