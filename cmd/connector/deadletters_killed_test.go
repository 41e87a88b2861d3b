package main

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// replayKilled leaves the lake as a killed replay leaves it. It replays records, and then deletes the entry seq of the
// operations log, which has the outcome. Unless committed is true, it also deletes the commit.
func replayKilled(t *testing.T, l *lake, seq int, committed bool, records ...string) {
	t.Helper()
	if r := replayed(t, l, 0, append([]string{"replay"}, records...)...); r.Rows != int64(len(records)) {
		t.Fatalf("%+v", r)
	}
	gone := []string{fmt.Sprintf("_sluice/p/ops/%020d.json", seq)}
	if !committed {
		state, err := deltalog.Load(t.Context(), objstore.Sub(l.Store, "orders"))
		if err != nil {
			t.Fatal(err)
		}
		gone = append(gone, fmt.Sprintf("orders/_delta_log/%020d.json", state.Version))
	}
	for _, key := range gone {
		if err := l.Store.Delete(t.Context(), key); err != nil {
			t.Fatal(err)
		}
	}
}

// TestReplayKilled_AfterCommit: a replay was killed after its commit, before it recorded the outcome. Its dead letters
// must count as replayed, even before another command records the outcome.
func TestReplayKilled_AfterCommit(t *testing.T) {
	_, l := newLetters(t)
	replayKilled(t, l, 2, true, "orders:0@1", "orders:0@3")
	list := listed(t, l, 0, "--state", "all")
	if list.Replayed != 2 || list.Replaying+list.Void != 0 || list.Unresolved != 4 {
		t.Errorf("%+v", list)
	}
	if _, errs := l.runs(exitRefused, "deadletters", "discard", "orders:0@1", "--reason", "r", "--yes"); !strings.Contains(errs, "orders:0@1 is replayed") {
		t.Error(errs)
	}
}

// TestReplayKilled_BeforeCommit: a killed replay left an intent without an outcome. For a minute, decisions about its
// dead letters must be refused. Decisions about other dead letters must be accepted.
func TestReplayKilled_BeforeCommit(t *testing.T) {
	_, l := newLetters(t)
	replayKilled(t, l, 2, false, "orders:0@1", "orders:0@3")
	decide := func(code int, args ...string) string {
		t.Helper()
		out, errs := l.runs(code, append([]string{"deadletters"}, append(args, "--reason", "r", "--operator", "eva", "--yes")...)...)
		return out + errs
	}
	for _, args := range [][]string{{"discard", "orders:0@1"}, {"discard", "--topic", "orders"}} {
		if text := decide(exitRefused, args...); !strings.Contains(text, "try again in a minute") {
			t.Error(text)
		}
	}
	decide(0, "discard", "orders:0@5")
	decide(0, "acknowledge", "--topic", "orders", "--code", "type_mismatch")
	got := statesOf(listed(t, l, 0, "--state", "all"))
	slices.Sort(got)
	if d := cmp.Diff([]string{"0@1 replaying 1", "0@3 replaying 1", "0@5 discarded 1", "0@7 unresolved 1", "0@8 acknowledged 1", "0@9 unresolved 1"}, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	// Another replay need not wait until the minute is over.
	if r := replayed(t, l, 0, "replay-all"); r.Rows != 4 {
		t.Errorf("%+v", r)
	}
	l.Has("orders", map[string][]int64{"orders:0": {0, 1, 2, 3, 4, 6, 7, 9}})
}
