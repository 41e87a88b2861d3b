package main

import (
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector/decode/decodetest"
	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
)

// sendValues produces values to a partition.
func (l *lake) sendValues(topic string, partition int32, values ...string) {
	l.T.Helper()
	var records []*kgo.Record
	for _, v := range values {
		records = append(records, &kgo.Record{Topic: topic, Partition: partition, Value: []byte(v)})
	}
	if err := l.Client.ProduceSync(l.T.Context(), records...).FirstErr(); err != nil {
		l.T.Fatal(err)
	}
}

// readBack returns the schema of a table, and its records as the rows have them, sorted: see [decodetest.ReadBack].
func (l *lake) readBack(table string) (s *schema.Schema, records []string) {
	l.T.Helper()
	store, err := objstore.NewLocal(l.T.Context(), filepath.Join(l.Dir, "lake", table))
	if err != nil {
		l.T.Fatal(err)
	}
	defer store.Close()
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	if s, err = schema.FromDelta([]byte(state.Metadata.SchemaString)); err != nil {
		l.T.Fatal(err)
	}
	for f, err := range deltalog.Files(l.T.Context(), store, state) {
		if err != nil {
			l.T.Fatal(err)
		}
		err := deltatest.Batches(l.T.Context(), store, deltalog.Key(f.Path), func(batch arrow.RecordBatch) error {
			rows, err := decodetest.ReadBack(s, batch)
			records = append(records, rows...)
			return err
		})
		if err != nil {
			l.T.Fatal(err)
		}
	}
	slices.Sort(records)
	return s, records
}

// valueColumns returns the columns of a table that the records fill, as DDL.
func valueColumns(s *schema.Schema) (all []string) {
	for _, f := range s.Fields() {
		if !schema.IsKafkaColumn(f.Name) {
			all = append(all, f.DDL())
		}
	}
	slices.Sort(all)
	return all
}

func canonical(t *testing.T, records []string) (all []string) {
	t.Helper()
	for _, r := range records {
		c, err := decodetest.Canonical([]byte(r))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, c)
	}
	slices.Sort(all)
	return all
}

const inferring = `topics: {orders: {schema: infer}}
defaults: {commit: {every: 1h}, bad_records: hold}` // each run commits once, when it has read all

// TestInfer: without a schema the columns come from the records, each in the commit that first has a value for it. Later
// values that do not fit are in the column _rescued, which the table has only from then on.
func TestInfer(t *testing.T) {
	t.Parallel()
	l := newLake(t, inferring)
	l.Create("orders", 1)
	sent := []string{`{"id":1,"item":"tea","tags":["a"],"o":{"x":1.5},"nothing":null}`, `{"id":2,"paid":true,"o":{"y":"z"}}`}
	check := func(want ...string) {
		t.Helper()
		l.runs(0, "run", "--until-current")
		s, records := l.readBack("orders")
		if d := cmp.Diff(want, valueColumns(s)); d != "" {
			t.Errorf("columns (-want +got):\n%s", d)
		}
		if d := cmp.Diff(canonical(t, sent), records); d != "" {
			t.Errorf("records (-want +got):\n%s", d)
		}
	}
	l.sendValues("orders", 0, sent...)
	check("id bigint", "item string", "o struct<x:double, y:string>", "paid boolean", "tags array<string>")

	more := []string{`{"id":3,"o":{"z":1},"list":[{"a":1},{"a":2}]}`, `{"id":4,"unit price":9.5}`}
	sent = append(sent, more...)
	l.sendValues("orders", 0, more...)
	check("id bigint", "item string", "list array<struct<a:bigint>>", "o struct<x:double, y:string, z:bigint>", "paid boolean", "tags array<string>", "unit_price double")

	more = []string{`{"id":"five","list":[{"a":1,"b":null},{"b":true}],"mixed":1}`, `{"id":6,"tags":"b","mixed":"x","o":{"x":"wide"}}`}
	sent = append(sent, more...)
	l.sendValues("orders", 0, more...)
	check("_rescued string comment 'fields of the record that have no column, by path'", "id bigint", "item string", "list array<struct<a:bigint, b:boolean>>", "mixed string",
		"o struct<x:double, y:string, z:bigint>", "paid boolean", "tags array<string>", "unit_price double")
}

// TestInfer_RandomRecords: random records from three partitions, in many small batches, are all in the table.
func TestInfer_RandomRecords(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	l := newLake(t, strings.Replace(inferring, "every: 1h", "every: 100ms, rows: 20", 1))
	l.Create("orders", 3)
	var sent []string
	for range 4 {
		for p := range int32(3) {
			var values []string
			for range 40 {
				values = append(values, string(decodetest.RandomRecord(r)))
			}
			l.sendValues("orders", p, values...)
			sent = append(sent, values...)
		}
		l.runs(0, "run", "--until-current")
	}
	if _, records := l.readBack("orders"); !slices.Equal(records, canonical(t, sent)) {
		t.Errorf("seed %d: %s", seed, cmp.Diff(canonical(t, sent), records))
	}
}

// TestInfer_FourMembers: four members that write one table at once find columns of the same names in their records. Each
// record is in the table once, with all its values.
func TestInfer_FourMembers(t *testing.T) {
	t.Parallel()
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	l := newLake(t, strings.Replace(inferring, "every: 1h", "every: 100ms, rows: 30", 1))
	l.Create("orders", 8)
	for range 4 {
		l.start()
	}
	var sent []string
	for range 5 {
		for p := range int32(8) {
			var values []string
			for range 20 {
				values = append(values, string(decodetest.RandomRecord(r)))
			}
			l.sendValues("orders", p, values...)
			sent = append(sent, values...)
		}
	}
	l.Await("all records are in the table", func() bool {
		n := 0
		for _, offsets := range l.Rows("orders") {
			n += len(offsets)
		}
		return n >= len(sent)
	})
	if _, records := l.readBack("orders"); !slices.Equal(records, canonical(t, sent)) {
		t.Errorf("seed %d: %s", seed, cmp.Diff(canonical(t, sent), records))
	}
}

// TestInfer_DeclaredColumns: with declared columns and unknown_fields: add, a value that does not fit a declared column is
// a dead letter. Once the column is no longer declared, a replay makes a row of it, with columns for its new fields.
func TestInfer_DeclaredColumns(t *testing.T) {
	t.Parallel()
	l := newLake(t, `topics: {orders: {}}
defaults: {schema: "n int, m int", unknown_fields: add, commit: {every: 1h}, bad_records: dead_letter}`)
	l.Create("orders", 1)
	l.sendValues("orders", 0, `{"n":1,"new":"x"}`, `{"n":"one","late":{"z":[1]},"new":2}`)
	l.runs(0, "run", "--until-current")
	s, records := l.readBack("orders")
	if d := cmp.Diff([]string{"m int", "n int", "new string"}, valueColumns(s)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{`{"n":"1","new":"x"}`}, records); d != "" {
		t.Error(d)
	}
	if out, _ := l.runs(0, "deadletters", "list"); !strings.Contains(out, "type_mismatch") {
		t.Error(out)
	}
	if out, _ := l.runs(0, "table", "schema", "diff"); strings.Contains(out, "new") {
		t.Errorf("inferred columns are a difference: %s", out)
	}
	infers := l.as(`schema: "n int, m int"`, `schema: "m int"`)
	infers.runs(0, "deadletters", "replay-all", "orders", "--reason", "n may be text", "--operator", "ada", "--yes")
	s, records = infers.readBack("orders")
	if d := cmp.Diff([]string{"_rescued string comment 'fields of the record that have no column, by path'", "late struct<z:array<bigint>>", "m int", "n int", "new string"}, valueColumns(s)); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff([]string{`{"late":{"z":["1"]},"n":"one","new":"2"}`, `{"n":"1","new":"x"}`}, records); d != "" {
		t.Error(d)
	}
	infers.runs(0, "check")
	if out, _ := infers.as(`schema: "m int"`, `schema: infer`).runs(0, "validate"); !strings.Contains(out, "columns: inferred from the records of orders") {
		t.Error(out)
	}
}
