package liveness_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/health/liveness"
	"sluice/reliability/pulse"
)

// TestStates: for each state of a loop, the test says whether the loop counts as stalled after a minute in that state.
func TestStates(t *testing.T) {
	for _, c := range []struct {
		name             string
		working, waiting bool
		turns            uint64 // turns between two checks
		stalled          bool
	}{
		{"works and turns", true, false, 1, false},
		{"works and does not turn", true, false, 0, true},
		{"has nothing to do", false, false, 0, false},
		{"waits on purpose", true, true, 0, false},
		{"waits and has nothing to do", false, true, 0, false},
	} {
		var w liveness.Watch
		now := time.Now()
		state := pulse.State{ID: 1, Name: "lane 0", Working: c.working, Waiting: c.waiting}
		w.Check(now, []pulse.State{state})
		for range 59 {
			now, state.Turns = now.Add(time.Second), state.Turns+c.turns
			if got := w.Check(now, []pulse.State{state}); got != nil {
				t.Fatalf("%s: stalled before its time: %v", c.name, got)
			}
		}
		now, state.Turns = now.Add(time.Second), state.Turns+c.turns
		var want []liveness.Stall
		if c.stalled {
			want = []liveness.Stall{{Loop: "lane 0", For: time.Minute}}
		}
		if diff := cmp.Diff(want, w.Check(now, []pulse.State{state})); diff != "" {
			t.Errorf("%s: %s", c.name, diff)
		}
	}
}

// TestAPause: time in which the watch itself did not run does not count for a loop, however often that happens.
func TestAPause(t *testing.T) {
	var w liveness.Watch
	now := time.Now()
	busy := []pulse.State{{ID: 1, Name: "reader", Working: true}}
	w.Check(now, busy)
	for range 29 {
		now = now.Add(90 * time.Second) // as if the process was stopped or the machine slept
		if got := w.Check(now, busy); got != nil {
			t.Fatalf("stalled by a pause: %v", got)
		}
	}
	// If the clock is set back, which a monotonic clock never is, no loop counts as stalled.
	if got := w.Check(now.Add(-time.Hour), busy); got != nil {
		t.Fatalf("stalled by a clock that was set back: %v", got)
	}
	now = now.Add(-time.Hour)
	for range 2 {
		now = now.Add(time.Second)
		w.Check(now, busy)
	}
	if got := w.Check(now, busy); len(got) != 1 {
		t.Error("a loop that stands still for good is not found")
	}
}

func TestTheLongestFirst(t *testing.T) {
	var w liveness.Watch
	now := time.Now()
	all := []pulse.State{{ID: 1, Name: "reader", Working: true}, {ID: 2, Name: "lane 1", Working: true}, {ID: 3, Name: "lane 0"}}
	w.Check(now, all)
	all[0].Turns++ // the reader's last turn is a moment later than that of the lane
	var got []liveness.Stall
	for range 65 {
		now = now.Add(time.Second)
		got = w.Check(now, all)
	}
	want := []liveness.Stall{{Loop: "lane 1", For: 65 * time.Second}, {Loop: "reader", For: 64 * time.Second}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if got := w.Check(now, all[2:]); got != nil { // the stalled loops have ended, so only lane 0 is left
		t.Error(got)
	}
}

// TestAnyHistory: in random histories of loops and checks, a loop is stalled if and only if it was working, waited for
// no dependency and made no turn during checks that cover a minute.
func TestAnyHistory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var w liveness.Watch
		now := time.Now()
		states := []pulse.State{{ID: 1, Name: "a"}, {ID: 2, Name: "b"}}
		still := map[string]time.Duration{}
		w.Check(now, states)
		for range rapid.IntRange(1, 400).Draw(t, "looks") {
			step := rapid.SampledFrom([]time.Duration{0, time.Second, time.Second, time.Second, 2 * time.Second, time.Hour}).Draw(t, "step")
			now = now.Add(step)
			for i := range states {
				s := &states[i]
				turned := false
				switch rapid.IntRange(0, 60).Draw(t, "what") {
				case 0:
					s.Turns, turned = s.Turns+1, true
				case 1:
					s.Working = !s.Working
				case 2:
					s.Waiting = !s.Waiting
				default: // the state stays as it was
				}
				if still[s.Name] += min(step, 2*time.Second); turned || !s.Working || s.Waiting {
					still[s.Name] = 0
				}
			}
			var want []string
			for _, s := range states {
				if still[s.Name] >= time.Minute {
					want = append(want, s.Name)
				}
			}
			var got []string
			for _, s := range w.Check(now, states) {
				if got = append(got, s.Loop); s.For != still[s.Loop] {
					t.Fatalf("%s for %v, want %v", s.Loop, s.For, still[s.Loop])
				}
			}
			slices.Sort(got)
			if diff := cmp.Diff(want, got); diff != "" {
				t.Fatal(diff)
			}
		}
	})
}
