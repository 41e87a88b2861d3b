package story_test

import (
	"flag"
	"fmt"
	"log/slog"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/test/story"
)

var (
	seeds = flag.Int("story.seeds", 300, "how many seeded schedules to run")
	seed  = flag.Uint64("story.seed", 0, "run only this schedule, and log it")
)

// TestSchedules runs two members through everything that may happen to them: claims taken, shared by mistake and
// lost, generations that end, crashes, stops, PUTs that take effect late, requests that fail, versions of others.
// In every schedule the table has each record once.
func TestSchedules(t *testing.T) {
	first, last := uint64(1), uint64(*seeds)
	if *seed != 0 {
		first, last = *seed, *seed
	}
	var versions, fenced int
	for s := first; s <= last && !t.Failed(); s++ {
		synctest.Test(t, func(t *testing.T) {
			v, f := schedule(t, s)
			versions, fenced = versions+v, fenced+f
		})
	}
	t.Logf("%d schedules, %d versions, %d of them by a second owner", last-first+1, versions, fenced)
}

// logger logs the one schedule that was requested, with the time since its start.
func logger() *slog.Logger {
	if *seed == 0 {
		return slog.New(slog.DiscardHandler)
	}
	began := time.Now()
	return slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelDebug, ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Duration("at", time.Since(began))
		}
		return a
	}}))
}

func schedule(t *testing.T, s uint64) (versions, handed int) {
	t.Helper()
	return play(t, story.NewWorld(s, 3), s)
}

// play runs a schedule in a world and judges the result.
func play(t *testing.T, w *story.World, s uint64) (versions, handed int) {
	t.Helper()
	w.Logger = logger()
	disturb(t, w, func() { w.Log.Append(story.Version{Member: "other"}) })
	calm(t, w, s)
	all := w.Broker.Partitions(story.Topic)
	w.Close()
	for _, v := range w.Broker.Violations() {
		t.Errorf("seed %d: %s", s, v)
	}
	if broken := judge(w, versionsOf(w)); broken != "" {
		t.Errorf("seed %d: %s\n%s", s, broken, history(w))
	}
	starts := w.Started()
	for _, p := range all {
		end := int64(len(w.Broker.Kinds(story.Topic, p.ID)))
		if got, want := w.Rows(p.ID), w.Want(p.ID, starts[p.ID], end); !slices.Equal(got, want) {
			t.Errorf("seed %d: partition %d has rows %v, want %v\n%s", s, p.ID, got, want, history(w))
		}
	}
	if wrong := unexplained(w); wrong != "" {
		t.Errorf("seed %d: %s\n%s", s, wrong, history(w))
	}
	if !w.Marked("table-1") {
		t.Errorf("seed %d: no mark of the pipeline on the table", s)
	}
	var ranges []connector.Range
	for _, v := range w.Log.Versions() {
		ranges = append(ranges, v.Commit.Ranges...)
	}
	judgeLetters(t, w, ranges, s)
	last := map[int32]string{}
	for _, v := range w.Log.Versions() {
		versions++
		for _, r := range v.Commit.Ranges {
			if by := last[r.Partition]; by != "" && by != v.Member {
				handed++
			}
			last[r.Partition] = v.Member
		}
	}
	return versions, handed
}

// unexplained finds a commit whose ranges do not count exactly the health-check records that they passed.
func unexplained(w *story.World) string {
	for n, v := range w.Log.Versions() {
		for _, r := range v.Commit.Ranges {
			var passed, duplicates int64
			for o, k := range w.Broker.Kinds(story.Topic, r.Partition) {
				within := r.From >= 0 && int64(o) >= r.From && int64(o) < r.Next
				if k == story.Health && within {
					passed++
				}
				if k == story.Duplicate && within {
					duplicates++
				}
			}
			if duplicates != r.Duplicates {
				return fmt.Sprintf("version %d leaves out %d duplicates of partition %d and says %d", n, duplicates, r.Partition, r.Duplicates)
			}
			if passed != r.HealthRecords {
				return fmt.Sprintf("version %d passes %d health-check records of partition %d and says %d", n, passed, r.Partition, r.HealthRecords)
			}
		}
	}
	return ""
}

func history(w *story.World) string {
	var b strings.Builder
	for n, v := range w.Log.Versions() {
		fmt.Fprintf(&b, "%3d %s %-4s %s", n, v.At.Format("04:05.000"), v.Member, v.Commit.Operation)
		for _, r := range v.Commit.Ranges {
			fmt.Fprintf(&b, " %d:[%d,%d)", r.Partition, r.From, r.Next)
			if r.Letters > 0 {
				fmt.Fprintf(&b, " %d letters", r.Letters)
			}
		}
		fmt.Fprintln(&b, " rows", v.Rows)
	}
	return b.String()
}

// disturb plays everything that may happen to two members.
func disturb(t *testing.T, w *story.World, other func()) {
	t.Helper()
	w.Broker.Flaky.Store(6)
	all := w.Broker.Partitions(story.Topic)
	mix := "rrrrrrhtcc"
	if w.Letters != nil {
		mix = "rrrrhpprtc"
	}
	if w.Retry.Curve != "" {
		mix = "rrrrrrxetc" // some fail locally
	}
	members := []*story.Process{w.Begin(t.Context()), w.Begin(t.Context())}
	for range 40 {
		i := w.Chance.N(2)
		m := members[i]
		switch w.Chance.N(14) {
		case 0, 1, 2, 3, 4:
			kinds := make([]byte, 1+w.Chance.N(12))
			for k := range kinds {
				kinds[k] = mix[w.Chance.N(10)]
			}
			w.Broker.Produce(story.Topic, int32(w.Chance.N(3)), string(kinds), fmt.Sprint(w.Chance.N(3)))
		case 5, 6, 7: // a new generation; sometimes both believe they own a claim
			var a, b []connector.Partition
			for _, p := range all {
				where := w.Chance.N(7)
				if where != 0 {
					a = append(a, p)
				}
				if where < 2 || where == 6 {
					b = append(b, p)
				}
			}
			if w.Chance.Is(2) {
				a, b = b, a
			}
			members[0].Member.Assign(connector.Assignment{Joined: true, Partitions: a})
			members[1].Member.Assign(connector.Assignment{Joined: true, Partitions: b})
		case 8:
			m.Member.Assign(connector.Assignment{Joined: false})
		case 9:
			w.Crash(m)
			members[i] = w.Begin(t.Context())
		case 10:
			w.Stop(m)
			members[i] = w.Begin(t.Context())
		case 11:
			other()
		case 12:
			w.Pauses.Pause(int32(w.Chance.N(3)))
		case 13:
			w.Pauses.Resume(int32(w.Chance.N(3)))
		}
		time.Sleep(time.Duration(w.Chance.N(int(1500 * time.Millisecond))))
	}
	w.Broker.Flaky.Store(0)
	w.Pauses.Resume(0, 1, 2)
	w.Stop(members[1])
	members[0].Member.Assign(connector.Assignment{Joined: true, Partitions: all})
}

// calm waits until the member that owns everything has committed everything.
func calm(t *testing.T, w *story.World, s uint64) {
	t.Helper()
	// A claim that ends in control records waits ten minutes for its commit; after a fence at that commit it waits
	// again.
	for i := range 1500 {
		if w.AtEnd() {
			return
		}
		if w.Retry.Curve != "" && i%60 == 59 { // no record is at fault until others pass
			w.Broker.Produce(story.Topic, int32(w.Chance.N(3)), "r", "0")
		}
		time.Sleep(time.Second)
	}
	t.Errorf("seed %d: stuck\n%s", s, history(w))
}
