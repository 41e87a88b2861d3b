package story

import (
	"sync"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
)

// HearsOfPauses is the time within which a running member must stop fetching a partition that an operator paused.
const HearsOfPauses = time.Second

// Pauses has the partitions of Topic that an operator has paused, by number. Members see a change at once.
type Pauses struct {
	mu    sync.Mutex
	since map[int32]time.Time
}

// Pause pauses these partitions of Topic.
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

// Resume ends the pauses of these partitions.
func (p *Pauses) Resume(ids ...int32) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, id := range ids {
		delete(p.since, id)
	}
}

// Since returns when a partition was paused, and false if it is not paused.
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
