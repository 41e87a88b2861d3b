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
	// later are columns that the table gets after half of the rows: whole columns, or fields of the struct with the same
	// name. They are the last ones. The first half of the rows has null in them.
	later []column
	// foreign is true if another program adds the later columns; otherwise the writer does.
	foreign bool
	// words are those of metadata_columns.
	words []string
	// records has what a record has beside its value, for each row. It is empty if no column shows it.
	records []extra
	// rescue is true if records may have fields without a column, which the column _rescued keeps.
	rescue bool
	// excluded are the paths of columns without statistics.
	excluded   [][]string
	properties map[string]string
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
	all := []testCase{r.nulls(), r.depth(20), r.wide(1000), r.rows(1), r.rows(30_000), r.megabyte(), r.structs(), r.arrays(), r.checkpoint(), r.evolved(), r.farDates(), r.farTimes()}
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
		c.columns, c.rows, c.arrow, c.commits = []column{col("c", typ{kind: k})}, each(k), true, 1
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
		c.columns = append(c.columns, col(fmt.Sprint("c", i), typ{kind: &r.kinds[i]}))
		row = append(row, nil)
	}
	s := r.kind("string")
	c.columns = append(c.columns, col("s", typ{fields: []column{col("f", s)}}), col("a", typ{element: &s}))
	row = append(row, nil, nil)
	c.rows = [][]any{row, row, row, row}
	return c
}

func (r *random) depth(n int) testCase {
	t, v := r.kind("string"), any("deep")
	for range n - 2 {
		t, v = typ{fields: []column{col("f", t)}}, []any{v}
	}
	return testCase{
		name: "depth", checks: []int{26}, columns: []column{col("c", t)}, rows: [][]any{{v}, {nil}, {[]any{nil}}}, commits: 1,
	}
}

func (r *random) wide(n int) testCase {
	c := testCase{name: "wide", checks: []int{27}, commits: 2}
	for i := range n {
		c.columns = append(c.columns, col(fmt.Sprint("c", i), typ{kind: &r.kinds[i%len(r.kinds)]}))
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
	c.columns = []column{{name: "id", typ: r.kind("bigint"), required: true}, col("name", r.kind("string"))}
	for i := range n {
		c.rows = append(c.rows, []any{int64(i), fmt.Sprintf("name %d", i*7919%n)})
	}
	return c
}

func (r *random) megabyte() testCase {
	long := strings.Repeat("漢字 and more; ", 1<<20/16)
	return testCase{
		name: "megabyte", checks: []int{22, 32}, columns: []column{col("c", r.kind("string"))},
		rows: [][]any{{long}, {long + "!"}, {"short"}}, commits: 1,
	}
}

func (r *random) structs() testCase {
	s, l := r.kind("string"), r.kind("bigint")
	t := typ{fields: []column{col("a", s), col("b", typ{fields: []column{col("x", l)}})}}
	return testCase{
		name: "structs", checks: []int{26, 34}, columns: []column{col("c", t)}, commits: 1,
		rows: [][]any{{nil}, {[]any{nil, nil}}, {[]any{nil, []any{nil}}}, {[]any{"v", []any{int64(7)}}}, {[]any{"", nil}}},
	}
}

func (r *random) arrays() testCase {
	s := r.kind("string")
	of := typ{element: &s}
	pair := typ{fields: []column{col("a", s), col("b", of)}}
	return testCase{
		name: "arrays", checks: []int{24}, commits: 1,
		columns: []column{col("a", of), col("aa", typ{element: &of}), col("as", typ{element: &pair})},
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
	of := typ{fields: []column{col("x", s)}}
	return testCase{
		name: "maps", checks: []int{25}, commits: 1,
		columns: []column{col("m", typ{key: &s, element: &s}), col("ms", typ{key: &s, element: &of})},
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
	c.columns = []column{col("id", r.kind("bigint")), col("name", r.kind("string")), col("at", r.kind("timestamp"))}
	for i := range 90 {
		c.rows = append(c.rows, []any{int64(i), fmt.Sprint("n", i), int64(i) * 1_000_001})
	}
	return c
}

func (r *random) evolved() testCase {
	s, l := r.kind("string"), r.kind("bigint")
	inner := typ{fields: []column{col("a", s), col("b", l)}}
	return testCase{
		name: "evolved", checks: []int{45}, commits: 4, foreign: true,
		columns: []column{col("id", l), col("s", inner), col("added", s)},
		later:   []column{col("added", s), col("s", typ{fields: []column{col("b", l)}})},
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

// farDates and farTimes have what no record can have, but other decoders might: the years before 0 and after 9999.
func (r *random) farDates() testCase {
	c := testCase{name: "far-dates", checks: []int{19}, arrow: true, commits: 5, columns: []column{col("c", r.kind("date"))}}
	for _, v := range []int64{-4_000_000, -719_529, 2_932_897, 90_000_000, 0} {
		c.rows = append(c.rows, []any{v}, []any{v + 1})
	}
	return c
}

func (r *random) farTimes() testCase {
	c := testCase{name: "far-times", checks: []int{20}, arrow: true, commits: 4, columns: []column{col("c", r.kind("timestamp"))}}
	for _, v := range []int64{-9e18, -62_167_219_200_000_001, 253_402_300_800_000_000, 9e18} {
		c.rows = append(c.rows, []any{v}, []any{v + 1})
	}
	return c
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
	for _, add := range features() {
		add(r, &c)
	}
	return c
}

// boundary is the number of rows before the table gets the later columns.
func (c *testCase) boundary() int { return len(c.rows) * (c.commits / 2) / c.commits }

// comment is the table's comment. It tells the validator which columns have no statistics.
func (c *testCase) comment() string {
	if len(c.excluded) == 0 {
		return ""
	}
	paths, _ := text(c.excluded)
	return "without statistics: " + paths
}
