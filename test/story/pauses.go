package story

import (
	"sync"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
)

// HearsOfPauses is how soon a running member must stop to fetch what an operator paused.
const HearsOfPauses = time.Second

// Pauses are the partitions that an operator paused, by number.
type Pauses struct {
	mu    sync.Mutex
	since map[int32]time.Time
}

// Pause pauses partitions.
func (p *Pauses) Pause(ids ...int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.since == nil {
		p.since = map[int32]time.Time{}
	}
	for _, id := range ids {
		if _, already := p.since[id]; !already {
			p.since[id] = time.Now()
		}
	}
}

// Resume ends pauses.
func (p *Pauses) Resume(ids ...int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		delete(p.since, id)
	}
}

// Since returns since when a partition is paused; false if it is not.
func (p *Pauses) Since(id int32) (since time.Time, paused bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	since, paused = p.since[id]
	return since, paused
}

func (p *Pauses) hold(at connector.Partition) *hold.Hold {
	since, paused := p.Since(at.ID)
	if !paused {
		return nil
	}
	return &hold.Hold{Reason: hold.Paused, Detail: "ada paused it: a test", Since: since, Offset: -1}
}
