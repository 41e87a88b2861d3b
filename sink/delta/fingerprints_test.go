package delta_test

import (
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
	"sluice/sink/delta/objstore"
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

// add commits the records [from, next) of a partition, in row groups of chunk rows, and returns their entries. The
// record at offset o has the timestamp at(o).
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
