//go:build lab

package e2e

import "testing"

// TestUnresolvedLetters expects members to report the number of unresolved dead letters: that of the bad records
// without those that later became rows. A member that starts after another one was killed must report the same number.
func TestUnresolvedLetters(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4).poisoned()
	proxy := s.proxy()
	m := s.start(through(proxy))
	s.produce(1000)
	s.awaitPassed()
	commit := s.holdsCommit(proxy)
	s.produce(1000)
	s.met(commit)
	m.kill() // the dead letters of these records are written, but no commit has passed the records
	commit.Release(false)
	void := s.willBeVoid()

	first, second := s.start(lax), s.start(lax)
	s.awaitPassed()
	want := float64(int(s.badLedger.Len()) - void)
	const gauge = "sluice_unresolved_dead_letters"
	for _, m := range []*member{first, second} {
		m.awaitReady()
		m.await("it counts the unresolved dead letters", func(report) bool {
			n, _ := m.sum(gauge)
			return n == want
		})
	}
	second.kill()
	third := s.start(lax)
	third.awaitReady()
	third.await("it exports the gauge", func(report) bool {
		n, known := third.sum(gauge)
		if known && n != want {
			t.Errorf("a member that just started counts %v dead letters, want %v", n, want)
		}
		return known
	})
	if c := s.countLetters(lax); float64(c.Unresolved) != want || c.Void != void || void == 0 || c.Letters <= c.Distinct {
		t.Errorf("list says %+v, want %v unresolved and %d void letters, and repeats", c, want, void)
	}
	if n := first.metric(gauge); n != want {
		t.Errorf("the first member counts %v, want %v", n, want)
	}
	first.drain()
	third.drain()
}
