//go:build lab

package rolling

import "testing"

// TestRollingChange changes a group from members of the earlier version to members of this one and back, one member at a
// time, while records arrive. In each phase one version pauses a partition, the other version resumes it, and the
// members of all versions follow. Afterwards rows and dead letters are those that were produced, as both versions read them.
func TestRollingChange(t *testing.T) {
	g := newGroup(t, "")
	g.topic("orders")
	stop := g.produceAlways()
	defer stop()

	a, b := g.start(before), g.start(before)
	g.calm("orders")
	g.pauseAndResume(before, before)

	c := g.start(now)
	g.stop(a)
	g.calm("orders")
	g.pauseAndResume(before, now)
	g.pauseAndResume(now, before)

	d := g.start(now)
	g.stop(b)
	g.topic("users") // its table is one of this version
	g.calm("orders", "users")
	g.pauseAndResume(now, now)

	e := g.start(before)
	g.stop(c)
	g.calm("orders", "users")
	g.pauseAndResume(now, before)

	f := g.start(before)
	g.stop(d)
	g.calm("orders", "users")
	g.pauseAndResume(before, before)

	stop()
	g.progress("orders", "users")
	changes := 8
	fences := g.fences()
	t.Logf("%d records, %d of them bad, %d twice; %d fences in %d changes of members", g.produced(), len(g.bad), g.twice, fences, changes)
	if fences > changes*partitions {
		t.Errorf("%d fences in %d changes of members", fences, changes)
	}
	for _, line := range g.complaints() {
		t.Error(line)
	}
	g.stop(e)
	g.stop(f)
	g.equal()
}

// pauseAndResume has one version pause a partition, and another one resume it.
func (g *group) pauseAndResume(pause, resume version) {
	g.T.Helper()
	began := g.holdsOf("orders", 1, "paused")
	g.run(pause, 0, "pause", "orders:1", "--reason", "test", "--yes")
	g.Await("a member holds the paused partition", func() bool { return g.holdsOf("orders", 1, "paused") > began })
	g.run(resume, 0, "resume", "orders:1", "--reason", "test", "--yes")
	g.calm("orders")
}

// produced returns the number of records so far.
func (g *group) produced() (n int64) {
	for _, offsets := range g.next {
		for _, next := range offsets {
			n += next
		}
	}
	return n
}
