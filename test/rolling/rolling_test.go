//go:build lab

package rolling

import (
	"syscall"
	"testing"

	"sluice/test/lab"
)

// TestRollingChange changes a group from members of the earlier version to members of this one and back, one member at a
// time, while records arrive. In each phase one version pauses a partition, the other version resumes it, and the
// members of all versions follow. A member of each version is suspended until those of the other one have its partitions, and
// continues then; one is killed. Afterwards rows and dead letters are those that were produced, as both versions read them.
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
	g.asleep(b, "orders")
	g.asleep(c, "orders")

	d := g.start(now)
	g.stop(b)
	g.topic("users") // its table is one of this version
	g.calm("orders", "users")
	g.pauseAndResume(now, now)

	e := g.start(before)
	g.kill(c)
	g.calm("orders", "users")
	g.pauseAndResume(now, before)

	f := g.start(before)
	g.stop(d)
	g.calm("orders", "users")
	g.pauseAndResume(before, before)

	stop()
	g.progress("orders", "users")
	const changes = 12 // a member that sleeps counts twice
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

// asleep suspends a member until others have taken over its partitions and have committed, and then lets it continue.
func (g *group) asleep(p *lab.Process, topics ...string) {
	g.T.Helper()
	if err := p.Signal(syscall.SIGSTOP); err != nil {
		g.T.Fatal(err)
	}
	g.progress(topics...)
	if err := p.Signal(syscall.SIGCONT); err != nil {
		g.T.Fatal(err)
	}
	g.calm(topics...)
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
