package delta_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// setBack deletes the versions of a table that are greater than to, as the restore of an older copy does.
func setBack(t *testing.T, store objstore.Store, to int64) {
	t.Helper()
	for v := to + 1; ; v++ {
		if _, err := store.Head(t.Context(), deltalog.CommitKey(v)); err != nil {
			return
		}
		if err := store.Delete(t.Context(), deltalog.CommitKey(v)); err != nil {
			t.Fatal(err)
		}
	}
}

// versions returns the versions that the store has.
func versions(t *testing.T, store objstore.Store) (all []int64) {
	t.Helper()
	for v := range int64(30) {
		if _, err := store.Head(t.Context(), deltalog.CommitKey(v)); err == nil {
			all = append(all, v)
		}
	}
	return all
}

// TestTable_OlderCopyRestored: an older copy of the table is restored while a member runs, so that versions which this
// or another member committed vanish. From its first commit on, the member must not write after the gap, and must not
// continue from positions that the table no longer has.
func TestTable_OlderCopyRestored(t *testing.T) {
	for name, c := range map[string]struct {
		// before commits versions of this member (mine) and of another one (other).
		before func(t *testing.T, mine, other *delta.Table)
		to     int64 // the newest version of the restored copy
		after  func(t *testing.T, other *delta.Table)
		want   map[string]int64 // positions from which a member may continue
	}{
		"what it wrote itself": {
			func(t *testing.T, mine, _ *delta.Table) {
				must(t, mine, rowRange{0, 0, 2})
				must(t, mine, rowRange{0, 2, 4})
			},
			1, nil,
			map[string]int64{app(0): 2},
		},
		"what another one wrote": {
			func(t *testing.T, mine, other *delta.Table) {
				must(t, mine, rowRange{0, 0, 2})
				must(t, other, rowRange{1, 0, 3})
				must(t, other, rowRange{1, 3, 5})
			},
			2, nil,
			map[string]int64{app(0): 2, app(1): 3},
		},
		"and the other one went on since": {
			func(t *testing.T, mine, other *delta.Table) {
				must(t, mine, rowRange{0, 0, 2})
				must(t, other, rowRange{1, 0, 3})
				must(t, other, rowRange{1, 3, 5})
			},
			2,
			func(t *testing.T, other *delta.Table) {
				must(t, other, rowRange{1, 3, 4})
				must(t, other, rowRange{1, 4, 5})
			},
			map[string]int64{app(0): 2, app(1): 5},
		},
		"before it wrote anything": {
			func(t *testing.T, _, other *delta.Table) { must(t, other, rowRange{1, 0, 3}) },
			0, nil,
			map[string]int64{},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := objstore.NewMem()
				var log bytes.Buffer
				mine := open(t, store, func(o *delta.Options) { o.Logger = slog.New(slog.NewTextHandler(&log, nil)) })
				other := open(t, store)
				load(t, mine)
				load(t, other)
				c.before(t, mine, other)
				seen := load(t, mine)
				setBack(t, store, c.to)
				if c.after != nil {
					time.Sleep(time.Second) // modification times in S3 are whole seconds
					load(t, other)
					c.after(t, other)
				}
				left := versions(t, store)

				// A commit that starts at the position before the restore is fenced. If the restored copy has the same
				// position, the commit becomes its next version.
				at := seen.Positions[app(0)]
				k := rowRange{0, at, at + 1}
				_, err := mine.Commit(t.Context(), k.commit(nil), k.pre)
				if now := versions(t, store); err != nil && (classify.Of(err) != classify.Fenced || len(now) != len(left)) ||
					err == nil && (len(now) != len(left)+1 || now[len(now)-1] != int64(len(now)-1)) {
					t.Fatalf("%v: versions %v, before %v", err, now, left)
				}
				s := load(t, mine)
				for appID, next := range c.want {
					if err == nil && appID == app(0) {
						next++
					}
					if s.Positions[appID] != next {
						t.Errorf("%s is at %d, want %d", appID, s.Positions[appID], next)
					}
				}
				if !strings.Contains(log.String(), "level=ERROR") {
					t.Errorf("nobody is told\n%s", log.String())
				}
			})
		})
	}
}

// must commits a range without files, and fails the test on an error.
func must(t *testing.T, tab *delta.Table, k rowRange) *connector.Snapshot {
	t.Helper()
	s, err := tab.Commit(t.Context(), k.commit(nil), k.pre)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
