package datafile

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"sluice/connector"
)

// TestRoundTrip: all rows are read back in order. All values are within the bounds, null counts are exact, and the
// footer agrees with the values. Neither Parallel nor dictionaries for text columns make a difference.
func TestRoundTrip(t *testing.T) { rapid.Check(t, roundTrip) }

// FuzzRoundTrip expects of any rows what TestRoundTrip expects.
func FuzzRoundTrip(f *testing.F) { f.Fuzz(rapid.MakeFuzz(roundTrip)) }

func roundTrip(t *rapid.T) {
	r := newRandom(rapid.Uint64().Draw(t, "seed"))
	sc := r.schema()
	o := Options{TargetSize: int64(1 + r.IntN(20_000)), Parallel: 1, Statistics: r.statistics(sc)}
	if r.chance(2) {
		o.TargetSize = 0
	}
	if r.chance(3) {
		o.StringPrefix = 1 + r.IntN(40)
	}
	pieces := r.pieces(sc)
	files := encodeAllFiles(t, sc, pieces, o)
	var got [][]any
	for i := range files {
		files[i].read(t, sc)
		got = append(got, files[i].rows...)
		checkStats(t, sc, &files[i], o)
		checkFooter(t, sc, &files[i], o)
		checkReader(t, sc, &files[i], o)
		if i+1 < len(files) && files[i].Size < o.TargetSize {
			t.Fatalf("file %d was closed at %d bytes, before its target of %d", i, files[i].Size, o.TargetSize)
		}
	}
	want := rowsOf(sc, pieces)
	sameRows(t, want, got)
	o.Parallel = 1 + r.IntN(5)
	again := encodeAllFiles(t, sc, pieces, o)
	if len(again) != len(files) {
		t.Fatalf("%d files with Parallel %d, %d with 1", len(again), o.Parallel, len(files))
	}
	for i, f := range again {
		if !bytes.Equal(f.bytes, files[i].bytes) || f.Stats != files[i].Stats || f.Rows != files[i].Rows {
			t.Fatalf("file %d differs with Parallel %d", i, o.Parallel)
		}
	}
	// Files are not split: text without dictionaries may be larger in Parquet, so files would end at other rows.
	o.TargetSize = 0
	dict, plain := encodeAllFiles(t, sc, pieces, o), encodeAllFiles(t, sc, plainPieces(t, pieces), o)
	for i := range dict {
		if d := cmp.Diff(dict[i].Stats, plain[i].Stats); d != "" {
			t.Fatalf("statistics differ for plain columns: %s", d)
		}
		plain[i].read(t, sc)
		sameRows(t, want, plain[i].rows)
	}
}

// plainPieces replaces the dictionary columns of the batches by plain ones, except those inside of nested columns.
func plainPieces(tb tester, pieces []connector.Piece) []connector.Piece {
	tb.Helper()
	known := map[arrow.RecordBatch]arrow.RecordBatch{}
	out := make([]connector.Piece, len(pieces))
	for i, p := range pieces {
		if known[p.Rows] == nil {
			fields, columns := p.Rows.Schema().Fields(), make([]arrow.Array, p.Rows.NumCols())
			for k := range columns {
				columns[k] = p.Rows.Column(k)
				if d, ok := columns[k].(*array.Dictionary); ok {
					plain, err := withoutDictionary(d, valid(nil).and(d))
					if err != nil {
						tb.Fatal(err)
					}
					columns[k], fields[k].Type = plain, plain.DataType()
				}
			}
			known[p.Rows] = array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, p.Rows.NumRows())
		}
		out[i] = connector.Piece{Rows: known[p.Rows], From: p.From, To: p.To}
	}
	return out
}

// checkStats fails the test unless Delta's statistics of a file are right for the values of its rows.
func checkStats(tb tester, sc *arrow.Schema, f *result, o Options) {
	tb.Helper()
	s := parseStats(tb, f.Stats)
	if s.NumRecords != f.Rows {
		tb.Fatalf("numRecords %d, rows %d", s.NumRecords, f.Rows)
	}
	prefix := o.withDefaults().StringPrefix
	bounds, counts := 0, 0
	for _, l := range leavesOf(sc, f.rows) {
		nulls, haveNulls := at(s.NullCount, l.path)
		if indexed := o.withDefaults().Statistics(l.path) == InLogAndFooter; haveNulls != indexed {
			tb.Fatalf("%v: null count present: %t", l.path, haveNulls)
		} else if !indexed {
			continue
		}
		counts++
		if want := json.Number(fmt.Sprint(nullsOf(l.values))); nulls != want {
			tb.Fatalf("%v: null count %v, want %v", l.path, nulls, want)
		}
		low, haveLow := at(s.MinValues, l.path)
		high, haveHigh := at(s.MaxValues, l.path)
		wantLow, wantHigh := expectedBounds(l, prefix)
		if haveLow != wantLow || haveHigh != wantHigh {
			tb.Fatalf("%v: bounds present: %t %t, want %t %t\n%s\n%v",
				l.path, haveLow, haveHigh, wantLow, wantHigh, f.Stats, l.values)
		}
		for _, have := range []bool{haveLow, haveHigh} {
			if have {
				bounds++
			}
		}
		var atLow, atHigh bool
		for _, v := range l.values {
			if v == nil {
				continue
			}
			if haveLow && !isNaN(v) {
				c := compareBound(tb, l.typ, low, v, -1)
				if atLow = atLow || c == 0; c > 0 {
					tb.Fatalf("%v: min %v, value %v", l.path, low, v)
				}
			}
			if haveHigh {
				c := compareBound(tb, l.typ, high, v, +1)
				if atHigh = atHigh || c == 0; c < 0 {
					tb.Fatalf("%v: max %v, value %v", l.path, high, v)
				}
			}
		}
		if haveLow && !atLow || haveHigh && !atHigh {
			tb.Fatalf("%v: bounds %v and %v are of no value: %v", l.path, low, high, l.values)
		}
	}
	if n := count(s.NullCount); n != counts {
		tb.Fatalf("%d null counts, want %d: %s", n, counts, f.Stats)
	}
	if n := count(s.MinValues) + count(s.MaxValues); n != bounds {
		tb.Fatalf("%d bounds, want %d: %s", n, bounds, f.Stats)
	}
}

// expectedBounds reports whether the statistics must have a lower and an upper bound for a leaf.
func expectedBounds(l leafValues, prefix int) (low, high bool) {
	if l.repeated || l.typ.ID() == arrow.BINARY {
		return false, false
	}
	var values []any
	nan := false
	for _, v := range l.values {
		if nan = nan || isNaN(v); v != nil && !isNaN(v) {
			values = append(values, v)
		}
	}
	if len(values) == 0 {
		return false, false
	}
	lo, hi := values[0], values[0]
	for _, v := range values {
		if compare(l.typ, v, lo) < 0 {
			lo = v
		}
		if compare(l.typ, v, hi) > 0 {
			hi = v
		}
	}
	switch l.typ.(type) {
	case *arrow.Float32Type, *arrow.Float64Type:
		return !math.IsInf(lo.(float64), 0), !nan && !math.IsInf(hi.(float64), 0)
	case *arrow.Date32Type:
		inYears := func(days int64) bool { y := time.Unix(days*86400, 0).UTC().Year(); return y >= 1 && y <= 9999 }
		return inYears(lo.(int64)), inYears(hi.(int64))
	case *arrow.TimestampType:
		year := func(us int64) int { return time.UnixMicro(us).UTC().Year() }
		return year(lo.(int64)) >= 1 && year(lo.(int64)) <= 9999, year(hi.(int64)) >= 1 && year(hi.(int64)) <= 9999
	case *arrow.StringType:
		_, low = lowerBound([]byte(lo.(string)), prefix)
		// Here only its existence matters; text_test.go tests lowerBound and upperBound.
		_, high = upperBound([]byte(hi.(string)), prefix)
		return low, high
	}
	return true, true
}

// compare orders two values of a leaf.
func compare(t arrow.DataType, a, b any) int {
	switch a := a.(type) {
	case int64:
		return cmpOf(a, b.(int64))
	case float64:
		return cmpOf(a, b.(float64))
	case string:
		return bytes.Compare([]byte(a), []byte(b.(string)))
	case blob:
		return bytes.Compare([]byte(a), []byte(b.(blob)))
	case bool:
		return cmpOf(btoi(a), btoi(b.(bool)))
	case digits:
		return ratOf(string(a)).Cmp(ratOf(string(b.(digits))))
	}
	panic(fmt.Sprintf("%s %T", t, a))
}

func cmpOf[T int64 | float64 | int](a, b T) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func ratOf(s string) *big.Rat { r, _ := new(big.Rat).SetString(s); return r }

// compareBound parses a bound as readers do, and compares it with the value v. It returns 0 if the bound equals v, and
// for types whose bounds are rounded also if it is v rounded down (side is negative) or up (side is positive).
// Otherwise it returns a negative number if the bound is less than v, else a positive one.
func compareBound(tb tester, t arrow.DataType, bound, v any, side int) int {
	tb.Helper()
	number := func() string { return string(bound.(json.Number)) }
	switch t := t.(type) {
	case *arrow.Float32Type, *arrow.Float64Type:
		b, err := bound.(json.Number).Float64()
		if err != nil {
			tb.Fatal(err)
		}
		if b == 0 && math.Signbit(b) != (side < 0) {
			tb.Fatalf("zero bound %v on side %d", bound, side)
		}
		return cmpOf(b, v.(float64))
	case *arrow.Decimal128Type:
		return ratOf(number()).Cmp(ratOf(string(v.(digits))))
	case *arrow.Date32Type:
		d, err := time.Parse(time.DateOnly, bound.(string))
		if err != nil {
			tb.Fatal(err)
		}
		return cmpOf(d.Unix()/86400, v.(int64))
	case *arrow.TimestampType:
		layout := "2006-01-02T15:04:05Z07:00"
		if t.TimeZone == "" {
			layout = "2006-01-02T15:04:05"
		}
		d, err := time.Parse(layout, bound.(string))
		if err != nil {
			tb.Fatal(err)
		}
		diff := d.UnixMicro() - v.(int64)
		if diff*int64(side) >= 0 && diff*int64(side) < 1000 {
			return 0
		}
		return cmpOf(d.UnixMicro(), v.(int64))
	case *arrow.BooleanType:
		return cmpOf(btoi(bound.(bool)), btoi(v.(bool)))
	case *arrow.StringType:
		b, s := []byte(bound.(string)), []byte(v.(string))
		c := bytes.Compare(b, s)
		if side < 0 && bytes.HasPrefix(s, b) {
			return 0
		}
		last, size := utf8.DecodeLastRune(b)
		if side > 0 && c > 0 && (last == 0x7F || last == utf8.MaxRune) && bytes.HasPrefix(s, b[:len(b)-size]) {
			return 0
		}
		return c
	default:
		b, err := bound.(json.Number).Int64()
		if err != nil {
			tb.Fatal(err)
		}
		return cmpOf(b, v.(int64))
	}
}

// checkFooter compares the footer's statistics of each row group with its values, so that no engine that prunes by them
// skips a row that it wants. It also fails if the footer has statistics that this package must not write.
func checkFooter(tb tester, sc *arrow.Schema, f *result, o Options) {
	tb.Helper()
	o = o.withDefaults()
	next, row := int64(len(magic)), int64(0)
	for g, group := range f.meta.RowGroups {
		rows := f.rows[row : row+group.NumRows]
		row += group.NumRows
		if *group.Ordinal != int16(g) || *group.FileOffset != next {
			tb.Fatalf("row group %d: ordinal %d at %d, want %d", g, *group.Ordinal, *group.FileOffset, next)
		}
		for _, c := range group.Columns {
			start := c.MetaData.DataPageOffset
			if d := c.MetaData.DictionaryPageOffset; d != nil {
				start = *d
			}
			if start != next || c.FileOffset != next {
				tb.Fatalf("column chunk at %d and %d, want %d", start, c.FileOffset, next)
			}
			next += c.MetaData.TotalCompressedSize
			if c.ColumnIndexOffset != nil || c.OffsetIndexOffset != nil || c.MetaData.BloomFilterOffset != nil {
				tb.Fatal("page index or bloom filter")
			}
		}
		for _, l := range leavesOf(sc, rows) {
			s := group.Columns[l.parquet].MetaData.Statistics
			if l.repeated {
				if s != nil {
					tb.Fatalf("%v: statistics below a list", l.path)
				}
				continue
			}
			if s == nil || s.GetNullCount() != nullsOf(l.values) {
				tb.Fatalf("%v: statistics %v, nulls %d", l.path, s, nullsOf(l.values))
			}
			if id := l.typ.ID(); id == arrow.FLOAT32 || id == arrow.FLOAT64 || o.Statistics(l.path) == NoBounds {
				if s.MinValue != nil || s.MaxValue != nil || s.Min != nil || s.Max != nil {
					tb.Fatalf("%v: bounds of floats, which leave out NaN, or of a leaf without bounds", l.path)
				}
				continue
			}
			low, high := plainValue(l.typ, s.MinValue), plainValue(l.typ, s.MaxValue)
			var atLow, atHigh, longLow, longHigh bool
			for _, v := range l.values {
				if v == nil {
					continue
				}
				longLow, longHigh = longLow || tooLong(v), longHigh || tooLong(v)
				if low != nil {
					c := compare(l.typ, low, v)
					if atLow = atLow || c == 0; c > 0 {
						tb.Fatalf("%v: footer min %v, value %v", l.path, low, v)
					}
				}
				if high != nil {
					c := compare(l.typ, high, v)
					if atHigh = atHigh || c == 0; c < 0 {
						tb.Fatalf("%v: footer max %v, value %v", l.path, high, v)
					}
				}
			}
			some := nullsOf(l.values) < int64(len(l.values))
			missing := some && (low == nil && !longLow || high == nil && !longHigh)
			if missing || low != nil && !atLow || high != nil && !atHigh {
				tb.Fatalf("%v: footer bounds %v and %v of %v", l.path, low, high, l.values)
			}
		}
	}
	if footer := f.Size - next; int64(binary.LittleEndian.Uint32(f.bytes[f.Size-8:]))+8 != footer {
		tb.Fatalf("%d bytes behind the last column chunk", footer)
	}
}

func tooLong(v any) bool {
	switch v := v.(type) {
	case string:
		return len(v) > maxFooterBound || !utf8.ValidString(v)
	case blob:
		return len(v) > maxFooterBound
	}
	return false
}

// plainValue decodes a value in the encoding that Parquet calls plain. It returns nil for nil bytes.
func plainValue(t arrow.DataType, b []byte) any {
	if b == nil {
		return nil
	}
	switch t := t.(type) {
	case *arrow.BooleanType:
		return b[0] == 1
	case *arrow.StringType:
		return string(b)
	case *arrow.BinaryType:
		return blob(b)
	case *arrow.Decimal128Type:
		v := new(big.Int)
		switch {
		case len(b) == 4 && t.Precision <= 9:
			v.SetInt64(int64(int32(binary.LittleEndian.Uint32(b))))
		case len(b) == 8 && t.Precision <= 18:
			v.SetInt64(int64(binary.LittleEndian.Uint64(b)))
		default:
			if v.SetBytes(b); b[0] >= 0x80 {
				v.Sub(v, new(big.Int).Lsh(big.NewInt(1), uint(8*len(b))))
			}
		}
		unit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(t.Scale)), nil)
		return digits(new(big.Rat).SetFrac(v, unit).FloatString(int(t.Scale)))
	}
	if len(b) == 4 {
		return int64(int32(binary.LittleEndian.Uint32(b)))
	}
	return int64(binary.LittleEndian.Uint64(b))
}

// TestMain fails if a test leaves a goroutine behind.
func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }
