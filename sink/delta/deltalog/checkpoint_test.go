package deltalog_test

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/delta/deltalog"
)

func TestCheckpointKeepsTxnsAndMetadata(t *testing.T) {
	tab := newTable(t)
	tab.commit(deltalog.Metadata{
		ID: "table-1", Name: "orders", Description: "d", Format: deltalog.Format{Provider: "parquet", Options: map[string]string{"o": "1"}},
		SchemaString: `{"type":"struct","fields":[]}`, PartitionColumns: []string{"a", "b"},
		Configuration: map[string]string{"delta.appendOnly": "true", "foreign": ""}, CreatedTime: new(int64(77)),
	}, deltalog.Txn{AppID: "no time", Version: 3})
	tab.append(5)
	before := tab.load()
	tab.checkpoint()
	for v := range tab.next {
		tab.drop(deltalog.CommitKey(v))
	}
	after := tab.load()
	if diff := cmp.Diff(before.Metadata, after.Metadata); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(before.Protocol, after.Protocol); diff != "" {
		t.Error(diff)
	}
	if x := after.Txns["no time"]; x.LastUpdated != nil {
		t.Errorf("lastUpdated appeared: %+v", x)
	}
	if x := after.Txns["app2"]; x.LastUpdated == nil || *x.LastUpdated != x.Version {
		t.Errorf("lastUpdated is lost: %+v", x)
	}
	want := fmt.Sprintf(`{"version":6,"size":11,"sizeInBytes":%d,"numOfAddFiles":5}`, after.Checkpoint.Size)
	if got := tab.get(deltalog.LastCheckpoint); got != want { // size 11 is protocol, metaData, 4 txns and 5 adds
		t.Errorf("hint %s, want %s", got, want)
	}
}

func TestTombstonesUntilRetention(t *testing.T) {
	now := time.Now()
	ago := func(d time.Duration) int64 { return now.Add(-d).UnixMilli() }
	for name, c := range map[string]struct {
		property string
		want     []string
	}{
		"default":         {"", []string{"part-2.parquet", "part-3.parquet"}},
		"ten days":        {"interval 10 days", []string{"part-1.parquet", "part-2.parquet", "part-3.parquet"}},
		"an hour":         {"interval 1 hour", []string{"part-3.parquet"}},
		"not understood":  {"for ever", []string{"part-1.parquet", "part-2.parquet", "part-3.parquet"}},
		"nothing is kept": {"interval 0 hours", nil},
	} {
		t.Run(name, func(t *testing.T) {
			tab := newTable(t)
			tab.append(5)
			if c.property != "" {
				tab.commit(deltalog.Metadata{ID: "table-1", SchemaString: "{}", Configuration: map[string]string{"delta.deletedFileRetentionDuration": c.property}})
			}
			tab.commit(deltalog.Remove{Path: "part-1.parquet", DeletionTimestamp: ago(8 * 24 * time.Hour)})
			tab.commit(deltalog.Remove{Path: "part-2.parquet", DeletionTimestamp: ago(6 * 24 * time.Hour)})
			tab.checkpoint()
			tab.commit(deltalog.Remove{Path: "part-3.parquet", DeletionTimestamp: ago(time.Minute)})
			tab.commit(deltalog.Add{Path: "part-1.parquet", Size: 1}, deltalog.Add{Path: "x.parquet"})
			tab.commit(deltalog.Remove{Path: "part-1.parquet", DeletionTimestamp: ago(8 * 24 * time.Hour)})
			tab.checkpoint()
			tab.append(1)
			got, err := deltalog.Tombstones(t.Context(), tab.store, tab.load())
			if err != nil {
				t.Fatal(err)
			}
			slices.Sort(got)
			if !slices.Equal(got, c.want) {
				t.Errorf("tombstones %v, want %v", got, c.want)
			}
		})
	}
}

func TestHintNeverMovesBackwards(t *testing.T) {
	tab := newTable(t)
	tab.append(2)
	old := tab.load()
	tab.append(3)
	tab.checkpoint()
	hint := tab.get(deltalog.LastCheckpoint)
	if _, err := deltalog.WriteCheckpoint(t.Context(), tab.store, old, time.Now(), ""); err != nil {
		t.Fatal(err)
	}
	if got := tab.get(deltalog.LastCheckpoint); got != hint {
		t.Errorf("hint %s became %s", hint, got)
	}
	tab.load()
}

// TestCheckpointTwice: if two members write a checkpoint of the same version, the second one leaves the file of the
// first one as it is.
func TestCheckpointTwice(t *testing.T) {
	tab := newTable(t)
	tab.append(2)
	s := tab.load()
	for range 2 {
		if _, err := deltalog.WriteCheckpoint(t.Context(), tab.store, s, time.Now(), ""); err != nil {
			t.Fatal(err)
		}
	}
	if v := tab.store.Violations(); len(v) > 0 {
		t.Error(v)
	}
	tab.load()
}

// TestCheckpointIsReadBack: if a damaged file has the name of the checkpoint, the writer notices this and writes no
// hint that names it.
func TestCheckpointIsReadBack(t *testing.T) {
	tab := newTable(t)
	tab.append(2)
	s := tab.load()
	other := s.Metadata
	other.SchemaString = "{}"
	parts, err := deltalog.EncodeParts(
		[]deltalog.Action{s.Protocol, s.Metadata, s.Txns["app1"]},
		[]deltalog.Action{s.Protocol, other, s.Txns["app1"], s.Txns["app2"]},
	)
	if err != nil {
		t.Fatal(err)
	}
	for name, body := range map[string][]byte{"garbage": []byte("?"), "without a txn": parts[0], "of another schema": parts[1]} {
		tab.put(deltalog.CheckpointKey(2), body)
		if _, err := deltalog.WriteCheckpoint(t.Context(), tab.store, s, time.Now(), ""); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if _, err := tab.store.Head(t.Context(), deltalog.LastCheckpoint); err == nil {
		t.Error("the hint names it")
	}
}

func TestCheckpointDue(t *testing.T) {
	interval := func(n string) map[string]string { return map[string]string{"delta.checkpointInterval": n} }
	for _, c := range []struct {
		version, last, size, json int64
		config                    map[string]string
		want                      bool
	}{
		{version: 8, last: -1, want: false},
		{version: 9, last: -1, want: true},
		{version: 19, last: 10, size: 0, json: 1, want: false},
		{version: 20, last: 10, size: 4000, json: 999, want: false},
		{version: 20, last: 10, size: 4000, json: 1000, want: true},
		{version: 109, last: 10, size: 4000, json: 999, want: false},
		{version: 110, last: 10, size: 4000, json: 999, want: true},
		{version: 12, last: 10, size: 4000, json: 9999, config: interval("3"), want: false},
		{version: 13, last: 10, size: 4000, json: 0, config: interval("3"), want: true},
		{version: 20, last: 10, size: 4000, json: 1000, config: interval("often"), want: true},
		{version: 20, last: 10, size: 4000, json: 1000, config: interval("0"), want: true},
	} {
		s := &deltalog.State{Version: c.version, JSONBytes: c.json, Checkpoint: deltalog.Checkpoint{Version: c.last, Size: c.size}}
		s.Metadata.Configuration = c.config
		if got := s.CheckpointDue(); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}

// TestLargeCheckpoint: a large checkpoint has several row groups and is written through a temporary file. The next
// checkpoint copies the actions of data files from it as a stream.
func TestLargeCheckpoint(t *testing.T) {
	const files = 40_000
	tab := newTable(t)
	actions := make([]deltalog.Action, files)
	for i := range actions {
		// The statistics do not compress, so that the file outgrows the memory of the spool.
		actions[i] = deltalog.Add{Path: fmt.Sprintf("part-%05d.parquet", i), Size: 1, Stats: noise(i)}
	}
	tab.commit(actions...)
	c := tab.checkpoint()
	if c.Size < deltalog.SpoolMemory {
		t.Errorf("a checkpoint of %d bytes does not try the spool", c.Size)
	}
	tab.commit(deltalog.Remove{Path: "part-00017.parquet", DeletionTimestamp: 1}, deltalog.Add{Path: "new.parquet"})
	tab.checkpoint()
	tab.drop(deltalog.CommitKey(0), deltalog.CommitKey(1), deltalog.CommitKey(2), deltalog.CheckpointKey(1))
	tab.load()
}

func noise(seed int) string {
	b := make([]byte, 256)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x = x*1664525 + 1013904223
		b[i] = ' ' + byte(x>>24)%94
	}
	return string(b)
}

func TestSpool(t *testing.T) {
	dir := t.TempDir()
	for _, size := range []int{0, 10, deltalog.SpoolMemory, deltalog.SpoolMemory + 1, 3 * deltalog.SpoolMemory} {
		s := deltalog.NewSpool(dir)
		text := strings.Repeat("x", size)
		for part := range slices.Chunk([]byte(text), 1<<20) {
			if _, err := s.Write(part); err != nil {
				t.Fatal(err)
			}
		}
		r, err := s.Reader()
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(r); err != nil || string(got) != text {
			t.Errorf("%d bytes: read %d, %v", size, len(got), err)
		}
		s.Discard()
		if left, _ := os.ReadDir(dir); len(left) > 0 {
			t.Errorf("%d bytes: %v is left behind", size, left)
		}
	}
}
