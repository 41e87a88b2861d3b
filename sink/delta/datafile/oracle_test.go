package datafile

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"

	"sluice/connector"
)

// The oracle reads files back with another Parquet reader, and computes from the values what the statistics must be.
// Values are bool, int64 (integers, days, microseconds), float64, string, blob, digits (decimals), []any (structs in
// the schema's order, lists, key and value) and nil.
type (
	blob   string
	digits string // a decimal
)

// tester has the methods that *testing.T and *rapid.T share.
type tester interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
	Context() context.Context
}

// cell returns value i of an array as a value of the schema's type.
func cell(t arrow.DataType, a arrow.Array, i int) any {
	if a == nil || a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.Dictionary:
		return cell(t, a.Dictionary(), a.GetValueIndex(i))
	case *array.Boolean:
		return a.Value(i)
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Date32:
		return int64(a.Value(i))
	case *array.Timestamp:
		return int64(a.Value(i))
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float64:
		return a.Value(i)
	case *array.Decimal128:
		return digits(a.Value(i).ToString(t.(*arrow.Decimal128Type).Scale))
	case *array.String:
		return strings.Clone(a.Value(i))
	case *array.Binary:
		return blob(a.Value(i))
	case *array.Struct:
		row := []any{}
		for _, f := range t.(*arrow.StructType).Fields() {
			var child arrow.Array
			if k, ok := a.DataType().(*arrow.StructType).FieldIdx(f.Name); ok {
				child = a.Field(k)
			}
			row = append(row, cell(f.Type, child, i))
		}
		return row
	case *array.List:
		from, to := a.ValueOffsets(i)
		list := []any{}
		for k := from; k < to; k++ {
			list = append(list, cell(t.(*arrow.ListType).Elem(), a.ListValues(), int(k)))
		}
		return list
	case *array.Map:
		from, to := a.ValueOffsets(i)
		list := []any{}
		for k := from; k < to; k++ {
			key, item := cell(str, a.Keys(), int(k)), cell(t.(*arrow.MapType).ItemType(), a.Items(), int(k))
			list = append(list, []any{key, item})
		}
		return list
	}
	panic(fmt.Sprintf("%T", a))
}

// rowsOf returns the rows of pieces, with the columns in the order and types of the schema.
func rowsOf(sc *arrow.Schema, pieces []connector.Piece) [][]any {
	var rows [][]any
	for _, p := range pieces {
		for i := p.From; i < p.To; i++ {
			var row []any
			for _, f := range sc.Fields() {
				var c arrow.Array
				if k := p.Rows.Schema().FieldIndices(f.Name); len(k) > 0 {
					c = p.Rows.Column(k[0])
				}
				row = append(row, cell(f.Type, c, int(i)))
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// result is a file that was read back.
type result struct {
	File
	bytes []byte
	rows  [][]any
	meta  *metadata.FileMetaData
}

func encodeAllFiles(tb tester, sc *arrow.Schema, pieces []connector.Piece, o Options) []result {
	tb.Helper()
	var files []result
	err := Encode(tb.Context(), sc, pieces, o, func(f File) error {
		b, err := io.ReadAll(f.Body)
		files = append(files, result{File: f, bytes: b})
		return err
	})
	if err != nil {
		tb.Fatal(err)
	}
	return files
}

func (r *result) read(tb tester, sc *arrow.Schema) {
	tb.Helper()
	if int64(len(r.bytes)) != r.Size {
		tb.Fatalf("Size says %d, the body has %d bytes", r.Size, len(r.bytes))
	}
	fr, err := file.NewParquetReader(bytes.NewReader(r.bytes))
	if err != nil {
		tb.Fatal(err)
	}
	defer func() { _ = fr.Close() }()
	r.meta = fr.MetaData()
	table, err := pqarrow.ReadTable(tb.Context(), bytes.NewReader(r.bytes), parquet.NewReaderProperties(nil),
		pqarrow.ArrowReadProperties{}, memory.DefaultAllocator)
	if err != nil {
		tb.Fatal(err)
	}
	for tr := array.NewTableReader(table, 0); tr.Next(); {
		b := tr.RecordBatch()
		for i, f := range sc.Fields() {
			if got := b.Schema().Field(i); got.Name != f.Name || got.Nullable != f.Nullable {
				tb.Fatalf("column %v, want %v", got, f)
			}
		}
		r.rows = append(r.rows, rowsOf(sc, []connector.Piece{{Rows: b, To: b.NumRows()}})...)
	}
	if int64(len(r.rows)) != r.Rows {
		tb.Fatalf("Rows says %d, the file has %d", r.Rows, len(r.rows))
	}
}

// leafValues is one leaf with its values in some rows. Leaves are those that Delta counts: a list or map is one leaf. A
// value below a null struct is nil.
type leafValues struct {
	path     []string
	typ      arrow.DataType
	values   []any
	parquet  int // the number of this leaf, or of its first leaf, among the leaves of Parquet
	repeated bool
}

func leavesOf(sc *arrow.Schema, rows [][]any) []leafValues {
	var leaves []leafValues
	pq := 0
	var walk func(fields []arrow.Field, path []string, column func(row []any) []any)
	walk = func(fields []arrow.Field, path []string, at func([]any) []any) {
		for i, f := range fields {
			path := append(slices.Clip(path), f.Name)
			value := func(row []any) any {
				if s := at(row); s != nil {
					return s[i]
				}
				return nil
			}
			if st, ok := f.Type.(*arrow.StructType); ok {
				walk(st.Fields(), path, func(row []any) []any { s, _ := value(row).([]any); return s })
				continue
			}
			l := leafValues{path: path, typ: f.Type, parquet: pq}
			_, l.repeated = f.Type.(arrow.ListLikeType)
			pq += parquetLeaves(f.Type)
			for _, row := range rows {
				l.values = append(l.values, value(row))
			}
			leaves = append(leaves, l)
		}
	}
	walk(sc.Fields(), nil, func(row []any) []any { return row })
	return leaves
}

func parquetLeaves(t arrow.DataType) int {
	nested, ok := t.(arrow.NestedType)
	if !ok {
		return 1
	}
	n := 0
	for _, f := range nested.Fields() {
		n += parquetLeaves(f.Type)
	}
	return n
}

func nullsOf(values []any) int64 {
	n := int64(0)
	for _, v := range values {
		if v == nil {
			n++
		}
	}
	return n
}

// statsJSON is Delta's statistics, parsed.
type statsJSON struct {
	NumRecords                      int64
	MinValues, MaxValues, NullCount map[string]any
}

func parseStats(tb tester, text string) statsJSON {
	tb.Helper()
	var s statsJSON
	d := json.NewDecoder(strings.NewReader(text))
	d.UseNumber()
	d.DisallowUnknownFields()
	if err := d.Decode(&s); err != nil {
		tb.Fatalf("%v in %s", err, text)
	}
	return s
}

// at returns the value at a path through nested maps; ok is false if the path does not exist.
func at(m map[string]any, path []string) (any, bool) {
	for _, p := range path[:len(path)-1] {
		m, _ = m[p].(map[string]any)
	}
	v, ok := m[path[len(path)-1]]
	return v, ok
}

// count returns the number of values in nested maps, not counting the maps.
func count(m map[string]any) int {
	n := 0
	for _, v := range m {
		if inner, ok := v.(map[string]any); ok {
			n += count(inner)
		} else {
			n++
		}
	}
	return n
}

func isNaN(v any) bool { f, ok := v.(float64); return ok && math.IsNaN(f) }

// same reports whether two values are equal. NaN equals NaN, and -0.0 differs from 0.0.
func same(a, b any) bool {
	switch a := a.(type) {
	case float64:
		b, ok := b.(float64)
		return ok && (math.Float64bits(a) == math.Float64bits(b) || math.IsNaN(a) && math.IsNaN(b))
	case []any:
		b, ok := b.([]any)
		return ok && slices.EqualFunc(a, b, same)
	}
	return a == b
}

func sameRows(tb tester, want, got [][]any) {
	tb.Helper()
	if len(want) != len(got) {
		tb.Fatalf("%d rows, want %d", len(got), len(want))
	}
	for i := range want {
		if !slices.EqualFunc(want[i], got[i], same) {
			tb.Fatalf("row %d: %v, want %v", i, got[i], want[i])
		}
	}
}
