package main

import (
	"fmt"
	"math/rand/v2"
	"strings"
)

// A testCase is a table to write and the rows that it must have.
type testCase struct {
	name    string
	checks  []int // the checks that the case is about, besides those that every table passes
	columns []column
	rows    [][]any // one value for each column
	// later are columns that another program adds to the table after half of the rows: whole columns, or fields of the
	// struct with the same name. The first half of the rows has null in them.
	later []column
	// partitionBy are columns and expressions, as in the configuration. Their computed columns are in computed.
	partitionBy []string
	computed    []computed
	arrow       bool // rows are built as Arrow arrays, because JSON cannot express their values
	commits     int
	// checkpointed is true if the table must have a checkpoint, which the writer makes in the background.
	checkpointed bool
}

// each returns rows with every special value of a kind in one column, once with nulls between them.
func each(k *kind) [][]any {
	rows := [][]any{{nil}}
	for _, v := range k.special {
		rows = append(rows, []any{v}, []any{nil})
	}
	return rows
}

// named are the cases that are the same in every run: at least one for each check on values.
func (r *random) named() []testCase {
	all := []testCase{r.nulls(), r.depth(20), r.wide(1000), r.rows(1), r.rows(30_000), r.megabyte(), r.structs(), r.arrays(), r.checkpoint(), r.evolved()}
	about := map[string]int{
		"double": 16, "float": 16, "bigint": 17, "int": 17, "smallint": 17, "tinyint": 17, "date": 19, "timestamp": 20, "timestamp_ntz": 20,
		"string": 22, "boolean": 15, "binary": 23,
	}
	for i := range r.kinds {
		k := &r.kinds[i]
		check := about[k.name]
		if strings.HasPrefix(k.name, "decimal") {
			check = 18
		}
		c := testCase{name: "every-" + strings.NewReplacer("(", "-", ",", "-", ")", "").Replace(k.name), checks: []int{check, 15}}
		c.columns, c.rows, c.arrow, c.commits = []column{{"c", typ{kind: k}, false}}, each(k), true, 1
		if check == 20 {
			c.checks = append(c.checks, 21)
		}
		all = append(all, c)
		// One file for each value: readers can skip a file only by bounds that are exact.
		c.name, c.commits = c.name+"-apart", len(k.special)
		c.rows = nil
		for _, v := range k.special {
			c.rows = append(c.rows, []any{v})
		}
		all = append(all, c)
	}
	if r.maps {
		all = append(all, r.mapsCase())
	}
	return append(all, r.partitioned()...)
}

func (r *random) kind(name string) typ {
	for i := range r.kinds {
		if r.kinds[i].name == name {
			return typ{kind: &r.kinds[i]}
		}
	}
	panic("no kind " + name)
}

func (r *random) nulls() testCase {
	c := testCase{name: "nulls", checks: []int{15, 34}, commits: 2}
	row := []any{}
	for i := range r.kinds {
		c.columns = append(c.columns, column{fmt.Sprint("c", i), typ{kind: &r.kinds[i]}, false})
		row = append(row, nil)
	}
	s := r.kind("string")
	c.columns = append(c.columns, column{"s", typ{fields: []column{{"f", s, false}}}, false}, column{"a", typ{element: &s}, false})
	row = append(row, nil, nil)
	c.rows = [][]any{row, row, row, row}
	return c
}

func (r *random) depth(n int) testCase {
	t, v := r.kind("string"), any("deep")
	for range n - 2 {
		t, v = typ{fields: []column{{"f", t, false}}}, []any{v}
	}
	return testCase{
		name: "depth", checks: []int{26}, columns: []column{{"c", t, false}}, rows: [][]any{{v}, {nil}, {[]any{nil}}}, commits: 1,
	}
}

func (r *random) wide(n int) testCase {
	c := testCase{name: "wide", checks: []int{27}, commits: 2}
	for i := range n {
		c.columns = append(c.columns, column{fmt.Sprint("c", i), typ{kind: &r.kinds[i%len(r.kinds)]}, false})
	}
	for range 6 {
		row := make([]any, n)
		for i := range row {
			if r.IntN(5) > 0 {
				row[i] = r.value(c.columns[i].typ, &habit{plain: true, special: .2})
			}
		}
		c.rows = append(c.rows, row)
	}
	return c
}

func (r *random) rows(n int) testCase {
	c := testCase{name: fmt.Sprint("rows-", n), checks: []int{29}, commits: 1}
	c.columns = []column{{"id", r.kind("bigint"), true}, {"name", r.kind("string"), false}}
	for i := range n {
		c.rows = append(c.rows, []any{int64(i), fmt.Sprintf("name %d", i*7919%n)})
	}
	return c
}

func (r *random) megabyte() testCase {
	long := strings.Repeat("漢字 and more; ", 1<<20/16)
	return testCase{
		name: "megabyte", checks: []int{22, 32}, columns: []column{{"c", r.kind("string"), false}},
		rows: [][]any{{long}, {long + "!"}, {"short"}}, commits: 1,
	}
}

func (r *random) structs() testCase {
	s, l := r.kind("string"), r.kind("bigint")
	t := typ{fields: []column{{"a", s, false}, {"b", typ{fields: []column{{"x", l, false}}}, false}}}
	return testCase{
		name: "structs", checks: []int{26, 34}, columns: []column{{"c", t, false}}, commits: 1,
		rows: [][]any{{nil}, {[]any{nil, nil}}, {[]any{nil, []any{nil}}}, {[]any{"v", []any{int64(7)}}}, {[]any{"", nil}}},
	}
}

func (r *random) arrays() testCase {
	s := r.kind("string")
	of := typ{element: &s}
	pair := typ{fields: []column{{"a", s, false}, {"b", of, false}}}
	return testCase{
		name: "arrays", checks: []int{24}, commits: 1,
		columns: []column{{"a", of, false}, {"aa", typ{element: &of}, false}, {"as", typ{element: &pair}, false}},
		rows: [][]any{
			{nil, nil, nil},
			{[]any{}, []any{}, []any{}},
			{[]any{nil}, []any{nil}, []any{nil}},
			{[]any{"x", nil, ""}, []any{[]any{}, []any{nil}, []any{"y"}}, []any{[]any{"z", nil}, []any{nil, []any{nil, "w"}}}},
		},
	}
}

func (r *random) mapsCase() testCase {
	s := r.kind("string")
	of := typ{fields: []column{{"x", s, false}}}
	return testCase{
		name: "maps", checks: []int{25}, commits: 1,
		columns: []column{{"m", typ{key: &s, element: &s}, false}, {"ms", typ{key: &s, element: &of}, false}},
		rows: [][]any{
			{nil, nil},
			{pairs{}, pairs{}},
			{pairs{{"k", nil}}, pairs{{"k", nil}}},
			{pairs{{"a", "1"}, {"", "2"}, {"A", nil}}, pairs{{"a", []any{nil}}, {"b", []any{"v"}}}},
		},
	}
}

func (r *random) checkpoint() testCase {
	c := testCase{name: "checkpoint", checks: []int{53, 54, 55, 62}, commits: 30, checkpointed: true}
	c.columns = []column{{"id", r.kind("bigint"), false}, {"name", r.kind("string"), false}, {"at", r.kind("timestamp"), false}}
	for i := range 90 {
		c.rows = append(c.rows, []any{int64(i), fmt.Sprint("n", i), int64(i) * 1_000_001})
	}
	return c
}

func (r *random) evolved() testCase {
	s, l := r.kind("string"), r.kind("bigint")
	inner := typ{fields: []column{{"a", s, false}, {"b", l, false}}}
	return testCase{
		name: "evolved", checks: []int{45}, commits: 4,
		columns: []column{{"id", l, false}, {"s", inner, false}, {"added", s, false}},
		later:   []column{{"added", s, false}, {"s", typ{fields: []column{{"b", l, false}}}, false}},
		rows: [][]any{
			{int64(1), []any{"x", nil}, nil},
			{int64(2), nil, nil},
			{int64(3), []any{nil, nil}, nil},
			{int64(4), []any{"y", nil}, nil},
			{int64(5), []any{"x", int64(5)}, "new"},
			{int64(6), nil, nil},
			{int64(7), []any{nil, int64(7)}, "é"},
			{nil, []any{"z", nil}, "new"},
		},
	}
}

// random returns case i of a seed. Its rows depend on nothing else.
func randomCase(seed, i uint64, kinds []kind, maps bool) testCase {
	r := &random{rand.New(rand.NewPCG(seed, i)), kinds, maps}
	c := testCase{name: fmt.Sprintf("random-%05d", i), commits: 1 + r.IntN(3), arrow: r.IntN(3) == 0}
	c.columns = r.columns()
	habits := make([]*habit, len(c.columns))
	for n := range habits {
		habits[n] = r.habit(!c.arrow)
	}
	n := []int{1, 2, 8, 40, 300}[r.IntN(5)]
	if n < 40 && r.IntN(25) == 0 {
		c.commits = 12 // a checkpoint is due after ten commits
	}
	for range n {
		row := make([]any, len(c.columns))
		for k, col := range c.columns {
			row[k] = r.column(col, habits[k])
		}
		c.rows = append(c.rows, row)
	}
	if n <= 40 && r.IntN(3) > 0 {
		r.partition(&c)
	}
	return c
}
