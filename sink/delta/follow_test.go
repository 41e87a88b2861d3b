package delta_test

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// TestFollower: changes to rows and positions since the last call are reported once.
func TestFollower(t *testing.T) {
	store := objstore.NewMem()
	f := delta.NewFollower(store, guard())
	changed := func(what string, want delta.Change) {
		t.Helper()
		if want.Back == nil && !want.Anew {
			want.Back = map[string]int64{}
		}
		got, err := f.Follow(t.Context())
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, d)
		}
	}
	position := func(want int64) {
		t.Helper()
		if got := f.State().Txns[app(0)].Version; got != want {
			t.Errorf("position %d, want %d", got, want)
		}
	}
	changed("no table", delta.Change{Anew: true})
	if f.State() != nil {
		t.Error(f.State())
	}
	tab := open(t, store)
	appendCommits(t, tab, 2)
	changed("the first look", delta.Change{Anew: true})
	position(6)
	changed("nothing", delta.Change{})
	appendCommits(t, tab, 3)
	changed("commits of members", delta.Change{})
	position(15)

	set := func(next int64) deltalog.Action { return deltalog.Txn{AppID: app(0), Version: next} }
	foreign(t, store, set(4))
	foreign(t, store, set(2))
	foreign(t, store, set(15))
	changed("back and forth", delta.Change{Back: map[string]int64{app(0): 2}})
	position(15)

	add := deltalog.Add{Path: "x.parquet", Size: 1}
	foreign(t, store, add, deltalog.Remove{Path: "y.parquet"})
	changed("a file that was written anew", delta.Change{})
	add.DataChange = true
	foreign(t, store, add)
	changed("rows of others", delta.Change{Others: true})
	foreign(t, store, deltalog.Remove{Path: "x.parquet", DataChange: true})
	changed("rows that went", delta.Change{Others: true})

	m := f.State().Metadata
	m.Name = "another"
	foreign(t, store, m)
	changed("a name", delta.Change{})
	told := m.SchemaString
	m.SchemaString = `{"type":"struct","fields":[]}`
	foreign(t, store, m)
	changed("columns that tell nothing", delta.Change{Others: true})
	err := f.Places(t.Context(), 0, []scan.Where{{Topic: "t", Next: 1}}, func(string, int32, int64) error { return nil })
	holds(t, err, hold.SchemaConflict, "_kafka_topic")
	m.SchemaString = told
	foreign(t, store, m)
	changed("columns that tell", delta.Change{Others: true})

	places := 0
	stop := errors.New("stop")
	count := func(string, int32, int64) error { places++; return nil }
	if err := f.Places(t.Context(), 1<<20, []scan.Where{{Topic: "orders", Next: 1 << 40}}, count); err != nil || places != 15 {
		t.Errorf("%d rows, %v", places, err)
	}
	err = f.Places(t.Context(), 1<<20, []scan.Where{{Topic: "orders", Next: 1 << 40}}, func(string, int32, int64) error { return stop })
	if !errors.Is(err, stop) {
		t.Error(err)
	}

	m.ID = "another-table"
	foreign(t, store, m)
	changed("another table", delta.Change{Anew: true})
	changed("and that is all", delta.Change{})
}

// TestFollower_TableDeleted: a deleted table and its replacement are noticed even right after a call. Versions of the new
// table are not applied to the state of the old one.
func TestFollower_TableDeleted(t *testing.T) {
	store := objstore.NewMem()
	f := delta.NewFollower(store, guard())
	anew := func(what string, position int64) {
		t.Helper()
		change, err := f.Follow(t.Context())
		if d := cmp.Diff(delta.Change{Anew: true}, change); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", what, err, d)
		}
		var got int64
		if f.State() != nil {
			got = f.State().Txns[app(0)].Version
		}
		if got != position {
			t.Errorf("%s: position %d, want %d", what, got, position)
		}
	}
	appendCommits(t, open(t, store), 3)
	anew("the first look", 9)
	removeAll(t, store)
	anew("deleted", 0)
	appendCommits(t, open(t, store), 3)
	anew("created again", 9)
	removeAll(t, store)
	appendCommits(t, open(t, store), 5) // two more than the follower knows
	anew("deleted and created again between two looks", 15)
}
