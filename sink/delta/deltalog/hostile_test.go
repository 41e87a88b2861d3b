package deltalog_test

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// TestNames_AbsurdVersion: if a commit or checkpoint has a version that no log can reach, the log is unreadable by
// every way of reading it, and the error names the object.
func TestNames_AbsurdVersion(t *testing.T) {
	for _, version := range []string{"09223372036854775807", "09223372036854775806", "99999999999999999999", "00009007199254740992"} {
		for _, rest := range []string{"json", "checkpoint.parquet", "checkpoint.0000000001.0000000001.parquet"} {
			key := deltalog.Dir + version + "." + rest
			t.Run(version+"."+rest, func(t *testing.T) {
				tab := newTable(t)
				tab.append(12)
				tab.checkpoint()
				old := tab.load()
				tab.append(10) // a refresh reads fewer commits by name; the others it finds by a list
				tab.put(key, []byte(tab.get(deltalog.CheckpointKey(12))))
				_, loaded := deltalog.Load(t.Context(), tab.store)
				_, refreshed := deltalog.Refresh(t.Context(), tab.store, old)
				_, at := deltalog.LoadAt(t.Context(), tab.store, 5)
				var commits error
				for _, err := range deltalog.Commits(t.Context(), tab.store, deltalog.All) {
					commits = err
				}
				for how, err := range map[string]error{"load": loaded, "refresh": refreshed, "load at": at, "commits": commits} {
					if !errors.Is(err, deltalog.ErrCorrupt) || !strings.Contains(err.Error(), key+" names a version that no log reaches") {
						t.Errorf("%s: %v", how, err)
					}
				}
				tab.drop(key)
				tab.load()
			})
		}
	}
}

// TestNames_NoTable: a folder whose only object has an absurd version is not a table, and no table is created there.
func TestNames_NoTable(t *testing.T) {
	store := objstore.NewMem()
	if err := store.Put(t.Context(), deltalog.Dir+"09223372036854775807.json", bytes.NewReader(nil), objstore.Replace); err != nil {
		t.Fatal(err)
	}
	if _, err := deltalog.Load(t.Context(), store); !errors.Is(err, deltalog.ErrCorrupt) {
		t.Error(err)
	}
}

// TestNames_NotRead: objects of kinds that this package does not read have no effect, even if their names have an
// absurd version.
func TestNames_NotRead(t *testing.T) {
	tab := newTable(t)
	tab.append(12)
	tab.checkpoint()
	tab.append(2)
	for _, name := range []string{
		"09223372036854775807.crc", "99999999999999999999.crc", "09223372036854775807.00000000000000000001.compacted.json",
		"00000000000000000003.09223372036854775807.compacted.json",
		"09223372036854775807.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.parquet",
		"09223372036854775807.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
		"00000000000000000014.checkpoint.9999999999.9999999999.parquet", "00000000000000000014.checkpoint.0000000000.0000000001.parquet",
		"00000000000000000014.checkpoint.0000000002.0000000001.parquet", "00000000000000000014.checkpoint.0000000001.9999999999.parquet",
		"_sidecars/09223372036854775807.parquet", "_staged_commits/09223372036854775807.80a083e8.json", "9223372036854775807.json",
		"009223372036854775807.json", "-9223372036854775808.json", "+0000000000000000001.json", "0000000000000000000x.json", "00000000000000000001.json.x",
	} {
		tab.put(deltalog.Dir+name, []byte("?"))
	}
	tab.load()
}

// TestCheckpoint_BehindTheNewestCommit: if the version of a checkpoint is greater than that of the newest commit, the
// log is unreadable, with any hint. If it were read, the checkpoint would hide the commits, and the next version would
// follow a gap.
func TestCheckpoint_BehindTheNewestCommit(t *testing.T) {
	for name, hint := range map[string]string{
		"no hint": "", "hint at it": `{"version":1000}`, "older hint": `{"version":4}`, "hint behind it": `{"version":2000}`,
	} {
		t.Run(name, func(t *testing.T) {
			tab := newTable(t)
			tab.append(4)
			tab.checkpoint()
			tab.append(3)
			body := []byte(tab.get(deltalog.CheckpointKey(4)))
			tab.put(deltalog.CheckpointKey(1000), body)
			tab.drop(deltalog.LastCheckpoint)
			if hint != "" {
				tab.put(deltalog.LastCheckpoint, []byte(hint))
			}
			_, err := deltalog.Load(t.Context(), tab.store)
			want := "checkpoint " + deltalog.CheckpointKey(1000) + " lies behind the newest commit, which is version 7"
			if !errors.Is(err, deltalog.ErrCorrupt) || !strings.Contains(err.Error(), want) {
				t.Errorf("got %v, want %s", err, want)
			}
			tab.drop(deltalog.CheckpointKey(1000))
			tab.load()
		})
	}
	t.Run("all commits cleaned up", func(t *testing.T) {
		tab := newTable(t)
		tab.append(4)
		tab.checkpoint()
		for v := range int64(5) {
			tab.drop(deltalog.CommitKey(v))
		}
		tab.load()
	})
}

// TestHint_Absurd: an absurd hint is ignored when the log is read, and the next checkpoint replaces it.
func TestHint_Absurd(t *testing.T) {
	for _, hint := range []string{
		`{"version":9223372036854775807}`, `{"version":9223372036854775808}`, `{"version":1e30}`, `{"version":9007199254740992}`,
		`{"version":-9223372036854775808}`, `{"version":12,"parts":0}`, `{"version":12,"parts":-1}`, `{"version":12,"parts":9223372036854775807}`,
		`{"version":9000}`, `{"version":12,"parts":16384}`, `[]`, `null`, `{"version":null}`, strings.Repeat("[", 9000),
	} {
		tab := newTable(t)
		tab.append(12)
		tab.put(deltalog.LastCheckpoint, []byte(hint))
		tab.load()
		if c, ok := deltalog.Hint(t.Context(), tab.store); ok {
			t.Errorf("%.40s: believed as %+v", hint, c)
		}
		tab.checkpoint()
		if c, ok := deltalog.Hint(t.Context(), tab.store); !ok || c.Version != 12 {
			t.Errorf("%.40s: the next checkpoint leaves %+v", hint, c)
		}
		tab.load()
	}
	// The sizes in a hint decide only when the next checkpoint is due.
	for _, size := range []string{"9223372036854775807", "-9223372036854775808"} {
		tab := newTable(t)
		tab.append(12)
		tab.checkpoint()
		tab.put(deltalog.LastCheckpoint, fmt.Appendf(nil, `{"version":12,"size":%s,"sizeInBytes":%s,"numOfAddFiles":%s}`, size, size, size))
		tab.append(2)
		s := tab.load()
		if c, ok := deltalog.Hint(t.Context(), tab.store); !ok || c.Size < 0 || s.Know(c).CheckpointDue() {
			t.Errorf("%s: %+v", size, c)
		}
	}
}

// TestNumbers_Absurd: a number outside the range of its field makes a commit corrupt, except in commitInfo and in a
// deletion vector, whose content is free. A number within the range is read unchanged.
func TestNumbers_Absurd(t *testing.T) {
	for line, corrupt := range map[string]bool{
		`{"txn":{"appId":"a","version":9223372036854775808}}`:                         true,
		`{"txn":{"appId":"a","version":1e400}}`:                                       true,
		`{"txn":{"appId":"a","version":1.5}}`:                                         true,
		`{"txn":{"appId":"a","version":9223372036854775807}}`:                         false,
		`{"txn":{"appId":"a","version":-9223372036854775808}}`:                        false,
		`{"txn":{"appId":"a","version":1,"lastUpdated":9223372036854775807}}`:         false,
		`{"add":{"path":"x","size":9223372036854775808}}`:                             true,
		`{"add":{"path":"x","size":-1,"modificationTime":-9223372036854775808}}`:      false,
		`{"add":{"path":"x","deletionVector":{"sizeInBytes":99999999999999999999}}}`:  false,
		`{"remove":{"path":"x","deletionTimestamp":9223372036854775807,"size":-1}}`:   false,
		`{"remove":{"path":"x","deletionTimestamp":99999999999999999999}}`:            true,
		`{"protocol":{"minReaderVersion":2147483648,"minWriterVersion":2}}`:           true,
		`{"protocol":{"minReaderVersion":-2147483648,"minWriterVersion":2147483647}}`: true,
		`{"commitInfo":{"timestamp":99999999999999999999,"readVersion":-5}}`:          false,
	} {
		tab := newTable(t)
		tab.put(deltalog.CommitKey(1), []byte(line))
		var err error
		s, err := deltalog.Load(t.Context(), tab.store)
		for _, kinds := range []deltalog.Kinds{deltalog.Heads, deltalog.All} {
			if _, failed := deltalog.ReadCommit(t.Context(), tab.store, 1, kinds); err == nil {
				err = failed
			}
		}
		if errors.Is(err, deltalog.ErrCorrupt) != corrupt || err != nil && !corrupt {
			t.Errorf("%s: %v", line, err)
		}
		if err == nil {
			_, _ = deltalog.WriteCheckpoint(t.Context(), tab.store, s, s.ReadAt, "") // this may fail, but must not panic
		}
	}
}

// FuzzNames: for any number of arbitrary objects below the log, a reader never panics, never reads a version without a
// commit or checkpoint, and never misses a commit that directly follows the commits it has read.
//
// The input is lines of NAME SOURCE: an object of this name with the bytes of the named object of a sound log, or with
// the rest of the line.
func FuzzNames(f *testing.F) {
	for _, seed := range []string{
		"09223372036854775807.json ", "99999999999999999999.checkpoint.parquet @00000000000000000004.checkpoint.parquet",
		"00000000000000001000.checkpoint.parquet @00000000000000000004.checkpoint.parquet\n_last_checkpoint {\"version\":1000}",
		"_last_checkpoint {\"version\":9223372036854775807,\"parts\":9223372036854775807}",
		"00000000000000000006.checkpoint.0000000001.0000000002.parquet @00000000000000000004.checkpoint.parquet\n" +
			"00000000000000000006.checkpoint.0000000002.0000000002.parquet @00000000000000000004.checkpoint.parquet",
		"00000000000000000007.json {\"txn\":{\"appId\":\"a\",\"version\":9223372036854775807}}\n00000000000000000009.json ",
		"00000000000000000002.json ",
	} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, input string) {
		tab := newTable(t)
		tab.append(4)
		tab.checkpoint()
		tab.append(2)
		names := map[string]bool{}
		for line := range strings.Lines(input) {
			name, body, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			if source, ok := strings.CutPrefix(body, "@"); ok {
				body = "?"
				if slices.Contains([]string{"00000000000000000004.checkpoint.parquet", "00000000000000000005.json"}, source) {
					body = tab.get(deltalog.Dir + source)
				}
			}
			if err := tab.store.Put(t.Context(), deltalog.Dir+name, strings.NewReader(body), objstore.Replace); err == nil {
				names[name] = true
			}
		}
		s, err := deltalog.Load(t.Context(), tab.store)
		if err != nil {
			if !errors.Is(err, deltalog.ErrCorrupt) {
				t.Fatal(err)
			}
			return
		}
		has := func(key string) bool {
			_, err := tab.store.Head(t.Context(), key)
			return err == nil
		}
		if s.Version < 6 || !has(deltalog.CommitKey(s.Version)) || has(deltalog.CommitKey(s.Version+1)) {
			t.Fatalf("read version %d of 7 versions and %v", s.Version, names)
		}
		_, _ = describe(t, tab.store, s)
		_, _ = deltalog.Hint(t.Context(), tab.store)
		if refreshed, err := deltalog.Refresh(t.Context(), tab.store, s); err != nil || refreshed.Version != s.Version {
			t.Fatalf("refreshed from %d: %v, %v", s.Version, refreshed, err)
		}
		_, _ = deltalog.WriteCheckpoint(t.Context(), tab.store, s, s.ReadAt, "")
		for _, err := range deltalog.Commits(t.Context(), tab.store, deltalog.All) {
			if err != nil && !errors.Is(err, deltalog.ErrCorrupt) {
				t.Fatal(err)
			}
		}
	})
}
