//go:build lab

package e2e

import (
	"testing"

	"sluice/test/lab"
	"sluice/test/tablelog"
)

func (s *scene) rows() int64 {
	s.t.Helper()
	return tablelog.Rows(s.commits())
}

// TestFrozenMemberIsFenced freezes a member during a commit until a second member commits its partitions. When the
// first member thaws, the table's log must fence its commit, and both members must continue.
func TestFrozenMemberIsFenced(t *testing.T) {
	t.Parallel()
	for name, during := range map[string]lab.Match{"data": lab.DataPut, "commit": lab.CommitPut} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newScene(t, 4)
			end := s.stream(1000)
			proxy := s.proxy()
			zombie := s.start(through(proxy))
			s.awaitRows(1)
			fault := proxy.Break(during, 1, lab.Hold)
			s.met(fault)
			zombie.freeze()
			before := s.rows()
			heir := s.start()
			s.awaitRows(before + 3000)
			fault.Release(true)
			zombie.thaw()
			s.await("the zombie is fenced", func() (bool, error) { return zombie.metric("sluice_fenced_total") > 0, nil })
			// Both members continue.
			zombie.awaitReady()
			before = s.rows()
			s.awaitRows(before + 3000)
			end()
			heir.drain()
			zombie.drain()
			s.untilCurrent()
			s.check("--readers", "duckdb,polars")
		})
	}
}

// TestJoinAndLeaveDuringCommit lets a second member join, and later leave, while a commit of the first one is in
// flight. After the join both must commit. After the second one has left, the first one must own all partitions and
// commit.
func TestJoinAndLeaveDuringCommit(t *testing.T) {
	t.Parallel()
	s := newScene(t, 8)
	end := s.stream(2000)
	proxy := s.proxy()
	stays := s.start(through(proxy))
	s.awaitRows(1)

	fault := proxy.Break(lab.CommitPut, 1, lab.Hold)
	s.met(fault)
	guest := s.start()
	guest.await("it has partitions", func(r report) bool { return r.Ready && len(r.Partitions) > 0 })
	fault.Release(true)
	wins := stays.metric("sluice_commits_total")
	s.await("both commit", func() (bool, error) {
		return stays.metric("sluice_commits_total") > wins && guest.metric("sluice_commits_total") > 0, nil
	})

	fault = proxy.Break(lab.CommitPut, 1, lab.Hold)
	s.met(fault)
	guest.drain()
	fault.Release(true)
	stays.await("it has all partitions", func(r report) bool { return r.Ready && len(r.Partitions) == 8 })
	wins = stays.metric("sluice_commits_total")
	s.await("the first member commits", func() (bool, error) { return stays.metric("sluice_commits_total") > wins, nil })
	t.Logf("fenced %v times", stays.metric("sluice_fenced_total"))
	end()
	stays.drain()
	s.untilCurrent()
	s.check("--readers", "duckdb,polars")
}
