package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestUnknownFields_Rescue: a table that was created without the column gets it with the first commit after the change of
// the configuration; earlier rows have null there. A new table has the column from the start. Nothing of a record is
// lost, and bad records stay dead letters.
func TestUnknownFields_Rescue(t *testing.T) {
	t.Parallel()
	l := newLake(t, `topics: {orders: {unknown_fields: ignore, bad_records: dead_letter}, users: {unknown_fields: rescue, bad_records: dead_letter}}`)
	l.Create("orders", 1)
	l.Create("users", 1)
	produce := func(topic string, values ...string) {
		t.Helper()
		for _, v := range values {
			if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Partition: 0, Value: []byte(v)}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	has := func(l *lake, table string, want ...[]string) {
		t.Helper()
		got := l.values(filepath.Join(l.Dir, "lake", table), []string{"_kafka_offset", "n", "_rescued"})
		slices.SortFunc(got, func(x, y []string) int { return strings.Compare(x[0], y[0]) })
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("table %s (-want +got):\n%s", table, d)
		}
	}
	produce("orders", `{"n":1,"lost":1}`)
	produce("users", `{"n":1,"new":{"a":[1, "x"]}}`, `{"n":"bad","new":1}`, `{"n":2}`)
	l.runs(0, "run", "--until-current")
	has(l, "users", []string{"0", "1", `{"new":{"a":[1, "x"]}}`}, []string{"2", "2", "null"})
	if out, _ := l.runs(0, "deadletters", "list"); !strings.Contains(out, "type_mismatch") {
		t.Error(out)
	}

	keeps := l.as("unknown_fields: ignore", "unknown_fields: rescue")
	produce("orders", `{"n":2}`, `{"new":1.50}`)
	keeps.runs(0, "run", "--until-current")
	has(keeps, "orders", []string{"0", "1", "null"}, []string{"1", "2", "null"}, []string{"2", "null", `{"new":1.50}`})

	// With the key back, the table keeps the column, which nothing fills.
	produce("orders", `{"n":3,"new":1}`)
	l.runs(0, "run", "--until-current")
	has(l, "orders", []string{"0", "1", "null"}, []string{"1", "2", "null"}, []string{"2", "null", `{"new":1.50}`}, []string{"3", "3", "null"})
}
