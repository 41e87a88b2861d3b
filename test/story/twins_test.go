package story_test

import (
	"fmt"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/test/story"
)

// TestSchedules_Duplicates is TestSchedules with records that have the identity of another record. The same records
// must become rows, no matter which member owns the partition and what its dedup window contains.
func TestSchedules_Duplicates(t *testing.T) {
	first, last := uint64(1), uint64(*seeds/2)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			h := story.NewHarness(s, 3)
			h.Twins = story.NewTwins(h.Chance, 24*time.Hour)
			h.Twins.Random(h.Broker)
			if s%3 == 0 { // this store is shared by all members, as a database would be
				h.Twins.Shared = idempotency.NewMemory(1<<30, nil)
			}
			if s%4 == 0 {
				h.Letters = &story.LetterLog{}
				h.HoldAbove = 1
			}
			play(t, h, s)
		})
	}
}

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
)

// twins is scenario with records that have identities. play adds records by Twins.Add.
func twins(t *testing.T, partitions int, play func(t *testing.T, h *story.Harness)) {
	t.Helper()
	scenario(t, partitions, func(t *testing.T, h *story.Harness) {
		h.Twins = story.NewTwins(h.Chance, 24*time.Hour)
		play(t, h)
	})
}

func committed(t *testing.T, h *story.Harness, next int64) {
	t.Helper()
	eventually(t, "the table has what was produced", func() bool { return h.Position(0) == next })
}

// TestDuplicates_Window repeats a record. The repeated record must be left out if its timestamp is a second or 23 h
// 59 min after that of the first one, and must become a row after 24 h 1 min. This must hold even if the member
// restarted, crashed or lost the partition in between.
func TestDuplicates_Window(t *testing.T) {
	for name, between := range map[string]func(*testing.T, *story.Harness, *story.Process) *story.Process{
		"nothing": func(_ *testing.T, _ *story.Harness, p *story.Process) *story.Process { return p },
		"restart": func(t *testing.T, h *story.Harness, p *story.Process) *story.Process {
			t.Helper()
			h.Stop(p)
			return h.Begin(t.Context())
		},
		"crash": func(t *testing.T, h *story.Harness, p *story.Process) *story.Process {
			t.Helper()
			h.Crash(p)
			return h.Begin(t.Context())
		},
		"rebalance": func(t *testing.T, h *story.Harness, p *story.Process) *story.Process {
			t.Helper()
			other := h.Begin(t.Context())
			p.Member.Assign(connector.Assignment{Joined: true})
			return other
		},
	} {
		t.Run(name, func(t *testing.T) {
			twins(t, 1, func(t *testing.T, h *story.Harness) {
				at := time.Now().UnixMilli() - 100*hour
				p, next := h.Begin(t.Context()), int64(0)
				for _, later := range []int64{0, second, 23*hour + 59*minute, 24*hour + minute, 24*hour + 2*minute} {
					p.Member.Assign(joined(h, 0))
					h.Twins.Add(h.Broker, 0, story.Stamp{ID: "e-1", At: at + later})
					next++
					committed(t, h, next)
					p = between(t, h, p)
				}
				wantRows(t, h, 0, []int64{0, 3})
			})
		})
	}
}

func TestDuplicates_NoIdentity(t *testing.T) {
	twins(t, 1, func(t *testing.T, h *story.Harness) {
		stamps, want := make([]story.Stamp, 1000), []int64(nil)
		for i := range stamps {
			stamps[i].At = time.Now().UnixMilli()
			want = append(want, int64(i))
		}
		h.Twins.Add(h.Broker, 0, stamps...)
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		committed(t, h, 1000)
		wantRows(t, h, 0, want)
		if n := p.Counted("sluice_duplicates_total"); n != 0 {
			t.Errorf("%v duplicates", n)
		}
	})
}

// TestDuplicates_PositionSetBack expects records after a position that an operator has set back to become rows again.
func TestDuplicates_PositionSetBack(t *testing.T) {
	twins(t, 1, func(t *testing.T, h *story.Harness) {
		h.Twins.Shared = idempotency.NewMemory(1<<20, nil)
		now := time.Now().UnixMilli()
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		for i, id := range []string{"a", "b", "a", "c"} {
			h.Twins.Add(h.Broker, 0, story.Stamp{ID: id, At: now})
			committed(t, h, int64(i+1))
		}
		wantRows(t, h, 0, []int64{0, 1, 3})
		h.Log.Append(story.Version{Member: "operator", Commit: h.Forged(0, 1)})
		eventually(t, "offsets from 1 on are read again", func() bool { return len(h.Rows(0)) == 5 })
		// The row of a at offset 0 is before the position, so a at offset 2 is a duplicate; b and c become rows again.
		wantRows(t, h, 0, []int64{0, 1, 3, 1, 3})
	})
}

// TestDuplicates_Reset expects a reset to forget exactly the fingerprints of records below its offset. This must also
// hold in a new member, which fills its window from the table.
func TestDuplicates_Reset(t *testing.T) {
	twins(t, 1, func(t *testing.T, h *story.Harness) {
		var below atomic.Int64
		h.Twins.Reset = func(connector.Partition) int64 { return below.Load() }
		now := time.Now().UnixMilli()
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		add := func(ids ...string) {
			t.Helper()
			for _, id := range ids {
				h.Twins.Add(h.Broker, 0, story.Stamp{ID: id, At: now})
			}
			committed(t, h, int64(len(h.Broker.Kinds(story.Topic, 0))))
		}
		add("a", "b", "c") // at offsets 0, 1 and 2
		below.Store(2)
		add("a", "b", "c", "a") // at offsets 3 to 6, of which only 3 and 4 become rows
		wantRows(t, h, 0, []int64{0, 1, 2, 3, 4})
		h.Crash(p)
		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0))
		add("a", "c", "d") // at offsets 7 to 9, of which only 9 becomes a row
		wantRows(t, h, 0, []int64{0, 1, 2, 3, 4, 9})
		below.Store(10)
		add("a", "d", "a")
		wantRows(t, h, 0, []int64{0, 1, 2, 3, 4, 9, 10, 11})
	})
}

// TestDuplicates_ReadsTableOnlyForGaps expects a member not to read fingerprints from the table while it keeps a
// partition, because its own commits add fingerprints to the window. Once the partition was lost and came back, the
// member must read the table once.
func TestDuplicates_ReadsTableOnlyForGaps(t *testing.T) {
	twins(t, 2, func(t *testing.T, h *story.Harness) {
		recalls := 0
		h.Broken = func(step string) error {
			if step == "recall" {
				recalls++
			}
			return nil
		}
		now := time.Now().UnixMilli()
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		for i := range int64(20) {
			h.Twins.Add(h.Broker, 0, story.Stamp{ID: fmt.Sprint(i % 7), At: now})
			committed(t, h, i+1)
		}
		wantRows(t, h, 0, []int64{0, 1, 2, 3, 4, 5, 6})
		if recalls != 0 {
			t.Errorf("the rows of the table were read %d times", recalls)
		}
		if n := p.Counted("sluice_duplicates_total"); n != 13 {
			t.Errorf("%v duplicates are counted, want 13", n)
		}
		if s := p.Memory.Stats(); s.Entries != 7 {
			t.Errorf("%d entries", s.Entries)
		}
		p.Member.Assign(joined(h, 1)) // losing the claim releases its window
		eventually(t, "the window is given back", func() bool { return p.Memory.Stats().Entries == 0 })
		p.Member.Assign(joined(h, 0, 1))
		h.Twins.Add(h.Broker, 0, story.Stamp{ID: "3", At: now})
		committed(t, h, 21)
		if recalls != 1 || p.Memory.Stats().Entries != 7 {
			t.Errorf("read %d times, %d entries", recalls, p.Memory.Stats().Entries)
		}
	})
}

// TestDuplicates_WindowCannotBeFilled expects only the claims whose dedup window cannot be filled to be held.
func TestDuplicates_WindowCannotBeFilled(t *testing.T) {
	twins(t, 2, func(t *testing.T, h *story.Harness) {
		var broken atomic.Bool
		h.Broken = func(step string) error {
			if step == "recall" && broken.Load() {
				return hold.New(hold.TableUnsupported, "a file of the table cannot be read", nil)
			}
			return nil
		}
		now := time.Now().UnixMilli()
		p := h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		h.Twins.Add(h.Broker, 0, story.Stamp{ID: "a", At: now})
		committed(t, h, 1)
		broken.Store(true)
		h.Crash(p)
		p = h.Begin(t.Context())
		p.Member.Assign(joined(h, 0, 1))
		h.Twins.Add(h.Broker, 0, story.Stamp{ID: "a", At: now})
		h.Twins.Add(h.Broker, 1, story.Stamp{ID: "a", At: now})
		eventually(t, "partition 1 goes on", func() bool { return h.Position(1) == 1 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.TableUnsupported})
		broken.Store(false)
		committed(t, h, 2)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, h, 0, []int64{0})
	})
}

// TestDuplicates_PartitionBackWhileFilling loses a partition and gets it back while its dedup window is being filled.
// Filling must begin again for the new session.
func TestDuplicates_PartitionBackWhileFilling(t *testing.T) {
	for seed := range uint64(10) {
		seeded(t, seed, 1, func(t *testing.T, h *story.Harness) {
			h.Twins = story.NewTwins(h.Chance, 24*time.Hour)
			now := time.Now().UnixMilli()
			m := h.Begin(t.Context())
			m.Member.Assign(joined(h, 0))
			for i, id := range []string{"a", "b", "c"} {
				h.Twins.Add(h.Broker, 0, story.Stamp{ID: id, At: now})
				committed(t, h, int64(i+1))
			}
			// A commit of another member leaves a gap in the first member's window. While the first member fills the gap, it
			// loses the partition and gets it back.
			other := h.Begin(t.Context())
			other.Member.Assign(joined(h, 0))
			h.Twins.Add(h.Broker, 0, story.Stamp{ID: "d", At: now})
			committed(t, h, 4)
			for range 8 {
				m.Member.Assign(connector.Assignment{Joined: true})
				time.Sleep(time.Duration(h.Chance.N(int(300 * time.Millisecond))))
				m.Member.Assign(joined(h, 0))
				time.Sleep(time.Duration(h.Chance.N(int(300 * time.Millisecond))))
			}
			h.Stop(other)
			for _, id := range []string{"a", "d", "e"} {
				h.Twins.Add(h.Broker, 0, story.Stamp{ID: id, At: now})
			}
			committed(t, h, 7)
			wantHolds(t, m, map[int32]hold.Reason{})
			wantRows(t, h, 0, []int64{0, 1, 2, 3, 6})
		})
	}
}
