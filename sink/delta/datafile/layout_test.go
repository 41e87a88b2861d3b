package datafile

import (
	"bytes"
	"fmt"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/google/go-cmp/cmp"

	"sluice/connector"
)

// TestLayout: orders that fill several pages and row groups are read back unchanged, whether their text columns are
// plain or dictionary arrays. Each leaf has the encoding that checkEncodings lists for it.
func TestLayout(t *testing.T) {
	a, b := orders(0, 12_000), orders(12_000, 3_000)
	plain := []connector.Piece{pieceOf(a), {Rows: b, From: 100, To: 1000}, {Rows: b, From: 1001, To: 3000}}
	da, db := dictionaryOrders(a), dictionaryOrders(b)
	interned := []connector.Piece{pieceOf(da), {Rows: db, From: 100, To: 1000}, {Rows: db, From: 1001, To: 3000}}
	mixed := []connector.Piece{plain[0], interned[1], interned[2]}
	want := rowsOf(orderSchema, plain)
	var stats string
	for name, pieces := range map[string][]connector.Piece{"plain": plain, "dictionary": interned, "mixed": mixed} {
		files := encodeAllFiles(t, orderSchema, pieces, Options{})
		if len(files) != 1 {
			t.Fatalf("%s: %d files", name, len(files))
		}
		f := &files[0]
		f.read(t, orderSchema)
		sameRows(t, want, f.rows)
		if stats == "" {
			stats = f.Stats
			checkStats(t, orderSchema, f, Options{})
			checkFooter(t, orderSchema, f, Options{})
		}
		if d := cmp.Diff(stats, f.Stats); d != "" {
			t.Errorf("%s: statistics: %s", name, d)
		}
		checkEncodings(t, f)
	}
}

func checkEncodings(t *testing.T, f *result) {
	t.Helper()
	const dict, delta, length, bare = "dictionary", "delta", "delta length", "plain"
	want := map[string]string{
		"_kafka_topic": dict, "_kafka_partition": delta, "_kafka_offset": delta, "_kafka_timestamp": delta,
		"order_id": length, "store_id": delta, "quantity": delta, "total": bare, "discount": dict, "created_at": delta,
		"paid": bare, "status": dict, "coupon": length, "shipping.city": dict, "shipping.zip": length,
		"shipping.country": dict, "shipping.lat": bare, "shipping.note": dict, "tags.list.element": dict,
	}
	r, err := file.NewParquetReader(bytes.NewReader(f.bytes))
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for g := range r.NumRowGroups() {
		for i := range r.MetaData().Schema.NumColumns() {
			c, err := r.MetaData().RowGroup(g).ColumnChunk(i)
			if err != nil {
				t.Fatal(err)
			}
			path := c.PathInSchema().String()
			kind, ok := want[path]
			pageReader, err := r.RowGroup(g).GetColumnPageReader(i)
			if err != nil {
				t.Fatal(err)
			}
			for n := 0; pageReader.Next(); n++ {
				most = max(most, n+1)
				if c.HasDictionaryPage() && n == 0 {
					if _, ok := pageReader.Page().(*file.DictionaryPage); !ok {
						t.Errorf("%s: first page %T", path, pageReader.Page())
					}
					continue
				}
				p, v1 := pageReader.Page().(*file.DataPageV1)
				if !v1 {
					t.Fatalf("%s: page %T", path, pageReader.Page())
				}
				got := map[parquet.Encoding]string{
					parquet.Encodings.RLEDict: dict, parquet.Encodings.PlainDict: dict, parquet.Encodings.Plain: bare,
					parquet.Encodings.DeltaBinaryPacked: delta, parquet.Encodings.DeltaLengthByteArray: length,
				}[parquet.Encoding(p.Encoding())]
				// Only the first row group is checked; the other one is small, so its values repeat less.
				if ok && g == 0 && got != kind {
					t.Errorf("%s is encoded as %s, want %s", path, got, kind)
				}
			}
			if err := pageReader.Err(); err != nil {
				t.Fatal(err)
			}
			codec := compress.Codecs.Zstd
			if kind == delta || path == "shipping.lat" {
				codec = compress.Codecs.Uncompressed
			}
			if c.Compression() != codec && path != "total" { // total compresses so little that either codec may be chosen
				t.Errorf("%s is compressed with %s", path, c.Compression())
			}
		}
	}
	if most < 3 {
		t.Errorf("no column chunk has more than %d pages: too few rows for this test", most)
	}
}

// TestAmbiguousPaths: a column may be named "b.a" beside a column b with the field a. Both are encoded correctly,
// although the Parquet writer finds its options by the dotted path.
func TestAmbiguousPaths(t *testing.T) {
	sc := schemaOf(nullable("b.a", str), nullable("b", arrow.StructOf(nullable("a", i64))))
	f := one(t, sc, Options{}, batchOf(sc, []any{"x", []any{1}}, []any{"x", []any{2}}, []any{"x", nil}))
	sameRows(t, [][]any{{"x", []any{int64(1)}}, {"x", []any{int64(2)}}, {"x", nil}}, f.rows)
	want := `{"numRecords":3,"minValues":{"b.a":"x","b":{"a":1}},"maxValues":{"b.a":"x","b":{"a":2}},` +
		`"nullCount":{"b.a":0,"b":{"a":1}}}`
	if d := cmp.Diff(want, f.Stats); d != "" {
		t.Error(d)
	}
}

// TestDictionaryGivenUp: if a dictionary outgrows its page, the Parquet writer gives it up, and the column chunk has
// pages of two encodings. All values are read back, and encoding the same rows again gives the same bytes.
func TestDictionaryGivenUp(t *testing.T) {
	b := array.NewFloat64Builder(memory.DefaultAllocator)
	for i := range 270_000 {
		b.Append(float64(i * (i % 2)))
	}
	sc := schemaOf(nullable("x", f64))
	rows := array.NewRecordBatch(sc, []arrow.Array{b.NewArray()}, 270_000)
	first := one(t, sc, Options{}, rows)
	sameRows(t, rowsOf(sc, []connector.Piece{pieceOf(rows)}), first.rows)
	if n := len(first.meta.RowGroups[0].Columns[0].MetaData.EncodingStats); n < 3 {
		t.Errorf("%d kinds of pages, the dictionary was not given up half way", n)
	}
	for range 10 {
		again := encodeAllFiles(t, sc, []connector.Piece{pieceOf(rows)}, Options{})
		if !bytes.Equal(first.bytes, again[0].bytes) {
			t.Fatal("equal rows gave different bytes")
		}
	}
}

// TestNegativeZeroNoDictionary: repeated floats get a dictionary, unless one of them is -0.0.
func TestNegativeZeroNoDictionary(t *testing.T) {
	zero := math.Copysign(0, -1)
	for _, typ := range []arrow.DataType{f64, arrow.PrimitiveTypes.Float32} {
		for _, c := range []struct {
			name   string
			values [2]any
			want   bool
		}{{"0.0", [2]any{0.0, 1.0}, true}, {"-0.0", [2]any{zero, 0.0}, false}, {"-0.0 last", [2]any{1.0, zero}, false}} {
			t.Run(fmt.Sprint(typ, " with ", c.name), func(t *testing.T) {
				sc := schemaOf(nullable("x", typ))
				rows := [][]any{{nil}}
				for range 500 {
					rows = append(rows, []any{c.values[0]}, []any{c.values[1]})
				}
				f := one(t, sc, Options{}, batchOf(sc, rows...))
				if got := f.meta.RowGroups[0].Columns[0].MetaData.DictionaryPageOffset != nil; got != c.want {
					t.Errorf("dictionary: %v, want %v", got, c.want)
				}
			})
		}
	}
}

// TestLargeDictionary: a dictionary array whose dictionary is larger than a dictionary page may be is written as plain
// text.
func TestLargeDictionary(t *testing.T) {
	in, sc := schemaOf(nullable("x", dictionary)), schemaOf(nullable("x", str))
	var rows [][]any
	for i := range 1000 {
		rows = append(rows, []any{strings.Repeat(string(rune('a'+i%26)), 4000) + fmt.Sprint(i%400)})
	}
	sameRows(t, rows, one(t, sc, Options{}, batchOf(in, rows...)).rows)
}
