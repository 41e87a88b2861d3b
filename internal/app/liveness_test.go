package app

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/health/liveness"
	"sluice/internal/laketest"
)

// TestWatchdog_RunningMember: the watchdog sees every loop of a running member. The liveness file is fresh while the
// member runs, and deleted afterwards.
func TestWatchdog_RunningMember(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	l := newLake(t, "topics: {orders: {}}").as("health: {enabled: false}", "health: {enabled: false, liveness_file: "+path+"}")
	l.Create("orders", 2)
	t.Run("runs", func(t *testing.T) {
		in := *l
		in.T = t
		s := in.start()
		want := map[string]bool{
			"reader": true, "lane 0": true, "writer orders": true, "offsets": true, "fetcher 0": true, "fetcher 0 tail": true,
		}
		in.Await("all loops turn", func() bool {
			seen := map[string]bool{}
			for _, loop := range s.loops.States() {
				if loop.Turns > 0 {
					seen[loop.Name] = true
				}
			}
			for name := range want {
				if name == "offsets" || name == "lane 0" {
					continue // these loops may not have had work yet
				}
				if !seen[name] {
					return false
				}
			}
			return true
		})
		names := map[string]bool{}
		for _, loop := range s.loops.States() {
			names[loop.Name] = true
		}
		for name := range want {
			if !names[name] {
				t.Errorf("no loop %s in %v", name, names)
			}
		}
		if err := s.watchdog.Live(); err != nil {
			t.Error(err)
		}
		if err := liveness.Fresh(path, time.Now()); err != nil {
			t.Error(err)
		}
	})
	if err := liveness.Fresh(path, time.Now()); err == nil || !strings.Contains(err.Error(), "no file") {
		t.Errorf("behind it: %v", err)
	}
}

// TestEveryLoopEnds: after a member has ended, the watchdog has no loop of it any more, so an ended loop never counts
// as stalled.
func TestEveryLoopEnds(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	s, err := New(t.Context(), laketest.Load(t, l.Config), Options{UntilCurrent: true}, l.Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if err := s.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	if left := s.loops.States(); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}
