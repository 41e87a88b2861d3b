//go:build lab

package delta_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/google/go-cmp/cmp"

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

// other runs the step of another program, which adds a column with this prefix.
func (g *growing) other(step int, prefix string, run func(args ...string) ([]byte, error)) {
	g.Helper()
	g.last, g.kind = fmt.Sprint(prefix, step), kindOf(step)
	if out, err := run("--table", g.dir, "--step", strconv.Itoa(step), "--type", g.kind); err != nil {
		g.Fatalf("step %d: %v: %s", step, err, out)
	}
	for i := range 3 {
		id := 1000*(step+1) + i
		g.expect(map[string]any{"id": id, g.last: valueOf(g.kind, id)})
	}
}

// check compares the rows that a reader prints with those that were written.
func (g *growing) check(reader string, out []byte, err error) {
	g.Helper()
	if err != nil {
		g.Fatalf("%s: %v: %s", reader, err, out)
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
	if d := cmp.Diff(want, got); d != "" {
		g.Errorf("%s (-want +got):\n%s", reader, d)
	}
	g.Logf("%s reads %d rows", reader, len(got))
}

func deltalake(t *testing.T) func(args ...string) ([]byte, error) {
	return func(args ...string) ([]byte, error) { return lab.Python(t.Context(), "oracle/evolve.py", args...) }
}

// grow lets Sluice and the other programs take turns in adding a column to a table, for a number of steps.
func grow(t *testing.T, steps int, others ...func(g *growing, step int)) *growing {
	t.Helper()
	g := &growing{T: t, dir: filepath.Join(t.TempDir(), "table")}
	store, err := objstore.NewLocal(t.Context(), g.dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = store.Close() })
	g.store = store
	for step := range steps {
		if turn := step % (len(others) + 1); turn > 0 {
			others[turn-1](g, step)
		} else {
			g.ours(step)
		}
	}
	for _, reader := range []string{"deltalake", "duckdb", "polars"} {
		out, err := deltalake(t)("--table", g.dir, "--read", reader)
		g.check(reader, out, err)
	}
	return g
}

// TestEvolutionLab: Sluice and deltalake take turns in adding a column, for 30 steps. Three readers then see each row
// with the values that it was written with.
func TestEvolutionLab(t *testing.T) {
	grow(t, 30, func(g *growing, step int) { g.other(step, "d", deltalake(g.T)) })
}
