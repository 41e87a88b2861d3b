//go:build lab

package scan_test

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
	"sluice/test/lab"
)

// strange is a row of a table that the program deltalake wrote.
type strange struct {
	ID     int64   `json:"id"`
	Day    *string `json:"day"`
	Name   *string `json:"name"`
	At     int64   `json:"at"`
	Local  string  `json:"local"`
	Price  float64 `json:"price"`
	Late   *string `json:"late"`
	Nested *string `json:"nested"`
}

// TestDeltalakeLab: the program deltalake writes a table that is partitioned, compacted, has deleted rows, and got a
// column later. A scan reads the same rows as deltalake does.
func TestDeltalakeLab(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "table")
	out, err := lab.Python(t.Context(), "oracle/foreign.py", "--table", dir)
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	want := map[int64]strange{}
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var s strange
		if err := lines.Decode(&s); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
		want[s.ID] = s
	}
	if len(want) != 6*300-170+300+50 {
		t.Fatalf("deltalake reads %d rows", len(want))
	}
	store, err := objstore.NewLocal(t.Context(), dir)
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	state, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	read := func(q scan.Query) map[int64]strange {
		t.Helper()
		got := map[int64]strange{}
		q.Columns = [][]string{{"id"}, {"day"}, {"name"}, {schema.KafkaTimestamp}, {"local"}, {"price"}, {"late"}, {"nested", "a", "b"}}
		err := scan.Run(t.Context(), store, state, q, func(r scan.Rows) error {
			text := func(column, i int) *string {
				if c := r.Batch.Column(column); c.IsValid(i) {
					s := string([]byte(c.ValueStr(i)))
					return &s
				}
				return nil
			}
			for i := range int(r.Batch.NumRows()) {
				s := strange{
					ID: r.Batch.Column(0).(*array.Int64).Value(i), Day: text(1, i), Name: text(2, i),
					At:    int64(r.Batch.Column(3).(*array.Timestamp).Value(i)),
					Local: r.Batch.Column(4).(*array.Timestamp).Value(i).ToTime(arrow.Microsecond).Format("2006-01-02T15:04:05.999999"),
					Price: float64(r.Batch.Column(5).(*array.Float32).Value(i)), Late: text(6, i), Nested: text(7, i),
				}
				if _, twice := got[s.ID]; twice {
					t.Errorf("row %d comes twice", s.ID)
				}
				got[s.ID] = s
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		return got
	}
	if diff := cmp.Diff(want, read(scan.Query{})); diff != "" {
		t.Error(diff)
	}
	since := time.UnixMicro(want[2000].At)
	some := read(scan.Query{Where: []scan.Where{{Topic: "orders", Partition: 2000 % 3, From: 2000, Next: 2001}}, Since: since})
	if diff := cmp.Diff(want[2000], some[2000]); diff != "" || len(some) > len(want)/2 {
		t.Errorf("one row, among %d that were read: %s", len(some), diff)
	}
}
