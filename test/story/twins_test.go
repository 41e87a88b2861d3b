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

// TestSchedules_Duplicates is TestSchedules with records that were sent twice: with any owner of a partition and
// any state of the window, the same ones become rows.
func TestSchedules_Duplicates(t *testing.T) {
	first, last := uint64(1), uint64(*seeds/2)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			w := story.NewWorld(s, 3)
			w.Twins = story.NewTwins(w.Chance, 24*time.Hour)
			w.Twins.Random(w.Broker)
			if s%3 == 0 { // a database that all members use
				w.Twins.Shared = idempotency.NewMemory(1<<30, nil)
			}
			if s%4 == 0 {
				w.Letters = &story.LetterLog{}
				w.HoldAbove = 1
			}
			play(t, w, s)
		})
	}
}

const (
	second = int64(1000)
	minute = 60 * second
	hour   = 60 * minute
)

// twins makes a scene with identities that the test gives.
func twins(t *testing.T, partitions int, play func(t *testing.T, w *story.World)) {
	t.Helper()
	scene(t, partitions, func(t *testing.T, w *story.World) {
		w.Twins = story.NewTwins(w.Chance, 24*time.Hour)
		play(t, w)
	})
}

func committed(t *testing.T, w *story.World, next int64) {
	t.Helper()
	eventually(t, "the table has what was produced", func() bool { return w.Position(0) == next })
}

// TestDuplicates_Window: a second and 23 h 59 m after the first they are left out, 24 h 01 m after it they are not.
// It makes no difference whether the member restarted, crashed or lost the partition in between.
func TestDuplicates_Window(t *testing.T) {
	for name, between := range map[string]func(*testing.T, *story.World, *story.Process) *story.Process{
		"nothing": func(_ *testing.T, _ *story.World, p *story.Process) *story.Process { return p },
		"restart": func(t *testing.T, w *story.World, p *story.Process) *story.Process {
			t.Helper()
			w.Stop(p)
			return w.Begin(t.Context())
		},
		"crash": func(t *testing.T, w *story.World, p *story.Process) *story.Process {
			t.Helper()
			w.Crash(p)
			return w.Begin(t.Context())
		},
		"rebalance": func(t *testing.T, w *story.World, p *story.Process) *story.Process {
			t.Helper()
			other := w.Begin(t.Context())
			p.Member.Assign(connector.Assignment{Joined: true})
			return other
		},
	} {
		t.Run(name, func(t *testing.T) {
			twins(t, 1, func(t *testing.T, w *story.World) {
				at := time.Now().UnixMilli() - 100*hour
				p, next := w.Begin(t.Context()), int64(0)
				for _, later := range []int64{0, second, 23*hour + 59*minute, 24*hour + minute, 24*hour + 2*minute} {
					p.Member.Assign(joined(w, 0))
					w.Twins.Add(w.Broker, 0, story.Stamp{ID: "e-1", At: at + later})
					next++
					committed(t, w, next)
					p = between(t, w, p)
				}
				wantRows(t, w, 0, []int64{0, 3})
			})
		})
	}
}

func TestDuplicates_NoIdentity(t *testing.T) {
	twins(t, 1, func(t *testing.T, w *story.World) {
		stamps, want := make([]story.Stamp, 1000), []int64(nil)
		for i := range stamps {
			stamps[i].At = time.Now().UnixMilli()
			want = append(want, int64(i))
		}
		w.Twins.Add(w.Broker, 0, stamps...)
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		committed(t, w, 1000)
		wantRows(t, w, 0, want)
		if n := p.Counted("sluice_duplicates_total"); n != 0 {
			t.Errorf("%v duplicates", n)
		}
	})
}

// TestDuplicates_PositionSetBack: an operator who sets a position back wants the records again.
func TestDuplicates_PositionSetBack(t *testing.T) {
	twins(t, 1, func(t *testing.T, w *story.World) {
		w.Twins.Shared = idempotency.NewMemory(1<<20, nil)
		now := time.Now().UnixMilli()
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		for i, id := range []string{"a", "b", "a", "c"} {
			w.Twins.Add(w.Broker, 0, story.Stamp{ID: id, At: now})
			committed(t, w, int64(i+1))
		}
		wantRows(t, w, 0, []int64{0, 1, 3})
		w.Log.Append(story.Version{Member: "operator", Commit: w.Forged(0, 1)})
		eventually(t, "offsets from 1 on are read again", func() bool { return len(w.Rows(0)) == 5 })
		// a is still in the table from before the position, b and c come again.
		wantRows(t, w, 0, []int64{0, 1, 3, 1, 3})
	})
}

// TestDuplicates_Reset: a reset deletes what is below it and nothing else, also for a member that has only the
// table.
func TestDuplicates_Reset(t *testing.T) {
	twins(t, 1, func(t *testing.T, w *story.World) {
		var below atomic.Int64
		w.Twins.Reset = func(connector.Partition) int64 { return below.Load() }
		now := time.Now().UnixMilli()
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		add := func(ids ...string) {
			t.Helper()
			for _, id := range ids {
				w.Twins.Add(w.Broker, 0, story.Stamp{ID: id, At: now})
			}
			committed(t, w, int64(len(w.Broker.Kinds(story.Topic, 0))))
		}
		add("a", "b", "c") // 0, 1, 2
		below.Store(2)
		add("a", "b", "c", "a") // 3, 4, not 5, not 6
		wantRows(t, w, 0, []int64{0, 1, 2, 3, 4})
		w.Crash(p)
		p = w.Begin(t.Context())
		p.Member.Assign(joined(w, 0))
		add("a", "c", "d") // only 9
		wantRows(t, w, 0, []int64{0, 1, 2, 3, 4, 9})
		below.Store(10)
		add("a", "d", "a")
		wantRows(t, w, 0, []int64{0, 1, 2, 3, 4, 9, 10, 11})
	})
}

// TestDuplicates_ReadsTableOnlyForGaps: while a member keeps a partition, its window grows with its commits.
func TestDuplicates_ReadsTableOnlyForGaps(t *testing.T) {
	twins(t, 2, func(t *testing.T, w *story.World) {
		recalls := 0
		w.Broken = func(step string) error {
			if step == "recall" {
				recalls++
			}
			return nil
		}
		now := time.Now().UnixMilli()
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		for i := range int64(20) {
			w.Twins.Add(w.Broker, 0, story.Stamp{ID: fmt.Sprint(i % 7), At: now})
			committed(t, w, i+1)
		}
		wantRows(t, w, 0, []int64{0, 1, 2, 3, 4, 5, 6})
		if recalls != 0 {
			t.Errorf("the rows of the table were read %d times", recalls)
		}
		if n := p.Counted("sluice_duplicates_total"); n != 13 {
			t.Errorf("%v duplicates are counted, want 13", n)
		}
		if s := p.Memory.Stats(); s.Entries != 7 {
			t.Errorf("%d entries", s.Entries)
		}
		p.Member.Assign(joined(w, 1)) // the window of a lost claim is released
		eventually(t, "the window is given back", func() bool { return p.Memory.Stats().Entries == 0 })
		p.Member.Assign(joined(w, 0, 1))
		w.Twins.Add(w.Broker, 0, story.Stamp{ID: "3", At: now})
		committed(t, w, 21)
		if recalls != 1 || p.Memory.Stats().Entries != 7 {
			t.Errorf("read %d times, %d entries", recalls, p.Memory.Stats().Entries)
		}
	})
}

// TestDuplicates_WindowCannotBeFilled: it holds only the claims of that window.
func TestDuplicates_WindowCannotBeFilled(t *testing.T) {
	twins(t, 2, func(t *testing.T, w *story.World) {
		var broken atomic.Bool
		w.Broken = func(step string) error {
			if step == "recall" && broken.Load() {
				return hold.New(hold.TableUnsupported, "a file of the table cannot be read", nil)
			}
			return nil
		}
		now := time.Now().UnixMilli()
		p := w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		w.Twins.Add(w.Broker, 0, story.Stamp{ID: "a", At: now})
		committed(t, w, 1)
		broken.Store(true)
		w.Crash(p)
		p = w.Begin(t.Context())
		p.Member.Assign(joined(w, 0, 1))
		w.Twins.Add(w.Broker, 0, story.Stamp{ID: "a", At: now})
		w.Twins.Add(w.Broker, 1, story.Stamp{ID: "a", At: now})
		eventually(t, "partition 1 goes on", func() bool { return w.Position(1) == 1 })
		wantHolds(t, p, map[int32]hold.Reason{0: hold.TableUnsupported})
		broken.Store(false)
		committed(t, w, 2)
		wantHolds(t, p, map[int32]hold.Reason{})
		wantRows(t, w, 0, []int64{0})
	})
}

// TestDuplicates_PartitionBackWhileFilling: filling begins again for the new session.
func TestDuplicates_PartitionBackWhileFilling(t *testing.T) {
	for seed := range uint64(10) {
		seeded(t, seed, 1, func(t *testing.T, w *story.World) {
			w.Twins = story.NewTwins(w.Chance, 24*time.Hour)
			now := time.Now().UnixMilli()
			m := w.Begin(t.Context())
			m.Member.Assign(joined(w, 0))
			for i, id := range []string{"a", "b", "c"} {
				w.Twins.Add(w.Broker, 0, story.Stamp{ID: id, At: now})
				committed(t, w, int64(i+1))
			}
			// A commit of another member leaves a gap in an existing window; while it is filled, the partition is
			// lost and comes back.
			other := w.Begin(t.Context())
			other.Member.Assign(joined(w, 0))
			w.Twins.Add(w.Broker, 0, story.Stamp{ID: "d", At: now})
			committed(t, w, 4)
			for range 8 {
				m.Member.Assign(connector.Assignment{Joined: true})
				time.Sleep(time.Duration(w.Chance.N(int(300 * time.Millisecond))))
				m.Member.Assign(joined(w, 0))
				time.Sleep(time.Duration(w.Chance.N(int(300 * time.Millisecond))))
			}
			w.Stop(other)
			for _, id := range []string{"a", "d", "e"} {
				w.Twins.Add(w.Broker, 0, story.Stamp{ID: id, At: now})
			}
			committed(t, w, 7)
			wantHolds(t, m, map[int32]hold.Reason{})
			wantRows(t, w, 0, []int64{0, 1, 2, 3, 6})
		})
	}
}
