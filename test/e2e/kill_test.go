//go:build lab

package e2e

import (
	"testing"
	"time"

	"sluice/test/lab"
)

// TestKilledAtRandomMoments kills members at random moments. The table must lose no record and repeat none.
func TestKilledAtRandomMoments(t *testing.T) {
	t.Parallel()
	s := newScene(t, 8)
	end := s.stream(2000)
	for range killsAtRandom {
		m := s.start()
		// Three in four members are killed while they commit rows, one in four while it starts, joins or resumes.
		if s.random.IntN(4) > 0 {
			m.awaitReady()
		}
		after := time.Duration(s.random.Int64N(int64(3 * time.Second)))
		t.Logf("kill %s after %s, %d rows", m.Name, after, s.rows())
		time.Sleep(after) // waits for a random time, so that the kill comes at a random moment
		m.kill()
	}
	end()
	s.untilCurrent()
	s.check()
}

// TestKilledWhileCommitting kills members while the PUT of their commit is on its way to the store. After the kill the
// PUT takes effect at once, or later while the next member works, or never. In the end each record must be one row.
func TestKilledWhileCommitting(t *testing.T) {
	t.Parallel()
	s := newScene(t, 8)
	end := s.stream(2000)
	// The first member creates the table. Without it, the proxy below would hold the commit that creates the table,
	// which has no rows.
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
