package story_test

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/test/story"
)

var tights = flag.Int("story.tights", defaultTights, "how many seeded schedules to run with hardly any memory")

// tight runs play once for each schedule.
func tight(t *testing.T, play func(t *testing.T, s uint64)) {
	t.Helper()
	first, last := uint64(1), uint64(*tights)
	if testing.Short() { // the race detector takes ten times as long, and needs fewer
		last = max(1, last/4)
	}
	if *seed != 0 {
		first, last = *seed, *seed
	}
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) { play(t, s) })
	}
}

// TestSchedules_LittleMemory is TestSchedules where each process has memory for one to four fetch results and a few
// rows. Every wait for memory ends, no memory is used after its release (it is overwritten then), and in the end
// everything was released once.
func TestSchedules_LittleMemory(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		w := story.NewWorld(s, 3)
		w.Fetch = story.Response + 4<<10*int64(1+s%4)
		w.Batch = 100 << (s % 6)
		w.CommitRows = 1 + int64(s%7)
		play(t, w, s)
	})
}

// TestTables_LittleMemory: three tables share the memory of a process, and one of them commits slowly for a while.
// The others continue meanwhile, and in the end every table has every row once.
func TestTables_LittleMemory(t *testing.T) {
	var meanwhile int
	tight(t, func(t *testing.T, s uint64) {
		w := story.NewWorld(s, 2)
		w.Logger = logger()
		w.Fetch = story.Response + 4<<10*int64(1+s%4)
		w.Batch = 400 << (s % 5)
		w.CommitRows = 2 + int64(s%9)
		logs := map[string]*story.TableLog{story.Topic: w.Log, "b": story.NewTableLog("table-b"), "c": story.NewTableLog("table-c")}
		w.Others = map[string]*story.TableLog{"b": logs["b"], "c": logs["c"]}
		w.Broker.Create("b", 2, 2)
		w.Broker.Create("c", 3, 1)
		var slow atomic.Bool
		w.Broken = func(step string) error { // of the first table
			if slow.Load() && step == "put data files" {
				time.Sleep(time.Minute)
			}
			return nil
		}
		p := w.Begin(t.Context())
		all := connector.Assignment{Joined: true}
		for _, name := range slices.Sorted(maps.Keys(logs)) {
			all.Partitions = append(all.Partitions, w.Broker.Partitions(name)...)
		}
		p.Member.Assign(all)
		produced := map[string]int{}
		for step := range 30 {
			name := []string{story.Topic, "b", "c"}[w.Chance.N(3)]
			id := int32(w.Chance.N(len(w.Broker.Partitions(name))))
			kinds := make([]byte, 1+w.Chance.N(12))
			for k := range kinds {
				if kinds[k] = "rrrrt"[w.Chance.N(5)]; kinds[k] == 'r' {
					produced[name]++
				}
			}
			w.Broker.Produce(name, id, string(kinds), fmt.Sprint(w.Chance.N(3)))
			slow.Store(step >= 10 && step < 20)
			if w.Chance.Is(15) {
				w.Crash(p)
				p = w.Begin(t.Context())
				p.Member.Assign(all)
			}
			time.Sleep(time.Duration(w.Chance.N(int(time.Second))))
		}
		rows := func(name string) (n int) {
			for _, r := range rowsOf(logs[name], name) {
				n += len(r)
			}
			return n
		}
		done := func(names ...string) bool {
			for _, name := range names {
				if rows(name) < produced[name] {
					return false
				}
			}
			return true
		}
		slow.Store(true)
		for range 600 {
			if done("b", "c") {
				break
			}
			time.Sleep(time.Second)
		}
		if !done(story.Topic) {
			meanwhile++
		}
		slow.Store(false)
		for range 3600 {
			if done(story.Topic, "b", "c") {
				break
			}
			time.Sleep(time.Second)
		}
		w.Close()
		for _, v := range w.Broker.Violations() {
			t.Errorf("seed %d: %s", s, v)
		}
		for name, log := range logs {
			got := rowsOf(log, name)
			for _, part := range w.Broker.Partitions(name) {
				var want []int64
				for o, k := range w.Broker.Kinds(name, part.ID) {
					if k == story.Row {
						want = append(want, int64(o))
					}
				}
				if !slices.Equal(got[part.ID], want) {
					t.Errorf("seed %d: %v has rows %v, want %v", s, part, got[part.ID], want)
				}
			}
		}
	})
	if meanwhile == 0 && *seed == 0 {
		t.Error("no table was ever done before the slow one")
	}
	t.Logf("%d schedules, in %d of them the other tables were done before the slow one", *tights, meanwhile)
}

// tables is a world of three topics, each with its table, and a process that has all of them.
func tables(t *testing.T, s uint64, shape func(w *story.World)) (w *story.World, rows func(topic string) int, end func()) {
	t.Helper()
	w = story.NewWorld(s, 2)
	w.Logger = logger()
	b, c := story.NewTableLog("table-b"), story.NewTableLog("table-c")
	w.Others = map[string]*story.TableLog{"b": b, "c": c}
	w.Broker.Create("b", 2, 2)
	w.Broker.Create("c", 3, 1)
	shape(w)
	p := w.Begin(t.Context())
	all := connector.Assignment{Joined: true}
	for _, name := range []string{story.Topic, "b", "c"} {
		all.Partitions = append(all.Partitions, w.Broker.Partitions(name)...)
	}
	p.Member.Assign(all)
	logs := map[string]*story.TableLog{story.Topic: w.Log, "b": b, "c": c}
	rows = func(topic string) (n int) {
		for _, r := range rowsOf(logs[topic], topic) {
			n += len(r)
		}
		return n
	}
	return w, rows, func() {
		w.Close()
		for _, v := range w.Broker.Violations() {
			t.Errorf("seed %d: %s", s, v)
		}
	}
}

// within waits until cond is true, for so long at most.
func within(most time.Duration, cond func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(time.Second) {
		if cond() {
			return true
		}
	}
	return cond()
}

// TestMemory_StoppedTableStarvesNone: while the files of one table cannot be put at all, its fetched records do not
// keep the memory from other tables.
func TestMemory_StoppedTableStarvesNone(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		var stopped atomic.Bool
		stopped.Store(true)
		w, rows, end := tables(t, s, func(w *story.World) {
			w.Fetch, w.Batch, w.CommitRows = story.Response+4<<10*int64(1+s%3), 20_000, 5
			w.Broken = func(step string) error {
				for step == "put data files" && stopped.Load() {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		for range 10 {
			w.Broker.Produce(story.Topic, 0, "rrrrrrrrrr", "k")
			w.Broker.Produce(story.Topic, 1, "rrrrrrrrrr", "l")
		}
		time.Sleep(10 * time.Second)
		for range 3 {
			w.Broker.Produce("b", 1, "rrrrr", "k")
			w.Broker.Produce("c", 0, "rrrrr", "k")
			time.Sleep(time.Second)
		}
		if !within(10*time.Minute, func() bool { return rows("b") == 15 && rows("c") == 15 }) {
			t.Errorf("seed %d: %d and %d rows of 15", s, rows("b"), rows("c"))
		}
		stopped.Store(false)
		if !within(time.Hour, func() bool { return rows(story.Topic) == 200 }) {
			t.Errorf("seed %d: %d rows of 200", s, rows(story.Topic))
		}
		end()
	})
}

// TestMemory_FullPoolSeals: three tables share a full batch pool, and none has reached its limits or its age. They
// are sealed so that reading continues.
func TestMemory_FullPoolSeals(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		w, rows, end := tables(t, s, func(w *story.World) { w.Batch, w.CommitRows, w.Every = 4<<10, 1000, 24*time.Hour })
		for range 20 {
			for _, name := range []string{story.Topic, "b", "c"} {
				w.Broker.Produce(name, 0, "rrrrrrrrrr", "k")
			}
		}
		all := func() int { return rows(story.Topic) + rows("b") + rows("c") }
		if !within(time.Hour, func() bool { return all() >= 600-4<<10/32 }) {
			t.Errorf("seed %d: %d rows of 600", s, all())
		}
		end()
	})
}
