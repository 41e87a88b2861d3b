package lane

import (
	"sync/atomic"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability/bytepool"
)

// Sealed is a cut whose marker is on its way through the lanes.
type Sealed struct {
	ID     string // of the batch
	Began  time.Time
	Claims map[connector.Partition]plan.Span
	Parts  chan Part // one from each lane, with room for all
	Passed atomic.Int32
	Held   atomic.Int64 // of the batch pool, in bytes
	Taken  bool         // by its writer, who owns this
}

// NewSealed returns a cut of so many lanes.
func NewSealed(id string, claims map[connector.Partition]plan.Span, lanes int) *Sealed {
	return &Sealed{ID: id, Began: time.Now(), Claims: claims, Parts: make(chan Part, lanes)}
}

// Sweep gives back what the lanes had for a cut that no writer took. They have ended. nil has nothing.
func (o *Sealed) Sweep(pool *bytepool.Pool) {
	for o != nil && len(o.Parts) > 0 {
		p := <-o.Parts
		p.Release(pool)
	}
}

// Marked tells whether the marker is through all lanes.
func (o *Sealed) Marked(lanes int) bool { return int(o.Passed.Load()) == lanes }

// Part is what one lane had for a cut.
type Part struct {
	Lane       int
	Chunks     []plan.Chunk
	Candidates []plan.Candidate
	Dropped    []plan.Dropped
	Ignored    plan.IgnoredNames
	Failed     *plan.Failure // nothing of the part is usable, nor of the cut
}

// HeldBy is what candidates have of the batch pool.
func HeldBy(candidates []plan.Candidate) (n int64) {
	for i := range candidates {
		n += candidates[i].Held
	}
	return n
}

// Release gives back what one lane had for a cut that nobody wants.
func (p *Part) Release(pool *bytepool.Pool) {
	ReleaseRows(pool, p.Chunks)
	pool.Adjust(-HeldBy(p.Candidates))
	p.Chunks, p.Candidates = nil, nil
}
