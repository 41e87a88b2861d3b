//go:build lab

package e2e

import (
	"testing"
	"time"

	"sluice/test/lab"
)

// A member that dies at any moment loses nothing and repeats nothing.
func TestKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	s := newScene(t, 8)
	end := s.stream(2000)
	for range killsAtRandom {
		m := s.start()
		// A quarter of the kills meets a member that starts, joins or resumes; the others one that works.
		if s.random.IntN(4) > 0 {
			m.awaitReady()
		}
		after := time.Duration(s.random.Int64N(int64(3 * time.Second)))
		t.Logf("kill %s after %s, %d rows", m.Name, after, s.rows())
		time.Sleep(after) // a random moment is what is tested
		m.kill()
	}
	end()
	s.untilCurrent()
	s.check()
}

// A member dies while the PUT of its commit is on its way. The PUT lands at once, when the next member is at work, or
// never.
func TestKilledWhileCommitting(t *testing.T) {
	t.Parallel()
	s := newScene(t, 8)
	end := s.stream(2000)
	// The table exists, so that what is held is a commit with rows.
	first := s.start()
	s.awaitRows(1)
	first.drain()
	var late *lab.Fault
	for i := range killsWhileCommiting {
		proxy := s.proxy()
		fault := proxy.Break(lab.CommitPut, 1, lab.Hold)
		m := s.start(through(proxy))
		s.met(fault)
		m.kill()
		if late != nil {
			late.Release(true)
			late = nil
		}
		switch i % 3 {
		case 0:
			late = fault
		case 1:
			fault.Release(true)
		case 2:
			fault.Release(false)
		}
	}
	if late != nil {
		late.Release(true)
	}
	end()
	s.untilCurrent()
	s.check()
}
