//go:build lab

package main

import (
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/test/lab"
)

// TestEvolution_Page runs the Python of docs/schema.md against the table of a member: it adds a column, rewrites the
// table with another type, and puts back the name of a field. After each of them the member continues.
func TestEvolution_Page(t *testing.T) {
	page := blocks(read(t, "../../docs/schema.md"))
	l := newLake(t, "topics: {sales: {}}")
	l.Create("sales", 1)
	e := &evolving{lake: l, table: "sales"}
	python := func(with string) {
		t.Helper()
		i := slices.IndexFunc(page, func(b block) bool { return b.lang == "python" && strings.Contains(b.text, with) })
		if i < 0 {
			t.Fatalf("no block of Python has %s", with)
		}
		if out, err := lab.Python(t.Context(), "oracle/block.py", l.Dir, write(t, page[i].text)); err != nil {
			t.Fatalf("%v: %s", err, out)
		}
	}
	held := func(want, ddl string, records ...string) {
		t.Helper()
		if details := strings.Join(e.runs(ddl, records...), "\n"); !strings.HasPrefix(details, want) || want == "" && details != "" {
			t.Errorf("%s: held: %q, want %q", ddl, details, want)
		}
	}
	held("", "id int, item string", `{"id":1,"item":"tea","channel":"web"}`)
	python("alter.add_columns")
	held("", "id int, item string", `{"id":2,"item":"cup","channel":"web"}`)
	held("schema_conflict: column id is int in the table", "id string, item string", `{"id":"three","item":"pot","channel":"shop"}`)
	python("write_deltalake(")
	held("", "id string, item string")
	const renamed = "id string, item string, `unit price` double"
	held("", renamed, `{"id":"four","unit price":1.5}`)
	e.alter(`{"sluice.field":"unit price"}`, `{}`)
	held("schema_conflict: column unit_price is filled from the field", renamed, `{"id":"five","unit price":2.5}`)
	python("alter.set_column_metadata")
	held("", renamed)
	var got []string
	for _, row := range l.values(filepath.Join(l.Dir, "lake", "sales"), strings.Fields("_kafka_offset id item channel unit_price")) {
		got = append(got, strings.Join(row, " "))
	}
	slices.Sort(got)
	want := []string{"0 1 tea null null", "1 2 cup web null", "2 three pot shop null", "3 four null null 1.5", "4 five null null 2.5"}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
}
