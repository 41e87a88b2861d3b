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

// tight runs play for the seeds that the flags of the test allow, each in virtual time of its own.
func tight(t *testing.T, play func(t *testing.T, s uint64)) {
	t.Helper()
	first, last := uint64(1), uint64(*tights)
	if testing.Short() { // run with the race detector, which takes ten times as long
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
// rows. Every wait for memory must end, and all memory must be released in the end. Released memory is overwritten, so
// its use would show in the rows.
func TestSchedules_LittleMemory(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		h := story.NewHarness(s, 3)
		h.Fetch = story.Response + 4<<10*int64(1+s%4)
		h.Batch = 100 << (s % 6)
		h.CommitRows = 1 + int64(s%7)
		play(t, h, s)
	})
}

// TestTables_LittleMemory has three tables that share the little memory of a process. One of them commits slowly. In at
// least one schedule the others must have all of their rows before it. In the end every table must have every row once.
func TestTables_LittleMemory(t *testing.T) {
	var meanwhile int
	tight(t, func(t *testing.T, s uint64) {
		h := story.NewHarness(s, 2)
		h.Logger = logger()
		h.Fetch = story.Response + 4<<10*int64(1+s%4)
		h.Batch = 400 << (s % 5)
		h.CommitRows = 2 + int64(s%9)
		logs := map[string]*story.TableLog{story.Topic: h.Log, "b": story.NewTableLog("table-b"), "c": story.NewTableLog("table-c")}
		h.Others = map[string]*story.TableLog{"b": logs["b"], "c": logs["c"]}
		h.Broker.Create("b", 2, 2)
		h.Broker.Create("c", 3, 1)
		var slow atomic.Bool
		h.Broken = func(step string) error { // fails only for the table of story.Topic
			if slow.Load() && step == "put data files" {
				time.Sleep(time.Minute)
			}
			return nil
		}
		p := h.Begin(t.Context())
		all := connector.Assignment{Joined: true}
		for _, name := range slices.Sorted(maps.Keys(logs)) {
			all.Partitions = append(all.Partitions, h.Broker.Partitions(name)...)
		}
		p.Member.Assign(all)
		produced := map[string]int{}
		for step := range 30 {
			name := []string{story.Topic, "b", "c"}[h.Chance.N(3)]
			id := int32(h.Chance.N(len(h.Broker.Partitions(name))))
			kinds := make([]byte, 1+h.Chance.N(12))
			for k := range kinds {
				if kinds[k] = "rrrrt"[h.Chance.N(5)]; kinds[k] == 'r' {
					produced[name]++
				}
			}
			h.Broker.Produce(name, id, string(kinds), fmt.Sprint(h.Chance.N(3)))
			slow.Store(step >= 10 && step < 20)
			if h.Chance.Is(15) {
				h.Crash(p)
				p = h.Begin(t.Context())
				p.Member.Assign(all)
			}
			time.Sleep(time.Duration(h.Chance.N(int(time.Second))))
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
		h.Close()
		for _, v := range h.Broker.Violations() {
			t.Errorf("seed %d: %s", s, v)
		}
		for name, log := range logs {
			got := rowsOf(log, name)
			for _, part := range h.Broker.Partitions(name) {
				var want []int64
				for o, k := range h.Broker.Kinds(name, part.ID) {
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

// tables begins a process with the claims of three topics, each with its own table. It calls shape before the process
// begins. rows counts the rows of a topic. end closes the harness and reports its violations.
func tables(t *testing.T, s uint64, shape func(h *story.Harness)) (h *story.Harness, rows func(topic string) int, end func()) {
	t.Helper()
	h = story.NewHarness(s, 2)
	h.Logger = logger()
	b, c := story.NewTableLog("table-b"), story.NewTableLog("table-c")
	h.Others = map[string]*story.TableLog{"b": b, "c": c}
	h.Broker.Create("b", 2, 2)
	h.Broker.Create("c", 3, 1)
	shape(h)
	p := h.Begin(t.Context())
	all := connector.Assignment{Joined: true}
	for _, name := range []string{story.Topic, "b", "c"} {
		all.Partitions = append(all.Partitions, h.Broker.Partitions(name)...)
	}
	p.Member.Assign(all)
	logs := map[string]*story.TableLog{story.Topic: h.Log, "b": b, "c": c}
	rows = func(topic string) (n int) {
		for _, r := range rowsOf(logs[topic], topic) {
			n += len(r)
		}
		return n
	}
	return h, rows, func() {
		h.Close()
		for _, v := range h.Broker.Violations() {
			t.Errorf("seed %d: %s", s, v)
		}
	}
}

// within waits until cond is true, for at most the time most, and reports whether cond was true in that time.
func within(most time.Duration, cond func() bool) bool {
	for end := time.Now().Add(most); time.Now().Before(end); time.Sleep(time.Second) {
		if cond() {
			return true
		}
	}
	return cond()
}

// TestMemory_StoppedTableStarvesNone expects other tables to continue while the data files of one table cannot be put.
// The fetched records of that table must not keep all memory.
func TestMemory_StoppedTableStarvesNone(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		var stopped atomic.Bool
		stopped.Store(true)
		h, rows, end := tables(t, s, func(h *story.Harness) {
			h.Fetch, h.Batch, h.CommitRows = story.Response+4<<10*int64(1+s%3), 20_000, 5
			h.Broken = func(step string) error {
				for step == "put data files" && stopped.Load() {
					time.Sleep(time.Second)
				}
				return nil
			}
		})
		for range 10 {
			h.Broker.Produce(story.Topic, 0, "rrrrrrrrrr", "k")
			h.Broker.Produce(story.Topic, 1, "rrrrrrrrrr", "l")
		}
		time.Sleep(10 * time.Second)
		for range 3 {
			h.Broker.Produce("b", 1, "rrrrr", "k")
			h.Broker.Produce("c", 0, "rrrrr", "k")
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

// TestMemory_FullPoolSeals has three tables that share a full batch pool, while no batch is due by rows or age. Batches
// must be sealed all the same, so that reading continues.
func TestMemory_FullPoolSeals(t *testing.T) {
	tight(t, func(t *testing.T, s uint64) {
		h, rows, end := tables(t, s, func(h *story.Harness) { h.Batch, h.CommitRows, h.Every = 4<<10, 1000, 24*time.Hour })
		for range 20 {
			for _, name := range []string{story.Topic, "b", "c"} {
				h.Broker.Produce(name, 0, "rrrrrrrrrr", "k")
			}
		}
		all := func() int { return rows(story.Topic) + rows("b") + rows("c") }
		if !within(time.Hour, func() bool { return all() >= 600-4<<10/32 }) {
			t.Errorf("seed %d: %d rows of 600", s, all())
		}
		end()
	})
}
