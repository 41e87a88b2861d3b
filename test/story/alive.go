package story

import (
	"fmt"
	"slices"
	"time"

	"sluice/health/liveness"
)

// Stalls returns the loops that stopped turning although the test did not expect it. They are violations, too.
func (w *World) Stalls() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.stalls)
}

// Stalls returns the loops of the process that did not turn at the last check.
func (p *Process) Stalls() []liveness.Stall {
	if stalls := p.stalls.Load(); stalls != nil {
		return *stalls
	}
	return nil
}

// watch checks the loops of a process until it has ended, as its liveness check does. No fault of a test's
// dependencies is a reason to restart the process.
func (w *World) watch(p *Process) {
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
			if !told[s.Loop] && !w.Wedged.Load() {
				told[s.Loop] = true
				said := fmt.Sprintf("%s: loop %s has work and has not turned for %v", p.Name, s.Loop, s.For)
				w.Broker.blame("%s", said)
				w.mu.Lock()
				w.stalls = append(w.stalls, said)
				w.mu.Unlock()
			}
		}
	}
}
