package story_test

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// TestElections runs two members while leaders are elected. Some elections lose the end of a log, which then grows
// again with other records. Members are killed before they write committed offsets, and committed offsets are deleted.
// The operator of the test moves back the positions of claims held because of lost records. In the end each record of
// the log is one row, and claims were held only at positions after lost records.
func TestElections(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	moved := 0
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) { moved += elections(t, s) })
	}
	if moved == 0 && last-first > 50 {
		t.Error("no election lost what the table has")
	}
	t.Logf("%d schedules, %d positions moved back behind lost records", last-first+1, moved)
}

func elections(t *testing.T, s uint64) (moved int) {
	t.Helper()
	h := story.NewHarness(s, 3)
	h.Logger = logger()
	h.Broker.Flaky.Store(6)
	all := h.Broker.Partitions(story.Topic)
	members := []*story.Process{h.Begin(t.Context()), h.Begin(t.Context())}
	unchecked := 0.0
	end := func(m *story.Process, how func(*story.Process)) {
		how(m)
		unchecked += m.Counted("sluice_positions_unchecked_total")
	}
	lose := func(id int32) { // an election loses the end of a log, and other records take its place
		n := len(h.Broker.Kinds(story.Topic, id))
		h.Broker.Truncate(story.Topic, id, int64(n-h.Chance.N(min(n, 6)+1)), strings.Repeat("r", h.Chance.N(9)))
	}
	for range 40 {
		i, id := h.Chance.N(2), int32(h.Chance.N(3))
		switch h.Chance.N(12) {
		case 0, 1, 2, 3:
			h.Broker.Produce(story.Topic, id, strings.Repeat("r", 1+h.Chance.N(9)), "k")
		case 4:
			h.Broker.Elect(story.Topic, id)
		case 5:
			lose(id)
		case 6, 7:
			var a, b []connector.Partition
			for _, p := range all {
				if h.Chance.Is(2) {
					a = append(a, p)
				} else {
					b = append(b, p)
				}
			}
			members[0].Member.Assign(connector.Assignment{Joined: true, Partitions: a})
			members[1].Member.Assign(connector.Assignment{Joined: true, Partitions: b})
		case 8, 9:
			end(members[i], h.Crash)
			lose(id)
			members[i] = h.Begin(t.Context())
		case 10:
			end(members[i], h.Stop)
			members[i] = h.Begin(t.Context())
		case 11:
			h.Broker.ForgetGroup(story.Topic)
		}
		time.Sleep(time.Duration(h.Chance.N(int(1500 * time.Millisecond))))
	}
	h.Broker.Flaky.Store(0)
	end(members[1], h.Stop)
	members[0].Member.Assign(connector.Assignment{Joined: true, Partitions: all})
	time.Sleep(3 * time.Minute)
	end(members[0], func(*story.Process) {})
	if unchecked != 0 {
		t.Errorf("seed %d: %v positions were read on from unchecked, and each was committed with its epoch", s, unchecked)
	}
	for range 100 {
		if h.AtEnd() && len(members[0].Holds()) == 0 {
			break
		}
		for id, reason := range members[0].Holds() {
			if reason == hold.Truncated || reason == hold.AheadOfLogEnd {
				moveBack(t, h, s, id)
				moved++
			}
		}
		time.Sleep(3 * time.Minute) // rows of records that were read before a hold are in the table after this time
	}
	h.Close()
	for _, v := range h.Broker.Violations() {
		t.Errorf("seed %d: %s", s, v)
	}
	for _, p := range all {
		judgeElections(t, h, s, p.ID)
	}
	return moved
}

// place identifies a record of a partition: after an election another record may have its offset.
type place struct {
	offset int64
	epoch  int32
}

// places returns how many rows the table has of each record of a partition.
func places(h *story.Harness, id int32) map[place]int {
	all := map[place]int{}
	for _, v := range h.Log.Versions() {
		for _, r := range v.Rows {
			if r.ID == id {
				all[place{r.Offset, r.Epoch}]++
			}
		}
	}
	return all
}

// moveBack moves a position that is after lost records back to the first record of the log that has no row, as an
// operator does.
func moveBack(t *testing.T, h *story.Harness, s uint64, id int32) {
	t.Helper()
	rows, at, next := places(h, id), h.Position(id), int64(0)
	for _, epoch := range h.Broker.Epochs(story.Topic, id) {
		if rows[place{next, epoch}] == 0 {
			break
		}
		next++
	}
	if next >= at {
		t.Errorf("seed %d: partition %d is held at %d, and the table has what the log has up to there\n%s", s, id, at, history(h))
		return
	}
	if _, err := commit.Move(t.Context(), h.Operator(), moves(h, move(h, id, at, next))); err != nil {
		t.Errorf("seed %d: %v", s, err)
	}
}

// judgeElections expects one row of each record of the log, and at most one of each lost record.
func judgeElections(t *testing.T, h *story.Harness, s uint64, id int32) {
	t.Helper()
	rows := places(h, id)
	for offset, epoch := range h.Broker.Epochs(story.Topic, id) {
		if n := rows[place{int64(offset), epoch}]; n != 1 {
			t.Errorf("seed %d: record %d of partition %d, written in epoch %d, has %d rows\n%s", s, offset, id, epoch, n, history(h))
			return
		}
	}
	for at, n := range rows {
		if n > 1 {
			t.Errorf("seed %d: record %+v of partition %d has %d rows\n%s", s, at, id, n, history(h))
			return
		}
	}
}
