package datafile

import (
	"bytes"
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/google/go-cmp/cmp"
)

// checkReader reads the footer with arrow-go's reader and compares it with Delta's statistics of the same file: null
// counts are equal, and no bound in the log is inside of the bounds in the footer.
func checkReader(tb tester, sc *arrow.Schema, f *result, o Options) {
	tb.Helper()
	o = o.withDefaults()
	parquet, err := file.NewParquetReader(bytes.NewReader(f.bytes))
	if err != nil {
		tb.Fatal(err)
	}
	defer parquet.Close()
	log := parseStats(tb, f.Stats)
	for _, l := range leavesOf(sc, nil) {
		if l.repeated {
			continue
		}
		var low, high any // bounds over all row groups
		nulls, rows, whole := int64(0), int64(0), true
		for g := range parquet.NumRowGroups() {
			group := parquet.MetaData().RowGroup(g)
			chunk, err := group.ColumnChunk(l.parquet)
			if err != nil {
				tb.Fatal(err)
			}
			s, err := chunk.Statistics()
			if err != nil || s == nil || !s.HasNullCount() {
				tb.Fatalf("%v: statistics %v, error %v", l.path, s, err)
			}
			nulls, rows = nulls+s.NullCount(), rows+group.NumRows()
			if !s.HasMinMax() {
				whole = whole && s.NullCount() == group.NumRows()
				continue
			}
			if id := l.typ.ID(); id == arrow.FLOAT32 || id == arrow.FLOAT64 || o.Statistics(l.path) == NoBounds {
				tb.Fatalf("%v: the reader found bounds", l.path)
			}
			if v := plainValue(l.typ, s.EncodeMin()); low == nil || compare(l.typ, v, low) < 0 {
				low = v
			}
			if v := plainValue(l.typ, s.EncodeMax()); high == nil || compare(l.typ, v, high) > 0 {
				high = v
			}
		}
		if o.Statistics(l.path) != InLogAndFooter {
			continue
		}
		if n, _ := at(log.NullCount, l.path); n != jsonInt(nulls) {
			tb.Fatalf("%v: %v nulls in the log, %d of %d rows in the footer", l.path, n, nulls, rows)
		}
		check := func(list map[string]any, footer any, side int) {
			bound, have := at(list, l.path)
			if !have || footer == nil {
				return
			}
			if c := compareBound(tb, l.typ, bound, footer, side); c*side < 0 || whole && c != 0 {
				tb.Fatalf("%v: bound %v in the log, %v in the footer", l.path, bound, footer)
			}
		}
		check(log.MinValues, low, -1)
		check(log.MaxValues, high, +1)
	}
}

func jsonInt(n int64) json.Number {
	b, err := json.Marshal(n)
	if err != nil {
		panic(err) // cannot happen: every integer is JSON
	}
	return json.Number(b)
}

// TestFooterAndLog: arrow-go's reader finds in the footer what the log says, for each kind of column. A leaf without
// statistics in the log keeps its bounds in the footer, and a leaf without bounds has them nowhere.
func TestFooterAndLog(t *testing.T) {
	sc := schemaOf(nullable("i", i64), nullable("f", f64), nullable("s", str), nullable("t", timestamp),
		nullable("d", arrow.FixedWidthTypes.Date32), nullable("n", arrow.StructOf(nullable("x", decimal202), nullable("secret", str))))
	o := Options{Statistics: func(path []string) Statistics {
		switch strings.Join(path, ".") {
		case "s":
			return InFooter
		case "n.secret":
			return NoBounds
		}
		return InLogAndFooter
	}}
	f := one(t, sc, o,
		batchOf(sc, []any{7, math.NaN(), "tea", 1_500, 2932897, []any{"1.25", "Ada"}}, []any{nil, math.Inf(1), nil, -1, 0, nil}),
		batchOf(sc, []any{-3, math.Copysign(0, -1), "oolong", 2_000, -5, []any{"-9.50", "Grace"}}))
	checkReader(t, sc, &f, o)
	checkFooter(t, sc, &f, o)
	want := `{"numRecords":3,"minValues":{"i":-3,"f":-0.0,"t":"1969-12-31T23:59:59.999Z","d":"1969-12-27","n":{"x":-9.50}},` +
		`"maxValues":{"i":7,"t":"1970-01-01T00:00:00.002Z","n":{"x":1.25}},` +
		`"nullCount":{"i":1,"f":0,"t":0,"d":0,"n":{"x":1}}}`
	if d := cmp.Diff(want, f.Stats); d != "" {
		t.Error(d)
	}
	for _, group := range f.meta.RowGroups {
		if s := group.Columns[2].MetaData.Statistics; s.MinValue == nil || s.MaxValue == nil {
			t.Error("a leaf that the log does not index has no bounds in the footer")
		}
	}
	if none := one(t, sc, Options{Statistics: firstLeaves(sc, 0)}, batchOf(sc, []any{1, nil, nil, nil, nil, nil})).Stats; none != `{"numRecords":1}` {
		t.Error(none)
	}
}
