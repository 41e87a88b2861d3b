//go:build lab

package e2e

import (
	"slices"
	"testing"
	"time"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

const (
	// stormPace is the minimum time between two changes of a storm's membership; the maximum is stormSpread more.
	stormPace   = 2 * time.Second
	stormSpread = 3 * time.Second
	// stormWindow is the time within which the position of some partition must move. Each single position must move within
	// twice that, because a partition whose owners die one after the other waits for all of their sessions to end.
	stormWindow = 30 * time.Second
	// stormCommit is the duration of the PUT of a commit. Only one member can commit successfully in that time.
	stormCommit = 300 * time.Millisecond
	// stormFreeze is how long a frozen member does not run: longer than its session of 6 s and some commits.
	stormFreeze = 12 * time.Second
	// stormRereads is how often a record may be fetched on average. The uncommitted records of a member that dies are
	// fetched again.
	stormRereads = 10
)

// storm is a group whose members come and go.
type storm struct {
	*scene
	members []*member
	// slow is the proxy that delays the commits of all members equally. A single slow member would always be fenced by
	// the others.
	slow    *lab.S3Proxy
	frozen  *member
	thaws   time.Time
	fetched map[string]float64 // number of fetched records, by member
	fenced  map[string]float64
	moved   map[int32]time.Time // when each partition's position was last seen to move
	at      map[int32]int64
	longest time.Duration // longest time without a move of one position
}

// look reads the counters of all members and checks that positions move. It misses what a member counts between the
// last call of look and the member's death.
func (s *storm) look() {
	s.t.Helper()
	for _, m := range s.members {
		if r, err := m.health(); err != nil || !r.Joined && s.fetched[m.Name] == 0 {
			continue // the member is still starting
		}
		s.fetched[m.Name] = m.metric("sluice_fetch_records_total")
		s.fenced[m.Name] = m.metric("sluice_fenced_total")
	}
	now := time.Now()
	latest := now.Add(-stormWindow)
	for id, next := range tablelog.Positions(s.commits()) {
		if s.at[id] != next {
			s.at[id], s.moved[id] = next, now
		}
	}
	for id, moved := range s.moved {
		s.longest = max(s.longest, now.Sub(moved))
		if moved.After(latest) {
			latest = moved
		}
		if stood := now.Sub(moved); stood > 2*stormWindow {
			s.t.Errorf("partition %d has had position %d for %v", id, s.at[id], stood.Round(time.Second))
			s.moved[id] = now // report it once per window
		}
	}
	if now.Sub(latest) >= stormWindow {
		s.t.Errorf("no position moved within %v", stormWindow)
	}
}

// change starts a member, or drains, kills or freezes a random one. A frozen member continues after stormFreeze, when
// its session has ended.
func (s *storm) change() {
	s.t.Helper()
	one := func() *member {
		i := s.random.IntN(len(s.members))
		m := s.members[i]
		s.members = slices.Delete(s.members, i, i+1)
		return m
	}
	switch n := len(s.members); {
	case n < 2 || n < 4 && s.random.IntN(2) == 0:
		s.members = append(s.members, s.start(through(s.slow)))
	case s.frozen == nil && s.random.IntN(6) == 0:
		s.frozen, s.thaws = one(), time.Now().Add(stormFreeze)
		s.frozen.freeze()
	case s.random.IntN(2) == 0:
		one().kill()
	default:
		one().drain()
	}
}

// thaw lets the frozen member run again if the time in the field thaws has passed; otherwise it does nothing. The
// member still believes that it owns its partitions.
func (s *storm) thaw() {
	s.t.Helper()
	if s.frozen != nil && time.Now().After(s.thaws) {
		s.frozen.thaw()
		s.members, s.frozen = append(s.members, s.frozen), nil
	}
}

// TestMembershipStorm lets members join, leave, die or freeze every few seconds while commits are slow. Positions must
// keep moving, and in the end each record must be one row.
func TestMembershipStorm(t *testing.T) {
	t.Parallel()
	newScene(t, 8).storm(8, stormLasts, func() {})
}

// storm changes the membership for the time lasts, checks meanwhile that positions move, and afterwards compares the
// table with the produced records. It calls disturb about twice a second.
func (s *scene) storm(partitions int32, lasts time.Duration, disturb func()) {
	s.t.Helper()
	w := &storm{
		scene: s, fetched: map[string]float64{}, fenced: map[string]float64{},
		moved: map[int32]time.Time{}, at: map[int32]int64{},
	}
	w.run(partitions, lasts, disturb)
}

func (s *storm) run(partitions int32, lasts time.Duration, disturb func()) {
	s.t.Helper()
	t := s.t
	s.slow = s.proxy()
	s.slow.Slow(lab.CommitPut, stormCommit)
	end := s.stream(1000)
	s.members = append(s.members, s.start(through(s.slow)))
	s.awaitRows(1)
	began := time.Now()
	for id := range partitions {
		s.moved[id] = began
	}
	changes := 0
	for time.Since(began) < lasts {
		next := time.Now().Add(stormPace + time.Duration(s.random.Int64N(int64(stormSpread))))
		s.change()
		changes++
		for time.Now().Before(next) {
			s.thaw()
			disturb()
			s.look()
			time.Sleep(500 * time.Millisecond) // each call of look requests reports of all members
		}
	}
	s.thaws = time.Time{}
	s.thaw()
	s.look()
	end()
	for _, m := range s.members {
		m.drain()
	}
	s.untilCurrent()
	s.check("--readers", "duckdb,polars")

	sum := func(all map[string]float64) (n float64) {
		for _, v := range all {
			n += v
		}
		return n
	}
	rereads := sum(s.fetched) / float64(s.ledger.Len())
	t.Logf("%d changes of %d members in %v; fenced %v times; each record fetched %.2f times; a position stayed for %v at most",
		changes, len(s.fetched), lasts, sum(s.fenced), rereads, s.longest.Round(time.Second))
	if rereads > stormRereads {
		t.Errorf("each record was fetched %.1f times on average", rereads)
	}
}

// testStorm runs the storm while the broker that coordinates the group is repeatedly killed and started again.
func testStorm(t *testing.T, c *lab.KafkaCluster) {
	t.Helper()
	s := newSceneOn(t, c, 8)
	next := time.Now().Add(20 * time.Second)
	bounced := make(chan error, 1)
	bounced <- nil
	s.storm(8, stormOfThreeLasts, func() {
		if time.Now().Before(next) {
			return
		}
		next = time.Now().Add(time.Minute)
		if err := <-bounced; err != nil {
			t.Error(err)
		}
		go func() { bounced <- s.bounceCoordinator(c) }()
	})
	if err := <-bounced; err != nil {
		t.Error(err)
	}
}

// bounceCoordinator kills the broker that coordinates the group and starts it again.
func (s *scene) bounceCoordinator(c *lab.KafkaCluster) error {
	k, err := c.Coordinator(s.ctx, s.name)
	if err != nil {
		return err
	}
	if err := k.Kill(); err != nil {
		return err
	}
	if err := k.Start(s.ctx); err != nil {
		return err
	}
	return c.InSync(s.ctx, s.name)
}

// TestContested runs two members that both own every partition, because they are in two groups. Each commit of one
// fences the other. A member that is fenced again and again must be held as contested, and continue by itself when the
// other member has left.
func TestContested(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	end := s.stream(1000)
	wins := s.start()
	s.awaitRows(1)
	loses := s.start(inGroup(s.name + "-other"))
	contested := func(m *member) bool {
		r, err := m.health()
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Holds) > 0 && r.Holds[0].Reason == "contested"
	}
	s.await("one member holds its claims as contested", func() (bool, error) {
		if contested(wins) {
			wins, loses = loses, wins
			return true, nil
		}
		return contested(loses), nil
	})
	before := s.rows()
	s.awaitRows(before + 2000)
	wins.drain()
	loses.await("it is ready without holds", func(r report) bool { return len(r.Holds) == 0 && r.Ready })
	before = s.rows()
	s.awaitRows(before + 2000)
	t.Logf("fenced %v times", loses.metric("sluice_fenced_total"))
	end()
	loses.drain()
	s.untilCurrent()
	s.check("--readers", "polars")
}

// inGroup is a setting that makes a member join another consumer group.
func inGroup(group string) setting { return func(c *settings) { c.group = group } }
