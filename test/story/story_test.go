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

// TestSchedules runs two members under random schedules: claims are taken, shared by mistake and lost, generations end,
// members crash and stop, operators pause, PUTs take effect late, requests fail, and other writers commit. In every
// schedule the table must have each record from the initial position on once, in order.
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

// logger returns a logger that discards all lines. With the flag -story.seed it writes to stderr, with the time since
// this call.
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
	return play(t, story.NewHarness(s, 3), s)
}

// play runs one schedule in a harness and judges the table. It returns the number of versions, and how often one member
// committed a partition that another member had committed before.
func play(t *testing.T, h *story.Harness, s uint64) (versions, handed int) {
	t.Helper()
	h.Logger = logger()
	disturb(t, h, func() { h.Log.Append(story.Version{Member: "other"}) })
	calm(t, h, s)
	all := h.Broker.Partitions(story.Topic)
	h.Close()
	for _, v := range h.Broker.Violations() {
		t.Errorf("seed %d: %s", s, v)
	}
	if broken := judge(h, versionsOf(h)); broken != "" {
		t.Errorf("seed %d: %s\n%s", s, broken, history(h))
	}
	starts := h.Started()
	for _, p := range all {
		end := int64(len(h.Broker.Kinds(story.Topic, p.ID)))
		if got, want := h.Rows(p.ID), h.Want(p.ID, starts[p.ID], end); !slices.Equal(got, want) {
			t.Errorf("seed %d: partition %d has rows %v, want %v\n%s", s, p.ID, got, want, history(h))
		}
	}
	if wrong := unexplained(h); wrong != "" {
		t.Errorf("seed %d: %s\n%s", s, wrong, history(h))
	}
	if !h.Marked("table-1") {
		t.Errorf("seed %d: no mark of the pipeline on the table", s)
	}
	var ranges []connector.Range
	for _, v := range h.Log.Versions() {
		ranges = append(ranges, v.Commit.Ranges...)
	}
	judgeLetters(t, h, ranges, s)
	last := map[int32]string{}
	for _, v := range h.Log.Versions() {
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

// unexplained returns a text about a commit whose ranges do not count exactly the health-check records and duplicates
// in them, "" if there is no such commit.
func unexplained(h *story.Harness) string {
	for n, v := range h.Log.Versions() {
		for _, r := range v.Commit.Ranges {
			var passed, duplicates int64
			for o, k := range h.Broker.Kinds(story.Topic, r.Partition) {
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

func history(h *story.Harness) string {
	var b strings.Builder
	for n, v := range h.Log.Versions() {
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

// disturb plays 40 random events on two members; one of the events calls other, for a commit by another writer. Then
// faults and pauses end, one member is stopped, and the other one gets all claims.
func disturb(t *testing.T, h *story.Harness, other func()) {
	t.Helper()
	h.Broker.Flaky.Store(6)
	all := h.Broker.Partitions(story.Topic)
	mix := "rrrrrrhtcc"
	if h.Letters != nil {
		mix = "rrrrhpprtc"
	}
	if h.Retry.Curve != "" {
		mix = "rrrrrrxetc" // the decoder fails on records of kind x, the encoder on those of kind e
	}
	members := []*story.Process{h.Begin(t.Context()), h.Begin(t.Context())}
	for range 40 {
		i := h.Chance.N(2)
		m := members[i]
		switch h.Chance.N(14) {
		case 0, 1, 2, 3, 4:
			kinds := make([]byte, 1+h.Chance.N(12))
			for k := range kinds {
				kinds[k] = mix[h.Chance.N(10)]
			}
			h.Broker.Produce(story.Topic, int32(h.Chance.N(3)), string(kinds), fmt.Sprint(h.Chance.N(3)))
		case 5, 6, 7: // a new generation, in which both members may believe that they own a claim
			var a, b []connector.Partition
			for _, p := range all {
				where := h.Chance.N(7)
				if where != 0 {
					a = append(a, p)
				}
				if where < 2 || where == 6 {
					b = append(b, p)
				}
			}
			if h.Chance.Is(2) {
				a, b = b, a
			}
			members[0].Member.Assign(connector.Assignment{Joined: true, Partitions: a})
			members[1].Member.Assign(connector.Assignment{Joined: true, Partitions: b})
		case 8:
			m.Member.Assign(connector.Assignment{Joined: false})
		case 9:
			h.Crash(m)
			members[i] = h.Begin(t.Context())
		case 10:
			h.Stop(m)
			members[i] = h.Begin(t.Context())
		case 11:
			other()
		case 12:
			h.Pauses.Pause(int32(h.Chance.N(3)))
		case 13:
			h.Pauses.Resume(int32(h.Chance.N(3)))
		}
		time.Sleep(time.Duration(h.Chance.N(int(1500 * time.Millisecond))))
	}
	h.Broker.Flaky.Store(0)
	h.Pauses.Resume(0, 1, 2)
	h.Stop(members[1])
	members[0].Member.Assign(connector.Assignment{Joined: true, Partitions: all})
}

// calm waits until every record is committed, and fails the test if that takes longer than 25 minutes.
func calm(t *testing.T, h *story.Harness, s uint64) {
	t.Helper()
	// A batch without rows is due after ten minutes. If its commit is fenced, another ten minutes pass.
	for i := range 1500 {
		if h.AtEnd() {
			return
		}
		if h.Retry.Curve != "" && i%60 == 59 { // a record counts as at fault only if other records can be decoded
			h.Broker.Produce(story.Topic, int32(h.Chance.N(3)), "r", "0")
		}
		time.Sleep(time.Second)
	}
	t.Errorf("seed %d: stuck\n%s", s, history(h))
}
