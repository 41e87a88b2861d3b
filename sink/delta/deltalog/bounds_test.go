package deltalog_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"testing"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// endless is a store in which one object never ends. It counts the bytes that are read from that object.
type endless struct {
	objstore.Store
	key  string
	read atomic.Int64
}

func (e *endless) Get(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if key != e.key {
		return e.Store.Get(ctx, key, off, n)
	}
	return io.NopCloser(e), nil
}

func (e *endless) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = ' '
	}
	e.read.Add(int64(len(p)))
	return len(p), nil
}

// TestBounds_Hint: of a hint that is too large, a reader reads no more than the bound, and then reads the log as if
// there were no hint.
func TestBounds_Hint(t *testing.T) {
	tab := newTable(t)
	tab.append(3)
	store := &endless{Store: tab.store, key: deltalog.LastCheckpoint}
	s, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	tab.checkHeads(s)
	if n := store.read.Load(); n > 2*deltalog.MaxHint {
		t.Errorf("%d bytes of the hint were read", n)
	}
	for size, believed := range map[int]bool{deltalog.MaxHint: true, deltalog.MaxHint + 1: false} {
		tab.checkpoint()
		hint := `{"version":3}`
		tab.put(deltalog.LastCheckpoint, []byte(hint+strings.Repeat(" ", size-len(hint))))
		if _, ok := deltalog.Hint(t.Context(), tab.store); ok != believed {
			t.Errorf("a hint of %d bytes: believed %v", size, ok)
		}
	}
}

// TestBounds_Line: a line that never ends is read up to the bound, and the error names the version and the bound.
func TestBounds_Line(t *testing.T) {
	tab := newTable(t)
	tab.append(2)
	tab.put(deltalog.CommitKey(3), nil) // so that a list has the key
	store := &endless{Store: tab.store, key: deltalog.CommitKey(3)}
	_, err := deltalog.ReadCommit(t.Context(), store, 3, deltalog.All)
	want := fmt.Sprintf("read version 3: the log is corrupt: a line of more than %d bytes", deltalog.MaxLine)
	if !errors.Is(err, deltalog.ErrCorrupt) || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
	if n := store.read.Load(); n > deltalog.MaxLine+1<<20 {
		t.Errorf("%d bytes of the line were read", n)
	}
	// This line is within the bound, but would take much more memory once it is parsed.
	many := `{"metaData":{"id":"i","schemaString":"{}","configuration":{` + strings.Repeat(`"a":"",`, deltalog.MaxLine/8) + `"b":""}}}`
	tab.put(deltalog.CommitKey(3), []byte(many))
	if _, err := deltalog.Load(t.Context(), tab.store); !errors.Is(err, deltalog.ErrCorrupt) || !strings.Contains(err.Error(), "once it is parsed") {
		t.Errorf("%.200v", err)
	}
}

// TestBounds_SideBySide: commits that are read in parallel stay within their common budget, also with long lines. A
// commit that does not fit beside the others is read alone.
func TestBounds_SideBySide(t *testing.T) {
	tab := newTable(t)
	stats := strings.Repeat("x", 1<<20)
	for v := range 8 {
		actions := []deltalog.Action{deltalog.Txn{AppID: fmt.Sprint("app", v), Version: 1}}
		for i := range 12 {
			actions = append(actions, deltalog.Add{Path: fmt.Sprintf("f-%d-%d", v, i), Stats: stats})
		}
		tab.commit(actions...)
	}
	errs, peak := deltalog.ReadTogether(t.Context(), tab.store, 1, 8, deltalog.All)
	full := 0
	for _, err := range errs {
		if err != nil {
			full++
		}
	}
	if full == 0 || full == 8 || peak > deltalog.MaxTogether || peak < deltalog.MaxTogether/2 {
		t.Errorf("%d of 8 commits of 12 MiB did not fit, at most %d bytes were held: %v", full, peak, errs)
	}
	tab.load()
}

// TestBounds_Positions: if a commit or a table has more positions than its bound, it cannot be read, and the error
// names the bound.
func TestBounds_Positions(t *testing.T) {
	id := strings.Repeat("x", 1000)
	txns := func(v, n int) []deltalog.Action {
		var actions []deltalog.Action
		for i := range n {
			actions = append(actions, deltalog.Txn{AppID: fmt.Sprintf("%d-%d-%s", v, i, id), Version: 1})
		}
		return actions
	}
	tab := newTable(t)
	if _, err := deltalog.Encode(txns(0, deltalog.MaxHeads/1000)); err == nil {
		t.Error("a commit is encoded that would not be read back")
	}
	var lines strings.Builder
	for i := range deltalog.MaxHeads / 1000 {
		fmt.Fprintf(&lines, `{"txn":{"appId":"%d-%s","version":1}}`+"\n", i, id)
	}
	tab.put(deltalog.CommitKey(1), []byte(lines.String()))
	if _, err := deltalog.Load(t.Context(), tab.store); !errors.Is(err, deltalog.ErrCorrupt) ||
		!strings.Contains(err.Error(), "read version 1: line ") || !strings.Contains(err.Error(), "its positions and metadata take more than 16777216 bytes") {
		t.Errorf("one commit: %.200v", err)
	}
	tab = newTable(t)
	for v := range 6 {
		tab.commit(txns(v, 12_000)...)
	}
	if _, err := deltalog.Load(t.Context(), tab.store); !errors.Is(err, deltalog.ErrCorrupt) ||
		!strings.Contains(err.Error(), "the positions and metadata up to version 5 take more than") {
		t.Errorf("a table: %.200v", err)
	}
}

// TestBounds_Checkpoint: a checkpoint that would take more memory than the bound is not read, and the state comes from
// the commits. If commits are missing, the error names the checkpoint.
func TestBounds_Checkpoint(t *testing.T) {
	tab := newTable(t)
	tab.append(3)
	bomb, err := deltalog.EncodeParts([]deltalog.Action{
		deltalog.Protocol{MinReaderVersion: 1, MinWriterVersion: 2},
		// 70 MiB, which zstd compresses to some KiB.
		deltalog.Metadata{ID: "table-1", SchemaString: strings.Repeat("x", 70<<20)},
	})
	if err != nil || len(bomb[0]) > 1<<20 {
		t.Fatal(len(bomb[0]), err)
	}
	tab.put(deltalog.CheckpointKey(3), bomb[0])
	tab.load()
	tab.drop(deltalog.CommitKey(0))
	_, err = deltalog.Load(t.Context(), tab.store)
	if !errors.Is(err, deltalog.ErrCorrupt) || !strings.Contains(err.Error(), "version 0 is missing") ||
		!strings.Contains(err.Error(), "a checkpoint is not used: ") || !strings.Contains(err.Error(), deltalog.CheckpointKey(3)) {
		t.Errorf("%v", err)
	}
}

// TestBounds_CheckpointMemory: the memory for reading a checkpoint does not depend on the size of the checkpoint.
func TestBounds_CheckpointMemory(t *testing.T) {
	var peaks [2]int64
	for i, files := range []int{30_000, 90_000} {
		tab := newTable(t)
		actions := make([]deltalog.Action, files)
		for f := range actions {
			actions[f] = deltalog.Add{Path: fmt.Sprintf("part-%05d.parquet", f), Size: 1, Stats: noise(f)}
		}
		tab.commit(actions...)
		s, err := deltalog.Load(t.Context(), tab.store)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := deltalog.WriteCheckpoint(t.Context(), tab.store, s, s.ReadAt, ""); err != nil {
			t.Fatal(err)
		}
		peak, atEnd, left, err := deltalog.CheckpointMemory(t.Context(), tab.store, 1)
		if err != nil || atEnd > peak/2 || left > 1<<20 {
			t.Errorf("%d files: at most %d bytes, %d at the end, %d once closed; %v", files, peak, atEnd, left, err)
		}
		peaks[i] = peak
	}
	if peaks[1] > peaks[0]*3/2 || peaks[1] > 32<<20 {
		t.Errorf("peaks %v", peaks)
	}
}
