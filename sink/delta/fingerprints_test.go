package delta_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

var byOrder = idempotency.Identity{By: idempotency.ByField, Name: "order_id"}

// recallTable is a table with rows that a decoder made, in the order of their offsets.
type recallTable struct {
	*delta.Table
	tb       testing.TB
	builder  connector.Builder
	snapshot *connector.Snapshot
	topic    connector.Partition
}

func openRecallTable(tb testing.TB, store objstore.Store) *recallTable {
	tb.Helper()
	columns, err := schema.ParseDDL("order_id string not null, n bigint")
	if err != nil {
		tb.Fatal(err)
	}
	table, err := delta.Open(store, delta.Options{Pipeline: "p", Engine: "test", Schema: columns, Guard: guard()})
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(table.Close)
	t := &recallTable{Table: table, tb: tb, topic: connector.Partition{Cluster: "c", Topic: "orders", ID: 3}}
	if t.snapshot, err = table.Load(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	if t.builder, err = (decode.JSON{Identity: byOrder}).Builder(t.snapshot.Schema); err != nil {
		tb.Fatal(err)
	}
	return t
}

// add commits the records [from, next) of a partition in row groups of at most chunk rows, and returns the fingerprint
// entries of the rows. The record at offset o has the timestamp at(o).
func (t *recallTable) add(id int32, from, next int64, chunk int, at func(int64) int64) (entries []idempotency.Entry) {
	t.tb.Helper()
	p := t.topic
	p.ID = id
	var pieces []connector.Piece
	var all []arrow.RecordBatch
	seal := func() {
		if rows := t.builder.Seal(); rows != nil {
			all = append(all, rows)
			pieces = append(pieces, connector.Piece{Rows: rows, To: rows.NumRows()})
			entries = append(entries, t.builder.(connector.IdentityBuilder).Entries()...)
		}
	}
	for o := from; o < next; o++ {
		if err := t.builder.Add(p, &connector.Record{Offset: o, Timestamp: at(o), Value: fmt.Appendf(nil, `{"order_id":"order-%09d","n":%d}`, o, o)}); err != nil {
			t.tb.Fatal(err)
		}
		if t.builder.Rows() == chunk {
			seal()
		}
	}
	seal()
	staged, err := t.Stage(t.tb.Context(), t.snapshot, "batch", pieces, func(int, int64) {})
	if err != nil {
		t.tb.Fatal(err)
	}
	for _, rows := range all {
		rows.Release()
	}
	c := &connector.Commit{Operation: "STREAMING UPDATE", Staged: staged, Txns: []connector.Txn{{AppID: p.AppID("p"), Version: next}}}
	if t.snapshot, err = t.Commit(t.tb.Context(), c, func(*connector.Snapshot) error { return nil }); err != nil {
		t.tb.Fatal(err)
	}
	return entries
}

// recalled returns the entries of partition id that ReadFingerprints yields for a query.
func (t *recallTable) recalled(id int32, q connector.FingerprintQuery) (entries []idempotency.Entry) {
	t.tb.Helper()
	read, err := t.ReadFingerprints(t.snapshot, q)
	if err != nil {
		t.tb.Fatal(err)
	}
	err = read(t.tb.Context(), func(r connector.PastRows) error {
		if r.Topic == t.topic.Topic && r.Partition == id {
			entries = append(entries, r.Entries...)
		}
		if age := time.Since(time.UnixMilli(r.Written)); age < -time.Second || age > time.Hour {
			t.tb.Errorf("written %v ago", age)
		}
		return nil
	})
	if err != nil {
		t.tb.Fatal(err)
	}
	slices.SortFunc(entries, func(a, b idempotency.Entry) int { return int(a.Offset - b.Offset) })
	return entries
}

// TestReadFingerprints_CreatedAgain: a topic was deleted and created again under the same name. If the rows have a
// topic id, the rows of the earlier topic are not in the window of the new one. If they have none, they are in it.
func TestReadFingerprints_CreatedAgain(t *testing.T) {
	for _, named := range []bool{true, false} {
		store := objstore.NewMem()
		if named {
			table, err := delta.Open(store, delta.Options{Pipeline: "p", Engine: "test", Schema: parse(t, "order_id string not null, n bigint").WithTopicID(), Guard: guard()})
			if err != nil {
				t.Fatal(err)
			}
			if _, err := table.Load(t.Context()); err != nil {
				t.Fatal(err)
			}
			table.Close()
		}
		table := openRecallTable(t, store)
		at := func(o int64) int64 { return time.Now().UnixMilli() - 1000 + o }
		table.topic.TopicID = idempotency.TopicID{1}
		want := table.add(3, 0, 20, 30, at)
		table.topic.TopicID = idempotency.TopicID{2}
		second := table.add(3, 0, 30, 10, at)
		if named {
			want = second
		} else {
			want = append(want, second...)
		}
		got := table.recalled(3, connector.FingerprintQuery{Identity: byOrder, Claims: map[connector.Partition]connector.Offsets{table.topic: {Next: 30}}})
		if len(got) != len(want) {
			t.Errorf("with topic ids %v: %d entries, want %d", named, len(got), len(want))
		}
	}
}

// TestPlaces_TopicIDs: places and offsets have the topic id of a row. They have none for rows from before the table had
// the column.
func TestPlaces_TopicIDs(t *testing.T) {
	store := objstore.NewMem()
	table := openRecallTable(t, store)
	at := func(int64) int64 { return 1 }
	table.topic.TopicID = idempotency.TopicID{1}
	table.add(3, 0, 2, 30, at)
	m := alter(t, store, "order_id string not null, n bigint")
	m.SchemaString = parse(t, "order_id string not null, n bigint").WithTopicID().WithKafkaColumns().DeltaJSON()
	foreign(t, store, m)
	table.Close()
	table = openRecallTable(t, store)
	for id := range byte(2) {
		table.topic.TopicID = idempotency.TopicID{1 + id}
		table.add(3, int64(id), 3, 30, at)
	}
	table.topic.TopicID = idempotency.TopicID{}
	table.add(3, 7, 8, 30, at)
	want := []string{"- 0", "- 1", "- 7", "AQAAAAAAAAAAAAAAAAAAAA 0", "AQAAAAAAAAAAAAAAAAAAAA 1", "AQAAAAAAAAAAAAAAAAAAAA 2", "AgAAAAAAAAAAAAAAAAAAAA 1", "AgAAAAAAAAAAAAAAAAAAAA 2"}
	state, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	var places, offsets []string
	line := func(id string, offset int64) string { return fmt.Sprint(cmp.Or(id, "-"), " ", offset) }
	if err := delta.Places(t.Context(), store, state, []scan.Where{{Topic: "orders", Partition: 3, Next: 100}}, func(p scan.Place) error {
		places = append(places, line(p.TopicID, p.Offset))
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	for f, err := range deltalog.Files(t.Context(), store, state) {
		if err != nil {
			t.Fatal(err)
		}
		for row, err := range delta.Offsets(t.Context(), store, f) {
			if err != nil {
				t.Fatal(err)
			}
			offsets = append(offsets, line(row.TopicID, row.Offset))
		}
	}
	slices.Sort(places)
	slices.Sort(offsets)
	if !slices.Equal(places, want) || !slices.Equal(offsets, want) {
		t.Errorf("places  %q\noffsets %q\nwant    %q", places, offsets, want)
	}
}

func TestReadFingerprints_EqualsLanes(t *testing.T) {
	table := openRecallTable(t, objstore.NewMem())
	const hour = int64(3600_000)
	start := time.Now().UnixMilli() - 100*hour
	at := func(o int64) int64 { return start + o*hour/10 }
	want := table.add(3, 0, 100, 30, at)
	table.add(4, 0, 100, 30, at)
	want = append(want, table.add(3, 100, 200, 30, at)...)
	claim := func(from, next int64) map[connector.Partition]connector.Offsets {
		return map[connector.Partition]connector.Offsets{table.topic: {From: from, Next: next}}
	}
	if got := table.recalled(3, connector.FingerprintQuery{Identity: byOrder, Claims: claim(0, 200)}); !slices.Equal(got, want) {
		t.Errorf("all: %d entries, want %d", len(got), len(want))
	}
	for _, e := range table.recalled(3, connector.FingerprintQuery{Identity: byOrder, Claims: claim(0, 200), IDs: true}) {
		if id := fmt.Sprintf("order-%09d", e.Offset); e.ID != id {
			t.Fatalf("the id of offset %d is %q, want %q", e.Offset, e.ID, id)
		}
	}
	has := func(what string, got []idempotency.Entry, first, last int64) {
		t.Helper()
		if len(got) == 0 || got[0].Offset > first || got[len(got)-1].Offset < last {
			t.Errorf("%s: %d entries", what, len(got))
		}
		if len(got) > 150 {
			t.Errorf("%s: %d entries, nothing was passed over", what, len(got))
		}
	}
	has("by offset", table.recalled(3, connector.FingerprintQuery{Identity: byOrder, Claims: claim(110, 120)}), 110, 119)
	has("by time", table.recalled(3, connector.FingerprintQuery{Identity: byOrder, Claims: claim(0, 200), Since: at(150)}), 150, 199)

	_, err := table.ReadFingerprints(table.snapshot, connector.FingerprintQuery{Identity: idempotency.Identity{By: idempotency.ByContent}, Claims: claim(0, 200)})
	held := (*hold.Error)(nil)
	if !errors.As(err, &held) || held.Reason != hold.SchemaConflict {
		t.Errorf("an identity without its column: %v", err)
	}
	read, err := table.ReadFingerprints(table.snapshot, connector.FingerprintQuery{Identity: byOrder, Claims: claim(0, 200)})
	if err != nil {
		t.Fatal(err)
	}
	stop := errors.New("enough")
	if err := read(t.Context(), func(connector.PastRows) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("the error of each: %v", err)
	}
}

// BenchmarkReadFingerprints_TenMillion measures a member that takes over a partition with ten million fingerprints in
// its window: it reads them from a local table and stores them.
func BenchmarkReadFingerprints_TenMillion(b *testing.B) {
	store, err := objstore.NewLocal(b.Context(), b.TempDir())
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = store.Close() })
	table := openRecallTable(b, store)
	const n, each = int64(10_000_000), int64(500_000)
	start := time.Now().UnixMilli() - 86_400_000
	for from := int64(0); from < n; from += each {
		table.add(3, from, from+each, 65_000, func(o int64) int64 { return start + o*86_400_000/n })
	}
	scope := idempotency.Scope{Pipeline: "p", Partition: table.topic}
	for b.Loop() {
		memory := idempotency.NewMemory(1<<40, nil)
		read, err := table.ReadFingerprints(table.snapshot, connector.FingerprintQuery{
			Identity: byOrder, Claims: map[connector.Partition]connector.Offsets{table.topic: {Next: n}}, Since: start,
		})
		if err != nil {
			b.Fatal(err)
		}
		err = read(context.WithoutCancel(b.Context()), func(r connector.PastRows) error {
			return memory.Remember(b.Context(), scope, 0, 0, slices.Values(r.Entries))
		})
		if s := memory.Stats(); err != nil || s.Entries != n {
			b.Fatalf("%d entries, %v", s.Entries, err)
		}
	}
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N), "rebuild-s")
}
