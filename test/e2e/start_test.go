//go:build lab

package e2e

import (
	"strings"
	"testing"
)

// TestMembersStartAtOnce starts two members of a new topic with start latest at the same time, while records arrive.
// They must make only one initial commit, for all partitions. A second one could set a position after records that must
// become rows.
func TestMembersStartAtOnce(t *testing.T) {
	t.Parallel()
	s := newScene(t, 8)
	s.produce(2_000) // these are before the end of the topic, at which it starts, so they must not become rows
	end := s.stream(500)
	members := []*member{s.start(from("latest")), s.start(from("latest"))}
	s.awaitRows(2_000)
	for _, m := range members {
		m.await("it owns half of the partitions", func(r report) bool { return r.Ready && len(r.Partitions) == 4 })
	}
	end()
	for _, m := range members {
		m.drain()
	}
	s.untilCurrent()

	starts, positions := 0, 0
	for _, c := range s.commits() {
		if c.Info.Operation != "SLUICE START" {
			continue
		}
		starts++
		for _, x := range c.Txns {
			if _, ok := x.Partition(); ok {
				positions++
			}
		}
	}
	if starts != 1 || positions != 8 {
		t.Errorf("%d initial commits with %d positions, want one with 8", starts, positions)
	}
	// Every record from the initial commit on has its row, none before it has one.
	text := s.wants(0, "verify", "--kafka")
	if !strings.Contains(text, "the rows are those of the topic") {
		t.Error(text)
	}
}
