package datafile

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"

	"sluice/connector"
)

var (
	i64, f64, str = arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String
	dictionary    = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: str}
	decimal202    = &arrow.Decimal128Type{Precision: 20, Scale: 2}
)

func nullable(name string, t arrow.DataType) arrow.Field {
	return arrow.Field{Name: name, Type: t, Nullable: true}
}

func schemaOf(fields ...arrow.Field) *arrow.Schema { return arrow.NewSchema(fields, nil) }

// batchOf makes a record batch from rows of values. The values have the forms that [cell] returns; an int is taken as
// an int64.
func batchOf(sc *arrow.Schema, rows ...[]any) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, sc)
	for _, row := range rows {
		for i, v := range row {
			appendValue(b.Field(i), v)
		}
	}
	return b.NewRecordBatch()
}

func appendValue(b array.Builder, v any) {
	if v == nil {
		b.AppendNull()
		return
	}
	integer := func() int64 { return int64(v.(int)) }
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(v.(bool))
	case *array.Int8Builder:
		b.Append(int8(integer()))
	case *array.Int16Builder:
		b.Append(int16(integer()))
	case *array.Int32Builder:
		b.Append(int32(integer()))
	case *array.Int64Builder:
		b.Append(integer())
	case *array.Date32Builder:
		b.Append(arrow.Date32(integer()))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(integer()))
	case *array.Float32Builder:
		b.Append(float32(v.(float64)))
	case *array.Float64Builder:
		b.Append(v.(float64))
	case *array.StringBuilder:
		b.Append(v.(string))
	case *array.BinaryBuilder:
		b.Append([]byte(v.(string)))
	case *array.BinaryDictionaryBuilder:
		if err := b.AppendString(v.(string)); err != nil {
			panic(err)
		}
	case *array.Decimal128Builder:
		t := b.Type().(*arrow.Decimal128Type)
		d, err := decimal128.FromString(v.(string), t.Precision, t.Scale)
		if err != nil {
			panic(err)
		}
		b.Append(d)
	case *array.StructBuilder:
		b.Append(true)
		for i, x := range v.([]any) {
			appendValue(b.FieldBuilder(i), x)
		}
	case *array.ListBuilder:
		b.Append(true)
		for _, x := range v.([]any) {
			appendValue(b.ValueBuilder(), x)
		}
	default:
		panic(b)
	}
}

// one encodes batches into one file, each batch as a row group.
func one(t *testing.T, sc *arrow.Schema, o Options, batches ...arrow.RecordBatch) result {
	t.Helper()
	var pieces []connector.Piece
	for _, b := range batches {
		pieces = append(pieces, connector.Piece{Rows: b, To: b.NumRows()})
	}
	files := encodeAllFiles(t, sc, pieces, o)
	if len(files) != 1 {
		t.Fatalf("%d files", len(files))
	}
	files[0].read(t, sc)
	return files[0]
}

func columnOf(t arrow.DataType, values ...any) (*arrow.Schema, arrow.RecordBatch) {
	sc := schemaOf(nullable("x", t))
	var rows [][]any
	for _, v := range values {
		rows = append(rows, []any{v})
	}
	return sc, batchOf(sc, rows...)
}

func TestDeltaBounds(t *testing.T) {
	day32, f32 := arrow.FixedWidthTypes.Date32, arrow.PrimitiveTypes.Float32
	nan, inf, zero := math.NaN(), math.Inf(1), math.Copysign(0, -1)
	day, year1, year10000 := 86_400_000_000, -62135596800_000000, 253402300800_000000
	for _, c := range []struct {
		name      string
		typ       arrow.DataType
		values    []any
		low, high string // the bounds as JSON; "" for none
	}{
		{"integers", i64, []any{5, nil, -3, math.MaxInt64}, "-3", "9223372036854775807"},
		{"the smallest byte", arrow.PrimitiveTypes.Int8, []any{-128, 127}, "-128", "127"},
		{"all null", i64, []any{nil, nil}, "", ""},
		{"booleans", arrow.FixedWidthTypes.Boolean, []any{true, false, nil}, "false", "true"},
		{"one boolean", arrow.FixedWidthTypes.Boolean, []any{nil, true}, "true", "true"},
		{"binary has counts only", arrow.BinaryTypes.Binary, []any{"a", nil}, "", ""},
		{"dates", day32, []any{0, 20_000, -1}, `"1969-12-31"`, `"2024-10-04"`},
		{"the first and last day of four digits", day32, []any{-719162, 2932896}, `"0001-01-01"`, `"9999-12-31"`},
		{"days before and after them", day32, []any{-719163, 2932897}, "", ""},
		{
			"timestamps go down and up to milliseconds", timestamp,
			[]any{1, day + 1},
			`"1970-01-01T00:00:00.000Z"`, `"1970-01-02T00:00:00.001Z"`,
		},
		{
			"so do those before 1970", timestamp,
			[]any{-1, -day - 999},
			`"1969-12-30T23:59:59.999Z"`, `"1970-01-01T00:00:00.000Z"`,
		},
		{
			"whole milliseconds stay", timestamp,
			[]any{-1000, 1000},
			`"1969-12-31T23:59:59.999Z"`, `"1970-01-01T00:00:00.001Z"`,
		},
		{"without time zone", timestampNTZ, []any{1500}, `"1970-01-01T00:00:00.001"`, `"1970-01-01T00:00:00.002"`},
		{"no rounding up out of the last year", timestamp, []any{year1, year10000 - 1}, `"0001-01-01T00:00:00.000Z"`, `"9999-12-31T23:59:59.999999Z"`},
		{"the year after it", timestamp, []any{year10000}, "", ""},
		{"the last year without time zone", timestampNTZ, []any{year10000 - 999}, `"9999-12-31T23:59:59.999"`, `"9999-12-31T23:59:59.999001"`},
		{"its last millisecond is in it", timestamp, []any{year1 - 1, year10000 - 1000}, "", `"9999-12-31T23:59:59.999Z"`},
		{"the ends of time", timestamp, []any{math.MinInt64, math.MaxInt64}, "", ""},
		{"doubles", f64, []any{0.1, 2.0, nil}, "0.1", "2.0"},
		{"large and small doubles", f64, []any{-1e300, 5e-324}, "-1e+300", "5e-324"},
		{"floats as the doubles that they are", f32, []any{0.1}, "0.10000000149011612", "0.10000000149011612"},
		{"any NaN leaves out the maximum", f64, []any{1.0, nan}, "1.0", ""},
		{"nothing but NaN", f64, []any{nan, nil}, "", ""},
		{"+Inf leaves out the maximum", f64, []any{1.0, inf}, "1.0", ""},
		{"-Inf leaves out the minimum", f64, []any{1.0, -inf}, "", "1.0"},
		{"nothing but +Inf", f64, []any{inf}, "", ""},
		{"nothing but -Inf", f32, []any{-inf}, "", ""},
		{"zero bounds hold both zeros", f64, []any{0.0}, "-0.0", "0.0"},
		{"negative zero, too", f64, []any{zero}, "-0.0", "0.0"},
		{"zero as minimum", f64, []any{0.0, 1.0}, "-0.0", "1.0"},
		{"negative zero as maximum", f64, []any{zero, -1.0}, "-1.0", "0.0"},
		{
			"decimals with all digits", &arrow.Decimal128Type{Precision: 38, Scale: 4},
			[]any{"-1.5", "1234567890123456789012345678901234.5678"},
			"-1.5000", "1234567890123456789012345678901234.5678",
		},
		{
			"decimals below one", &arrow.Decimal128Type{Precision: 9, Scale: 9},
			[]any{"-0.000000001", "0.5"},
			"-0.000000001", "0.500000000",
		},
		{"strings", str, []any{"b", "", "c<&>\"\n\u2028"}, `""`, `"c<&>\"\n\u2028"`},
		{"strings in the order of UTF-8", str, []any{"\uffff", "😀"}, `"` + "\uffff" + `"`, `"😀"`},
		{
			"long strings", str,
			[]any{strings.Repeat("a", 40)},
			`"` + strings.Repeat("a", 32) + `"`, `"` + strings.Repeat("a", 32) + "\x7f" + `"`,
		},
		{"strings that are not UTF-8", str, []any{"\xfe", "b", "\xc0"}, `"b"`, ""},
		{"lists have counts only", arrow.ListOf(str), []any{[]any{"a"}, []any{}, nil}, "", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			sc, b := columnOf(c.typ, c.values...)
			object := func(bound string) string {
				if bound == "" {
					return "{}"
				}
				return `{"x":` + bound + "}"
			}
			nulls := "0"
			if slices.Contains(c.values, nil) {
				nulls = "1"
			}
			if c.name == "all null" {
				nulls = "2"
			}
			want := fmt.Sprintf(`{"numRecords":%d,"minValues":%s,"maxValues":%s,"nullCount":{"x":%s}}`,
				len(c.values), object(c.low), object(c.high), nulls)
			if d := cmp.Diff(want, one(t, sc, Options{}, b).Stats); d != "" {
				t.Error(d)
			}
		})
	}
}

// TestStatsNest: the statistics have the shape of the schema. Nulls of a struct count as nulls of its fields, several
// row groups have one set of bounds, and leaves after the indexed ones do not appear, nor does a struct of such leaves. A
// struct without a bound is an empty object.
func TestStatsNest(t *testing.T) {
	sc := schemaOf(
		arrow.Field{Name: "id", Type: i64},
		nullable("s", arrow.StructOf(nullable("a", i64),
			nullable("t", arrow.StructOf(nullable("b", str), nullable("l", arrow.ListOf(i64)))))),
		nullable("v", arrow.StructOf(nullable("none", i64))),
		nullable("quote\"d", str),
		nullable("w", arrow.StructOf(nullable("late", i64))),
	)
	f := one(t, sc, Options{Statistics: firstLeaves(sc, 5)},
		batchOf(sc, []any{3, []any{7, []any{"x", []any{1}}}, nil, "z", nil}, []any{2, nil, nil, nil, nil}),
		batchOf(sc, []any{5, []any{nil, nil}, []any{nil}, "y", nil}, []any{9, []any{-7, []any{nil, nil}}, nil, "y", []any{1}}))
	want := `{"numRecords":4,"minValues":{"id":2,"s":{"a":-7,"t":{"b":"x"}},"v":{}},` +
		`"maxValues":{"id":9,"s":{"a":7,"t":{"b":"x"}},"v":{}},` +
		`"nullCount":{"id":0,"s":{"a":2,"t":{"b":3,"l":3}},"v":{"none":4}}}`
	if d := cmp.Diff(want, f.Stats); d != "" {
		t.Error(d)
	}
	all := one(t, sc, Options{}, batchOf(sc, []any{3, nil, nil, "z", nil})).Stats
	if !strings.Contains(all, `"quote\"d":"z"`) {
		t.Error(all)
	}
}

// TestStatsExcludedStruct: a struct whose fields are all excluded is an empty object, not missing.
func TestStatsExcludedStruct(t *testing.T) {
	sc := schemaOf(nullable("id", i64), nullable("s", arrow.StructOf(nullable("a", i64))))
	f := one(t, sc, Options{Statistics: func(path []string) Statistics {
		if path[0] == "s" {
			return NoBounds
		}
		return InLogAndFooter
	}}, batchOf(sc, []any{1, []any{7}}))
	want := `{"numRecords":1,"minValues":{"id":1,"s":{}},"maxValues":{"id":1,"s":{}},"nullCount":{"id":0,"s":{}}}`
	if d := cmp.Diff(want, f.Stats); d != "" {
		t.Error(d)
	}
}

// firstLeaves selects statistics in the log for the first n leaves, and in the footer for all.
func firstLeaves(sc *arrow.Schema, n int) func([]string) Statistics {
	var first []string
	for _, l := range leavesOf(sc, nil) {
		first = append(first, strings.Join(l.path, "\x00"))
	}
	first = first[:min(n, len(first))]
	return func(path []string) Statistics {
		if slices.Contains(first, strings.Join(path, "\x00")) {
			return InLogAndFooter
		}
		return InFooter
	}
}

// TestNaNInAnotherRowGroup: if one row group has a NaN, the statistics of the whole file have no maximum for the
// column.
func TestNaNInAnotherRowGroup(t *testing.T) {
	sc, a := columnOf(f64, 1.0, 2.0)
	_, b := columnOf(f64, math.NaN())
	want := `{"numRecords":3,"minValues":{"x":1.0},"maxValues":{},"nullCount":{"x":0}}`
	for _, order := range [][]arrow.RecordBatch{{a, b}, {b, a}} {
		if d := cmp.Diff(want, one(t, sc, Options{}, order...).Stats); d != "" {
			t.Error(d)
		}
	}
}

// TestRowGroupsPrune: with the footer's statistics, a reader can skip row groups by their integers, timestamps and
// strings, whether the strings were plain or dictionary arrays.
func TestRowGroupsPrune(t *testing.T) {
	sc := schemaOf(nullable("n", i64), nullable("t", timestamp), nullable("s", str), nullable("d", str))
	in := schemaOf(nullable("n", i64), nullable("t", timestamp), nullable("s", str), nullable("d", dictionary))
	var batches []arrow.RecordBatch
	for g := range 5 {
		var rows [][]any
		for i := range 100 {
			text := string(rune('a'+g)) + strings.Repeat("x", i%20)
			rows = append(rows, []any{g*100 + i, g*1_000_000 + i, text, text})
		}
		batches = append(batches, batchOf(in, rows...))
	}
	f := one(t, sc, Options{}, batches...)
	for c, probe := range []any{int64(250), int64(2_000_050), "cx", "cx"} {
		var hit []int
		for g, group := range f.meta.RowGroups {
			s, typ := group.Columns[c].MetaData.Statistics, sc.Field(c).Type
			if compare(typ, plainValue(typ, s.MinValue), probe) <= 0 && compare(typ, plainValue(typ, s.MaxValue), probe) >= 0 {
				hit = append(hit, g)
			}
		}
		if !slices.Equal(hit, []int{2}) {
			t.Errorf("column %d: row groups %v may hold %v", c, hit, probe)
		}
	}
}

func TestDecimalsBelowNullStructs(t *testing.T) {
	sc := schemaOf(nullable("s", arrow.StructOf(nullable("d", decimal202))))
	b := array.NewDecimal128Builder(memory.DefaultAllocator, decimal202)
	for i := range 5 {
		b.Append(decimal128.FromI64(int64(100 * i)))
	}
	rows := newValid(5)
	rows[0] = 0b10110
	below := []arrow.ArrayData{b.NewArray().Data()}
	s := fromData(sc.Field(0).Type, 5, []*memory.Buffer{rows.buffer()}, below, array.UnknownNullCount)
	f := one(t, sc, Options{}, array.NewRecordBatch(sc, []arrow.Array{s}, 5))
	sameRows(t, [][]any{{nil}, {[]any{digits("1.00")}}, {[]any{digits("2.00")}}, {nil}, {[]any{digits("4.00")}}}, f.rows)
}
