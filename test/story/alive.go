package story

import (
	"fmt"
	"slices"
	"time"

	"sluice/health/liveness"
)

// Stalls returns a line for each loop of a member that had work, made no progress for too long, and did so while Wedged
// was not set. It returns nil if there was none. Broker.Violations returns these lines, too.
func (h *Harness) Stalls() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.Clone(h.stalls)
}

// Stalls returns the loops of the process that had made no progress for too long at the last check.
func (p *Process) Stalls() []liveness.Stall {
	if stalls := p.stalls.Load(); stalls != nil {
		return *stalls
	}
	return nil
}

// watch checks the loops of a process until it has ended, as the liveness check of the process does. A loop without
// progress is a violation unless h.Wedged is set, because no failure of a dependency is a reason to restart the
// process.
func (h *Harness) watch(p *Process) {
	told := map[string]bool{}
	turn := time.NewTicker(liveness.Every)
	defer turn.Stop()
	for {
		select {
		case <-p.done:
			return
		case <-turn.C:
		}
		stalls := p.watch.Check(time.Now(), p.Loops.States())
		p.stalls.Store(&stalls)
		for _, s := range stalls {
			if !told[s.Loop] && !h.Wedged.Load() {
				told[s.Loop] = true
				said := fmt.Sprintf("%s: loop %s has work and has not turned for %v", p.Name, s.Loop, s.For)
				h.Broker.blame("%s", said)
				h.mu.Lock()
				h.stalls = append(h.stalls, said)
				h.mu.Unlock()
			}
		}
	}
}
