package delta_test

import (
	"context"
	"io"
	"sync"
	"testing"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// stopping is a store whose process stops once for six hours, before or after it has read an object. meanwhile does
// what other processes do in that time.
type stopping struct {
	objstore.Store
	meanwhile func()

	mu sync.Mutex
	at string // the operation at which the process stops; "" means none
}

func (s *stopping) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.stop("before get "+key, nil)
	r, err := s.Store.Get(ctx, key, off, n)
	s.stop("get "+key, err)
	return r, err
}

func (s *stopping) Head(ctx context.Context, key string) (objstore.Info, error) {
	info, err := s.Store.Head(ctx, key)
	s.stop("head "+key, err)
	return info, err
}

func (s *stopping) stop(op string, err error) {
	if err == nil && s.due(op) {
		s.meanwhile()
		time.Sleep(6 * time.Hour)
	}
}

func (s *stopping) stopAt(op string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.at = op
}

// due reports whether the process must stop at op. It returns true only once.
func (s *stopping) due(op string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if op == "" || op != s.at {
		return false
	}
	s.at = ""
	return true
}

// goOn lets another process commit to partition 1 until there is a checkpoint after version beyond, and returns the
// checkpoint's version.
func goOn(t *testing.T, mem *objstore.Mem, beyond int64) (checkpoint int64) {
	t.Helper()
	other := process(t, mem)
	defer other.Close()
	s := load(t, other)
	beyond = max(beyond, s.Version)
	for {
		at := s.Positions[app(1)]
		var err error
		if s, err = (rowRange{1, at, at + 1}).write(t.Context(), other, s); err != nil {
			t.Fatal(err)
		}
		if c := stateOf(t, mem).Checkpoint.Version; c > beyond {
			return c
		}
	}
}

// cleanUp removes all of the log before the checkpoint, as a cleanup does.
func cleanUp(t *testing.T, mem *objstore.Mem, checkpoint int64) {
	t.Helper()
	for v := range checkpoint {
		for _, key := range []string{deltalog.CommitKey(v), deltalog.CheckpointKey(v)} {
			if err := mem.Delete(t.Context(), key); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// TestRefresh_StoppedWhileTheLogIsCleanedUp: a process stops in the middle of a read of the log, for longer than the
// log is kept. The version after the last one that it read is missing then because it was cleaned up. A commit must not
// take that version: no reader would ever see it.
func TestRefresh_StoppedWhileTheLogIsCleanedUp(t *testing.T) {
	// Each script returns the operation before or after which the process stops.
	for name, script := range map[string]func(t *testing.T, mem *objstore.Mem, tab *delta.Table) string{
		"after a version of another one": func(t *testing.T, mem *objstore.Mem, tab *delta.Table) string {
			appendCommits(t, tab, 2)
			must(t, open(t, mem), rowRange{1, 0, 1})
			return "get " + deltalog.CommitKey(3)
		},
		"after many versions of others": func(t *testing.T, mem *objstore.Mem, tab *delta.Table) string {
			appendCommits(t, tab, 2)
			other := open(t, mem)
			for i := range int64(8) {
				must(t, other, rowRange{1, i, i + 1})
			}
			return "get " + deltalog.CommitKey(8) // the next list shows a gap
		},
		"after the version that it wrote itself": func(t *testing.T, _ *objstore.Mem, tab *delta.Table) string {
			appendCommits(t, tab, 2)
			return "get " + deltalog.CommitKey(2)
		},
		"after the version that it has seen before": func(t *testing.T, mem *objstore.Mem, tab *delta.Table) string {
			appendCommits(t, open(t, mem), 2)
			load(t, tab)
			return "head " + deltalog.CommitKey(2)
		},
		"after the newest version of a load": func(t *testing.T, mem *objstore.Mem, tab *delta.Table) string {
			appendCommits(t, open(t, mem), 2)
			return "get " + deltalog.CommitKey(2)
		},
		"after the newest checkpoint of a load": func(t *testing.T, mem *objstore.Mem, _ *delta.Table) string {
			checkpointAlone(t, mem)
			return "before get " + deltalog.CommitKey(3)
		},
	} {
		for kind, withRows := range map[string]bool{"rows": true, "positions only": false} {
			t.Run(name+"/"+kind, func(t *testing.T) {
				bubble(t, func(t *testing.T) { stoppedInRefresh(t, script, withRows) })
			})
		}
	}
}

// checkpointAlone deletes the commit of version 2, so that only the checkpoint has that version.
func checkpointAlone(t *testing.T, mem *objstore.Mem) {
	t.Helper()
	appendCommits(t, open(t, mem), 2)
	s, err := deltalog.Load(t.Context(), mem)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := deltalog.WriteCheckpoint(t.Context(), mem, s, time.Now(), ""); err != nil {
		t.Fatal(err)
	}
	cleanUp(t, mem, 2)
	if err := mem.Delete(t.Context(), deltalog.CommitKey(2)); err != nil {
		t.Fatal(err)
	}
}

// TestLoad_CheckpointIsCleanedUp: if only a checkpoint has the newest version, that version counts only while the
// checkpoint exists.
func TestLoad_CheckpointIsCleanedUp(t *testing.T) {
	for name, at := range map[string]string{"it stands": "", "it is gone": "before get " + deltalog.CommitKey(3)} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				mem := objstore.NewMem()
				store := &stopping{Store: mem, meanwhile: func() { cleanUp(t, mem, goOn(t, mem, 20)) }}
				checkpointAlone(t, mem)
				store.stopAt(at)
				got, err := deltalog.Load(t.Context(), store)
				if err != nil {
					t.Fatal(err)
				}
				if want := stateOf(t, mem).Version; got.Version != want || at != "" && want == 2 {
					t.Errorf("version %d, the newest is %d", got.Version, want)
				}
			})
		})
	}
}

func stoppedInRefresh(t *testing.T, script func(*testing.T, *objstore.Mem, *delta.Table) string, withRows bool) {
	mem := objstore.NewMem()
	store := &stopping{Store: mem, meanwhile: func() { cleanUp(t, mem, goOn(t, mem, 20)) }}
	tab := open(t, store)
	at := script(t, mem, tab)

	seen, err := deltalog.Load(t.Context(), mem)
	if err != nil {
		t.Fatal(err)
	}
	pos := seen.Txns[app(0)].Version
	k := rowRange{0, pos, pos + 3}
	store.stopAt(at)
	var got *connector.Snapshot
	if withRows {
		other := open(t, mem)
		s := load(t, other)
		staged, e := other.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 0, k.from, k.next)}, nil)
		if e != nil {
			t.Fatal(e)
		}
		got, err = tab.Commit(t.Context(), k.commit(staged), k.pre)
	} else {
		got, err = tab.Commit(t.Context(), k.commit(nil), k.pre)
	}
	if store.due(at) {
		t.Fatalf("the process was never stopped: %s was not done", at)
	}
	now, e := deltalog.Load(t.Context(), mem)
	if e != nil {
		t.Fatal(e)
	}
	switch {
	case err != nil && classify.Of(err) != classify.Fenced:
		t.Fatalf("got %v", err)
	case err != nil:
	case got.Version != now.Version || now.Txns[app(0)].Version != k.next:
		t.Fatalf("the commit won version %d; any reader sees version %d with position %d, not %d",
			got.Version, now.Version, now.Txns[app(0)].Version, k.next)
	}
	for v := range now.Checkpoint.Version {
		if _, err := mem.Head(t.Context(), deltalog.CommitKey(v)); err == nil {
			t.Fatalf("version %d was put where the log was cleaned up", v)
		}
	}
	if s := load(t, tab); s.Version != now.Version {
		t.Errorf("the next look shows version %d, newest is %d", s.Version, now.Version)
	}
}

// TestFollower_StoppedWhileTheLogIsCleanedUp: a follower must not take a gap in the log for the end of the log. The gap
// remains, so the follower would never see another version.
func TestFollower_StoppedWhileTheLogIsCleanedUp(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		store := &stopping{Store: mem, meanwhile: func() { cleanUp(t, mem, goOn(t, mem, 20)) }}
		f, look := delta.NewFollower(store, guard()), delta.NewRowFinder(store)
		tab := open(t, mem)
		appendCommits(t, tab, 2)
		if _, err := f.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
		has := func() bool {
			found, err := look.Has(t.Context(), "orders", 1, 20, "name", "n20")
			if err != nil {
				t.Fatal(err)
			}
			return found
		}
		if has() {
			t.Fatal("the row is there before it was written")
		}
		must(t, open(t, mem), rowRange{1, 0, 1})

		store.stopAt("get " + deltalog.CommitKey(3))
		change, err := f.Follow(t.Context())
		if err != nil || !change.Anew {
			t.Errorf("%+v, %v", change, err)
		}
		now, err := deltalog.Load(t.Context(), mem)
		if err != nil {
			t.Fatal(err)
		}
		if got := f.State().Version; got != now.Version {
			t.Errorf("version %d, newest is %d", got, now.Version)
		}
		if !has() {
			t.Error("the row is not found")
		}
	})
}
