package deltalog_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// table is a log that a test writes, and the state that a reader of the log must get.
type table struct {
	t     test
	store *objstore.Mem
	next  int64
	txns  map[string]int64
	files []string // the keys of the data files, in order
	known map[string]bool
}

// test has the methods that *testing.T and *rapid.T share.
type test interface {
	Helper()
	Fatal(...any)
	Errorf(string, ...any)
	Context() context.Context
}

func newTable(t test) *table {
	tab := &table{t: t, store: objstore.NewMem(), txns: map[string]int64{}, known: map[string]bool{}}
	tab.commit(
		deltalog.CommitInfo{Operation: "CREATE TABLE"},
		deltalog.Protocol{MinReaderVersion: 1, MinWriterVersion: 2},
		deltalog.Metadata{ID: "table-1", Format: deltalog.Format{Provider: "parquet"}, SchemaString: `{"type":"struct","fields":[]}`},
	)
	return tab
}

func (tab *table) commit(actions ...deltalog.Action) {
	tab.t.Helper()
	body, err := deltalog.Encode(actions)
	if err != nil {
		tab.t.Fatal(err)
	}
	tab.put(deltalog.CommitKey(tab.next), body)
	tab.next++
	for _, a := range actions {
		switch a := a.(type) {
		case deltalog.Txn:
			tab.txns[a.AppID] = a.Version
		case deltalog.Remove:
			tab.forget(deltalog.Key(a.Path))
		}
	}
	for _, a := range actions {
		if a, ok := a.(deltalog.Add); ok {
			tab.forget(deltalog.Key(a.Path))
			tab.known[deltalog.Key(a.Path)] = true
			tab.files = append(tab.files, deltalog.Key(a.Path))
		}
	}
}

func (tab *table) forget(key string) {
	if tab.known[key] {
		delete(tab.known, key)
		tab.files = slices.DeleteFunc(tab.files, func(f string) bool { return f == key })
	}
}

// append writes n commits, each with one txn and one data file.
func (tab *table) append(n int) {
	tab.t.Helper()
	for range n {
		v := tab.next
		tab.commit(
			deltalog.CommitInfo{TxnID: fmt.Sprint("t", v)},
			deltalog.Txn{AppID: fmt.Sprint("app", v%3), Version: v, LastUpdated: new(v)},
			deltalog.Add{Path: fmt.Sprintf("part-%d.parquet", v), Size: v, DataChange: true, Stats: fmt.Sprintf(`{"numRecords":%d}`, v)},
		)
	}
}

func (tab *table) put(key string, body []byte) {
	tab.t.Helper()
	if err := tab.store.Put(tab.t.Context(), key, bytes.NewReader(body), objstore.Replace); err != nil {
		tab.t.Fatal(err)
	}
}

func (tab *table) drop(keys ...string) {
	tab.t.Helper()
	for _, k := range keys {
		if err := tab.store.Delete(tab.t.Context(), k); err != nil {
			tab.t.Fatal(err)
		}
	}
}

func (tab *table) get(key string) string {
	tab.t.Helper()
	r, err := tab.store.Get(tab.t.Context(), key, 0, -1)
	if err != nil {
		tab.t.Fatal(err)
	}
	var b bytes.Buffer
	if _, err := b.ReadFrom(r); err != nil {
		tab.t.Fatal(err)
	}
	return b.String()
}

// load reads the log and fails the test unless it gives the expected state.
func (tab *table) load() *deltalog.State {
	tab.t.Helper()
	s, err := deltalog.Load(tab.t.Context(), tab.store)
	if err != nil {
		tab.t.Fatal(err)
	}
	tab.check(s)
	return s
}

func (tab *table) checkHeads(s *deltalog.State) {
	tab.t.Helper()
	txns := map[string]int64{}
	for app, x := range s.Txns {
		txns[app] = x.Version
	}
	if s.Version != tab.next-1 || s.Metadata.ID != "table-1" || s.Protocol.MinWriterVersion != 2 || !maps.Equal(txns, tab.txns) {
		tab.t.Errorf("read %v with %v, written %d with %v", s, txns, tab.next-1, tab.txns)
	}
}

func (tab *table) check(s *deltalog.State) {
	tab.t.Helper()
	tab.checkHeads(s)
	var files []string
	for f, err := range deltalog.Files(tab.t.Context(), tab.store, s) {
		if err != nil {
			tab.t.Fatal(err)
		}
		files = append(files, deltalog.Key(f.Path))
	}
	if !slices.Equal(files, tab.files) {
		tab.t.Errorf("read files %v, written %v", files, tab.files)
	}
}

func (tab *table) checkpoint() deltalog.Checkpoint {
	tab.t.Helper()
	c, err := deltalog.WriteCheckpoint(tab.t.Context(), tab.store, tab.load(), time.Now(), "")
	if err != nil {
		tab.t.Fatal(err)
	}
	return c
}

func TestLoadNoTable(t *testing.T) {
	if _, err := deltalog.Load(t.Context(), objstore.NewMem()); !errors.Is(err, deltalog.ErrNoTable) {
		t.Error(err)
	}
}

func TestLoadAndRefresh(t *testing.T) {
	tab := newTable(t)
	s := tab.load()
	for _, n := range []int{0, 1, 7, 8, 9, 30} { // a few new commits are requested by name, many are found by a list
		tab.append(n)
		var err error
		if s, err = deltalog.Refresh(t.Context(), tab.store, s); err != nil {
			t.Fatal(err)
		}
		tab.check(s)
	}
}

// TestHints: a reader gets the same state for every hint, including a damaged one.
func TestHints(t *testing.T) {
	build := func(t *testing.T) *table {
		tab := newTable(t)
		tab.append(4)
		tab.checkpoint() // of version 4
		tab.append(3)
		tab.checkpoint() // of version 7
		tab.append(2)
		return tab
	}
	for name, damage := range map[string]func(tab *table){
		"sound":   func(*table) {},
		"missing": func(tab *table) { tab.drop(deltalog.LastCheckpoint) },
		"stale":   func(tab *table) { tab.put(deltalog.LastCheckpoint, []byte(`{"version":4,"size":6}`)) },
		"corrupt": func(tab *table) { tab.put(deltalog.LastCheckpoint, []byte(`{"vers`)) },
		"ahead":   func(tab *table) { tab.put(deltalog.LastCheckpoint, []byte(`{"version":9000}`)) },
		"below":   func(tab *table) { tab.put(deltalog.LastCheckpoint, []byte(`{"version":-5}`)) },
		"checkpoint deleted": func(tab *table) {
			tab.drop(deltalog.CheckpointKey(7))
		},
		"both deleted": func(tab *table) {
			tab.drop(deltalog.CheckpointKey(7), deltalog.CheckpointKey(4))
		},
		"checkpoint empty":   func(tab *table) { tab.put7(nil) },
		"checkpoint garbage": func(tab *table) { tab.put7([]byte(strings.Repeat("PAR1", 500))) },
		"checkpoint cut off": func(tab *table) { tab.put7([]byte(tab.get(deltalog.CheckpointKey(7))[:900])) },
		"older commits cleaned up": func(tab *table) {
			for v := range int64(7) {
				tab.drop(deltalog.CommitKey(v))
			}
			tab.drop(deltalog.CheckpointKey(4))
		},
		"other files around": func(tab *table) {
			for _, name := range []string{
				"00000000000000000009.crc", "00000000000000000003.00000000000000000006.compacted.json", "_staged_commits/x.json",
				"00000000000000000008.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet", "123.json", "x", ".tmp",
				"00000000000000000008.json.tmp",
			} {
				tab.put(deltalog.Dir+name, []byte("?"))
			}
		},
		"incomplete parts": func(tab *table) { tab.put(deltalog.PartKey(9, 1, 2), []byte("?")) },
	} {
		t.Run(name, func(t *testing.T) {
			tab := build(t)
			damage(tab)
			s := tab.load()
			tab.append(1)
			s, err := deltalog.Refresh(t.Context(), tab.store, s)
			if err != nil {
				t.Fatal(err)
			}
			tab.check(s)
		})
	}
}

// put7 replaces the checkpoint of version 7. It bypasses the assertions of the store, which forbid that.
func (tab *table) put7(body []byte) {
	tab.t.Helper()
	tab.drop(deltalog.CheckpointKey(7))
	tab.put(deltalog.CheckpointKey(7), body)
}

func TestGaps(t *testing.T) {
	for name, c := range map[string]struct {
		damage func(*table)
		want   string
	}{
		"in the middle": {func(tab *table) { tab.drop(deltalog.CommitKey(3)) }, "version 3 is missing, version 9 exists"},
		"at the start":  {func(tab *table) { tab.drop(deltalog.CommitKey(0)) }, "version 0 is missing, version 9 exists"},
		"all but checkpoints": {func(tab *table) {
			tab.checkpoint()
			for v := range int64(10) {
				tab.drop(deltalog.CommitKey(v))
			}
			tab.drop(deltalog.CheckpointKey(9))
			tab.put(deltalog.CheckpointKey(9), []byte("?"))
		}, "neither a commit nor a checkpoint"},
		"after a checkpoint": {func(tab *table) {
			tab.checkpoint()
			tab.append(3)
			tab.drop(deltalog.CommitKey(10))
		}, "version 10 is missing, version 12 exists"},
		"no protocol": {func(tab *table) {
			tab.drop(deltalog.CommitKey(0))
			tab.put(deltalog.CommitKey(0), []byte(`{"commitInfo":{}}`))
		}, "no protocol"},
		"a commit cut off": {func(tab *table) { tab.put(deltalog.CommitKey(5), []byte(`{"txn":{"ap`)) }, "version 5"},
	} {
		t.Run(name, func(t *testing.T) {
			tab := newTable(t)
			tab.append(9)
			c.damage(tab)
			_, err := deltalog.Load(t.Context(), tab.store)
			if !errors.Is(err, deltalog.ErrCorrupt) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v, want %q", err, c.want)
			}
		})
	}
}

func TestMultiPartCheckpointIsRead(t *testing.T) {
	tab := newTable(t)
	tab.append(3)
	var rows []deltalog.Action
	for v := range tab.next {
		c, err := deltalog.ReadCommit(t.Context(), tab.store, v, deltalog.All&^deltalog.KindCommitInfo)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, c.Actions...)
		tab.drop(deltalog.CommitKey(v))
	}
	parts, err := deltalog.EncodeParts(rows[:3], rows[3:4], rows[4:])
	if err != nil {
		t.Fatal(err)
	}
	for i, body := range parts {
		tab.put(deltalog.PartKey(3, i+1, len(parts)), body)
	}
	tab.load()
	tab.append(2)
	if s := tab.load(); s.Checkpoint.Parts != 3 || s.Checkpoint.Version != 3 {
		t.Errorf("%+v", s.Checkpoint)
	}
	tab.checkpoint()
	if s := tab.load(); s.Checkpoint.Parts != 1 || s.Checkpoint.Version != 5 {
		t.Errorf("%+v", s.Checkpoint)
	}
}
