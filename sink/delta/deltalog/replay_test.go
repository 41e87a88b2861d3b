package deltalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// TestReplayEqualsModel: for any order of commits, checkpoints and cleanups, three readers get the state of a naive
// model that only appends and deletes. One reads the log from its start, one from the newest checkpoint, and one
// refreshes.
func TestReplayEqualsModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := newTable(t)
		s := tab.load()
		name := rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("p=%s/f%d", rapid.SampledFrom([]string{"a", "b c", "100%25", "é"}).Draw(t, "dir"), rapid.IntRange(0, 9).Draw(t, "file"))
		})
		t.Repeat(map[string]func(*rapid.T){
			"commit": func(t *rapid.T) {
				actions := []deltalog.Action{deltalog.CommitInfo{TxnID: "x"}}
				for _, key := range rapid.SliceOfNDistinct(name, 0, 4, rapid.ID).Draw(t, "files") {
					switch rapid.IntRange(0, 3).Draw(t, "what") {
					case 0:
						actions = append(actions, deltalog.Remove{Path: deltalog.URI(key), DeletionTimestamp: 1})
					case 1: // adds a file again with other metadata
						actions = append(actions, deltalog.Add{Path: deltalog.URI(key)}, deltalog.Remove{Path: key})
					default:
						actions = append(actions, deltalog.Add{Path: deltalog.URI(key)})
					}
				}
				for _, app := range rapid.SliceOfNDistinct(rapid.IntRange(0, 3), 0, 3, rapid.ID).Draw(t, "apps") {
					actions = append(actions, deltalog.Txn{AppID: fmt.Sprint(app), Version: rapid.Int64().Draw(t, "version")})
				}
				if rapid.Bool().Draw(t, "metadata") {
					actions = append(actions, deltalog.Metadata{ID: "table-1", SchemaString: "{}", Configuration: map[string]string{"k": "v"}})
				}
				tab.commit(actions...)
			},
			"checkpoint": func(*rapid.T) { tab.checkpoint() },
			"many":       func(*rapid.T) { tab.append(9) },
			"clean up": func(t *rapid.T) {
				for v := range tab.load().Checkpoint.Version {
					tab.drop(deltalog.CommitKey(v), deltalog.CheckpointKey(v))
				}
			},
			"lose the hint": func(*rapid.T) { tab.drop(deltalog.LastCheckpoint) },
			"refresh": func(t *rapid.T) {
				if s.Version < tab.load().Checkpoint.Version {
					s = tab.load() // the commits that a refresh would read may have been removed by the cleanup
				}
				var err error
				if s, err = deltalog.Refresh(t.Context(), tab.store, s); err != nil {
					t.Fatal(err)
				}
				tab.checkHeads(s)
			},
			"load": func(*rapid.T) { tab.load() },
		})
		tab.load()
	})
}

// FuzzReplay: another program may put any bytes as a commit. A reader must not panic: it reads the commit or returns
// ErrCorrupt, and a checkpoint of the state that it has read must give the same state again.
func FuzzReplay(f *testing.F) {
	f.Add([]byte(`{"txn":{"appId":"a","version":1,"lastUpdated":null}}`))
	f.Add([]byte(`{"add":{"path":"a%20b","partitionValues":{"x":null},"size":1,"modificationTime":1,"dataChange":true,"stats":"{}"}}` + "\n" +
		`{"remove":{"path":"a b","deletionTimestamp":9223372036854775807}}`))
	f.Add([]byte(`{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":[]}}`))
	f.Add([]byte(`{"metaData":{"id":"i","schemaString":"{}","configuration":{"delta.deletedFileRetentionDuration":"interval 1 week"}}}`))
	f.Add([]byte(`{"commitInfo":{"operationParameters":{"a":[]},"sluice":{"ranges":[{}]}}}` + "\r\n\n"))
	f.Fuzz(func(t *testing.T, commit []byte) {
		ctx, store := t.Context(), objstore.NewMem()
		put := func(v int64, body []byte) {
			if err := store.Put(ctx, deltalog.CommitKey(v), bytes.NewReader(body), objstore.Replace); err != nil {
				t.Fatal(err)
			}
		}
		put(0, []byte(`{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}`+"\n"+`{"metaData":{"id":"i","schemaString":"{}"}}`+"\n"+`{"add":{"path":"x"}}`))
		put(1, commit)
		s, err := deltalog.Load(ctx, store)
		if err != nil {
			if !errors.Is(err, deltalog.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		if s.Version != 1 {
			t.Fatalf("version %d", s.Version)
		}
		before, err := describe(t, store, s)
		if errors.Is(err, deltalog.ErrCorrupt) {
			return
		}
		c, err := deltalog.WriteCheckpoint(ctx, store, s, s.ReadAt, "")
		if err != nil {
			return // such as for a protocol that is not supported, or a deletion vector
		}
		if err := store.Delete(ctx, deltalog.CommitKey(0)); err != nil {
			t.Fatal(err)
		}
		again, err := deltalog.Load(ctx, store)
		if err != nil || again.Checkpoint != c {
			t.Fatalf("after the checkpoint: %v, %+v", err, again)
		}
		after, err := describe(t, store, again)
		if err != nil || before != after {
			t.Fatalf("before the checkpoint\n%s\nafter it\n%s\n%v", before, after, err)
		}
	})
}

// describe renders a state and its data files as text, so that two states can be compared.
func describe(t *testing.T, store objstore.Store, s *deltalog.State) (string, error) {
	t.Helper()
	var lines []string
	for app, x := range s.Txns {
		updated := "-"
		if x.LastUpdated != nil {
			updated = fmt.Sprint(*x.LastUpdated)
		}
		lines = append(lines, fmt.Sprintf("txn %q %d %s", app, x.Version, updated))
	}
	slices.Sort(lines)
	lines = append(lines, fmt.Sprintf("%d %d %q %q %q", s.Protocol.MinReaderVersion, s.Protocol.MinWriterVersion, s.Metadata.ID, s.Metadata.SchemaString, s.Metadata.Configuration))
	for f, err := range deltalog.Files(t.Context(), store, s) {
		if err != nil {
			return "", err
		}
		values, err := deltalog.Encode([]deltalog.Action{deltalog.Add{Path: f.Path, PartitionValues: f.PartitionValues, Size: f.Size, ModificationTime: f.ModificationTime, Stats: f.Stats}})
		if err != nil {
			return "", err
		}
		lines = append(lines, string(values))
	}
	return strings.Join(lines, "\n"), nil
}
