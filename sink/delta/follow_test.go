package delta_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// TestFollower: Follow reports each change to rows, and each position that was set back, in the first call after it and
// only there.
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
	err := f.Places(t.Context(), 0, []scan.Where{{Topic: "t", Next: 1}}, func(scan.Place) error { return nil })
	holds(t, err, hold.SchemaConflict, "_kafka_topic")
	m.SchemaString = told
	foreign(t, store, m)
	changed("columns that tell", delta.Change{Others: true})

	m.SchemaString = strings.TrimSuffix(told, "]}") + `,{"name":"_kafka_topic_id","type":"string","nullable":true,"metadata":{}}]}`
	foreign(t, store, m)
	changed("a column for topic ids", delta.Change{Others: true})
	m.SchemaString = told
	foreign(t, store, m)
	changed("no such column any more", delta.Change{Others: true})

	places := 0
	stop := errors.New("stop")
	count := func(scan.Place) error { places++; return nil }
	if err := f.Places(t.Context(), 1<<20, []scan.Where{{Topic: "orders", Next: 1 << 40}}, count); err != nil || places != 15 {
		t.Errorf("%d rows, %v", places, err)
	}
	err = f.Places(t.Context(), 1<<20, []scan.Where{{Topic: "orders", Next: 1 << 40}}, func(scan.Place) error { return stop })
	if !errors.Is(err, stop) {
		t.Error(err)
	}

	m.ID = "another-table"
	foreign(t, store, m)
	changed("another table", delta.Change{Anew: true})
	changed("and that is all", delta.Change{})
}

// TestFollower_PlacesWithoutTable: Places returns an error before the first call of Follow, and after a call that has
// found no table. Once Follow has found a table, Places returns no error.
func TestFollower_PlacesWithoutTable(t *testing.T) {
	store := objstore.NewMem()
	f := delta.NewFollower(store, guard())
	places := func() error {
		return f.Places(t.Context(), 1<<20, nil, func(scan.Place) error { return nil })
	}
	follow := func() {
		t.Helper()
		if _, err := f.Follow(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	const refused = "no table is known"
	if err := places(); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("before the first call of Follow: %v", err)
	}
	follow()
	if err := places(); err == nil || !strings.Contains(err.Error(), refused) {
		t.Errorf("without a table: %v", err)
	}
	appendCommits(t, open(t, store), 3)
	follow()
	if err := places(); err != nil {
		t.Error(err)
	}
}

// TestFollower_TableDeleted: the follower notices that the table was deleted, and that another one replaced it, even if
// both happen between two calls. It does not apply versions of the new table to the state of the old one.
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
	appendCommits(t, open(t, store), 5) // two versions more than the follower has seen of the old table
	anew("deleted and created again between two looks", 15)
}

// TestFollower_Replays: the first call of Follow after a replay reports its dead letters; later calls do not. A commit
// that is no replay names no dead letters.
func TestFollower_Replays(t *testing.T) {
	store := objstore.NewMem()
	tab := open(t, store)
	appendCommits(t, tab, 1)
	f := delta.NewFollower(store, guard())
	if _, err := f.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	want := []connector.Replayed{
		{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}.String(), Partition: 0, Offsets: offsets.Of(12, 13, 14, 15, 20)},
		{Topic: "orders", TopicID: "-", Partition: 1, Offsets: offsets.Of(3)},
	}
	s := load(t, tab)
	for i := range want { // the follower is not called between the two replays
		files, err := tab.Stage(t.Context(), s, "", []connector.Piece{rows(s.Schema, 0, int64(30+i), int64(31+i))}, nil)
		if err != nil {
			t.Fatal(err)
		}
		replay := &connector.Commit{Operation: "STREAMING UPDATE", Staged: files, Replayed: want[i : i+1]}
		if s, err = tab.Commit(t.Context(), replay, func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	appendCommits(t, tab, 1)
	for _, c := range []struct {
		what string
		want delta.Change
	}{
		{"replays", delta.Change{Back: map[string]int64{}, Replayed: want}},
		{"no further ones", delta.Change{Back: map[string]int64{}}},
	} {
		got, err := f.Follow(t.Context())
		if d := cmp.Diff(c.want, got); err != nil || d != "" {
			t.Errorf("%s: %v (-want +got):\n%s", c.what, err, d)
		}
	}
	if text := get(t, store, deltalog.CommitKey(2)); !strings.Contains(text,
		`"sluice":{"ranges":[],"replayed":[{"cluster":"c","topic":"orders","topic_id":"`+want[0].TopicID+`","partition":0,"offsets":"12-15,20"}]}`) {
		t.Error(text)
	}
	if text := get(t, store, deltalog.CommitKey(1)); strings.Contains(text, "replayed") {
		t.Error(text)
	}
}

// TestFollower_ReplaysOfOthers: if the commit of another program names dead letters in a form that Sluice does not
// write, the follower spends neither memory nor time on them. It takes the rows of that commit for those of another
// program.
func TestFollower_ReplaysOfOthers(t *testing.T) {
	store := objstore.NewMem()
	appendCommits(t, open(t, store), 1)
	f := delta.NewFollower(store, guard())
	if _, err := f.Follow(t.Context()); err != nil {
		t.Fatal(err)
	}
	of := func(topic, id string, partition int, at string) string {
		return fmt.Sprintf(`{"topic":%q,"topic_id":%q,"partition":%d,"offsets":%q}`, topic, id, partition, at)
	}
	changed := func(what string, others bool, replayed int, commits ...string) {
		t.Helper()
		for _, text := range commits {
			foreignInfo(t, store, `{"ranges":[],"replayed":[`+text+`]}`, deltalog.Add{Path: "x.parquet", Size: 1, DataChange: true})
		}
		got, err := f.Follow(t.Context())
		if err != nil || got.Others != others || got.Anew || len(got.Replayed) != replayed {
			t.Errorf("%s: %v, others %v, %d replayed", what, err, got.Others, len(got.Replayed))
		}
	}
	good := of("t", "-", 0, "1-50000")
	changed("as this program writes them", false, 1, good)
	changed("more than one commit may name", true, 0, good+","+of("t", "-", 1, "1"))
	changed("a huge run", true, 0, of("t", "-", 0, "0-9000000000000000000"))
	changed("huge runs whose sum overflows", true, 0, of("t", "-", 0, "0-9000000000000000000")+","+of("u", "-", 0, "0-9000000000000000000"))
	changed("no offsets", true, 0, of("t", "-", 0, ""))
	changed("no topic id", true, 0, of("t", "no", 0, "1"))
	changed("no topic", true, 0, of("", "-", 0, "1"))
	changed("no partition", true, 0, of("t", "-", -1, "1"))
	changed("offsets that descend", true, 0, of("t", "-", 0, "2,1"))
	changed("a good one among others", true, 1, of("t", "-", 0, "2,1"), of("t", "-", 0, "7"))
	long := of(strings.Repeat("t", 1<<20), "-", 0, "1")
	changed("long names", true, 3, long, long, long, long, long)
}
