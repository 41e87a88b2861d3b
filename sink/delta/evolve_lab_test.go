//go:build lab

package delta_test

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/sink/delta/objstore"
	"sluice/test/lab"
)

// growing is a table to which several programs add columns, and the rows that it must have.
type growing struct {
	*testing.T
	dir   string
	store objstore.Store
	want  []string
	last  string // the column that the last step of another program added, and its type
	kind  string
}

// kindOf returns the type of the column of a step, in DDL.
func kindOf(step int) string { return []string{"string", "bigint", "double"}[step/3%3] }

func valueOf(kind string, id int) any {
	switch kind {
	case "string":
		return "v" + strconv.Itoa(id)
	case "double":
		return float64(id) / 2
	}
	return id
}

func (g *growing) expect(row map[string]any) {
	g.Helper()
	text, err := json.Marshal(row)
	if err != nil {
		g.Fatal(err)
	}
	g.want = append(g.want, string(text))
}

// ours adds the column oN of a step with three rows, as a member does whose configuration declares it; every third time
// also a field of the struct s. The rows also have the column that another program has added last.
func (g *growing) ours(step int) {
	g.Helper()
	columns := []string{fmt.Sprintf("o%d %s", step, kindOf(step))}
	field := fmt.Sprint("f", step)
	nested := step%2 == 0
	if nested {
		columns = append(columns, fmt.Sprintf("s struct<%s:bigint>", field))
	}
	tab := process(g.T, g.store, declares(columns...))
	defer tab.Close()
	s := load(g.T, tab)
	builder, err := decode.JSON{}.Builder(s.Schema)
	if err != nil {
		g.Fatal(err)
	}
	at := s.Positions[app(0)]
	for i := range 3 {
		id := 1000*(step+1) + i
		row := map[string]any{"id": id, "name": "n", fmt.Sprint("o", step): valueOf(kindOf(step), id)}
		if nested {
			row["s"] = map[string]any{field: id}
		}
		if g.last != "" {
			row[g.last] = valueOf(g.kind, id)
		}
		g.expect(row)
		value, err := json.Marshal(row)
		if err != nil {
			g.Fatal(err)
		}
		p := connector.Partition{Cluster: "c", Topic: "orders"}
		if err := builder.Add(p, &connector.Record{Offset: at + int64(i), Value: value}); err != nil {
			g.Fatal(err)
		}
	}
	c := rowRange{0, at, at + 3}
	files, err := tab.Stage(g.Context(), s, "b", []connector.Piece{{Rows: builder.Seal(), To: 3}}, nil)
	if err != nil {
		g.Fatal(err)
	}
	if _, err := tab.Commit(g.Context(), c.commit(files), c.pre); err != nil {
		g.Fatal(err)
	}
}

// other lets another program do the step: it adds a column with this prefix, and rows.
func (g *growing) other(step int, prefix string, program *lab.Script) {
	g.Helper()
	g.last, g.kind = fmt.Sprint(prefix, step), kindOf(step)
	if _, err := program.Ask(map[string]any{"step": step, "type": g.kind}); err != nil {
		g.Fatalf("step %d: %v", step, err)
	}
	for i := range 3 {
		id := 1000*(step+1) + i
		g.expect(map[string]any{"id": id, g.last: valueOf(g.kind, id)})
	}
}

// check compares the rows that a reader of a program sees with those that were written.
func (g *growing) check(reader string, program *lab.Script) {
	g.Helper()
	out, err := program.Ask(map[string]string{"read": reader})
	if err != nil {
		g.Fatalf("%s: %v", reader, err)
	}
	var got []string
	for lines := json.NewDecoder(bytes.NewReader(out)); lines.More(); {
		var row map[string]any
		if err := lines.Decode(&row); err != nil {
			g.Fatalf("%s: %v: %s", reader, err, out)
		}
		text, err := json.Marshal(row)
		if err != nil {
			g.Fatal(err)
		}
		got = append(got, string(text))
	}
	slices.Sort(got)
	want := slices.Sorted(slices.Values(g.want))
	if d := gocmp.Diff(want, got); d != "" {
		g.Errorf("%s (-want +got):\n%s", reader, d)
	}
	g.Logf("%s reads %d rows", reader, len(got))
}

// grow lets Sluice, deltalake and, if spark is true, Spark take turns in adding a column to a table, for 30 steps. Then
// each reader must see each row with the values that it was written with.
func grow(t *testing.T, spark bool) {
	t.Helper()
	g := &growing{T: t, dir: filepath.Join(t.TempDir(), "table")}
	store, err := objstore.NewLocal(t.Context(), g.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	g.store = store
	python, err := lab.StartPython(t.Context(), "oracle/evolve.py", g.dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = python.Close() }() // after a failure it is an error that the failure explains
	turns := []func(step int){g.ours, func(step int) { g.other(step, "d", python) }}
	readers := []string{"deltalake", "duckdb", "polars"}
	programs := map[string]*lab.Script{}
	if spark {
		session, err := lab.StartSpark(t.Context(), "oracle/evolve_spark.py", g.dir)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = session.Close() }()
		turns = append(turns, func(step int) { g.other(step, "p", session) })
		readers, programs["spark"] = append(readers, "spark"), session
	}
	for step := range 30 {
		turns[step%len(turns)](step)
	}
	for _, reader := range readers {
		g.check(reader, cmp.Or(programs[reader], python))
	}
}

// TestEvolution: Sluice and deltalake take turns in adding a column. Three readers see the rows of both.
func TestEvolution(t *testing.T) { grow(t, false) }
