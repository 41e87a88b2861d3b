package datafile

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"
	"weak"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"sluice/connector"
)

func noFile(t *testing.T) func(File) error {
	t.Helper()
	return func(f File) error {
		t.Errorf("a file of %d rows", f.Rows)
		return nil
	}
}

func pieceOf(b arrow.RecordBatch) connector.Piece { return connector.Piece{Rows: b, To: b.NumRows()} }

func TestNoRowsNoFile(t *testing.T) {
	sc, b := columnOf(i64, 1, 2)
	_, empty := columnOf(i64)
	for _, pieces := range [][]connector.Piece{nil, {}, {{Rows: b, From: 1, To: 1}}, {pieceOf(empty), {Rows: b}}, {{}}} {
		if err := Encode(t.Context(), sc, pieces, Options{}, noFile(t)); err != nil {
			t.Error(err)
		}
	}
}

// TestRowGroups: consecutive pieces of one batch share a row group, and all rows keep their order.
func TestRowGroups(t *testing.T) {
	sc, a := columnOf(i64, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9)
	_, b := columnOf(i64, 10, 11)
	pieces := []connector.Piece{
		{Rows: a, From: 2, To: 4},
		{Rows: a, From: 4, To: 5},
		{Rows: a, From: 5, To: 5},
		{Rows: a, From: 9, To: 10},
		{Rows: a, From: 0, To: 1},
		{Rows: b, From: 0, To: 0},
		{Rows: a, From: 7, To: 8},
		pieceOf(b),
		{Rows: a, From: 8, To: 9},
	}
	f := encodeAllFiles(t, sc, pieces, Options{})[0]
	f.read(t, sc)
	var rows, groups []int64
	for _, r := range f.rows {
		rows = append(rows, r[0].(int64))
	}
	for _, g := range f.meta.RowGroups {
		groups = append(groups, g.NumRows)
	}
	if want := []int64{2, 3, 4, 9, 0, 7, 10, 11, 8}; !slices.Equal(rows, want) {
		t.Errorf("rows %v, want %v", rows, want)
	}
	if want := []int64{6, 2, 1}; !slices.Equal(groups, want) {
		t.Errorf("row groups of %v rows, want %v", groups, want)
	}
}

func TestRefused(t *testing.T) {
	required := func(name string, typ arrow.DataType) arrow.Field { return arrow.Field{Name: name, Type: typ} }
	sc, ok := columnOf(i64, 1)
	badIndex := func() arrow.RecordBatch {
		b := array.NewInt32Builder(memory.DefaultAllocator)
		b.AppendValues([]int32{0, 1}, nil)
		_, one := columnOf(str, "only")
		d := array.NewData(dictionary, 2, b.NewArray().Data().Buffers(), nil, 0, 0)
		d.SetDictionary(one.Column(0).Data())
		return array.NewRecordBatch(schemaOf(nullable("x", dictionary)), []arrow.Array{array.NewDictionaryData(d)}, 2)
	}
	tooLarge := func() arrow.RecordBatch {
		b := array.NewDecimal128Builder(memory.DefaultAllocator, decimal202)
		b.Append(decimal128.GetMaxValue(21))
		return array.NewRecordBatch(schemaOf(nullable("x", decimal202)), []arrow.Array{b.NewArray()}, 1)
	}
	nested := arrow.StructOf(nullable("f", i64))
	for _, c := range []struct {
		name string
		sc   *arrow.Schema
		in   connector.Piece
		want string
	}{
		{"range beyond the batch", sc, connector.Piece{Rows: ok, To: 2}, "piece 0 is [0,2) of 1 rows"},
		{"range before the batch", sc, connector.Piece{Rows: ok, From: -1, To: 1}, "piece 0 is [-1,1) of 1 rows"},
		{"range that goes back", sc, connector.Piece{Rows: ok, From: 1, To: 0}, "piece 0 is [1,0) of 1 rows"},
		{
			"a column too many", sc,
			pieceOf(batchOf(schemaOf(nullable("x", i64), nullable("y", i64)), []any{1, 2})),
			"column that the table does not have: y",
		},
		{
			"a field too many", schemaOf(nullable("s", nested)),
			pieceOf(batchOf(schemaOf(nullable("s", arrow.StructOf(nullable("f", i64), nullable("g", i64)))), []any{[]any{1, 2}})),
			"column s: the rows have a field that the table does not have: g",
		},
		{
			"another type", sc,
			pieceOf(batchOf(schemaOf(nullable("x", str)), []any{"1"})),
			"column x is int64, the rows have utf8",
		},
		{
			"a dictionary of another type", sc,
			pieceOf(batchOf(schemaOf(nullable("x", dictionary)), []any{"1"})),
			"column x is int64, the rows have dictionary",
		},
		{
			"another unit", schemaOf(nullable("x", timestamp)),
			pieceOf(batchOf(schemaOf(nullable("x", arrow.FixedWidthTypes.Timestamp_ms)), []any{1})),
			"the rows have timestamp[ms",
		},
		{
			"with and without time zone", schemaOf(nullable("x", timestamp)),
			pieceOf(batchOf(schemaOf(nullable("x", timestampNTZ)), []any{1})),
			"the rows have timestamp[us]",
		},
		{
			"another scale", schemaOf(nullable("x", &arrow.Decimal128Type{Precision: 5, Scale: 2})),
			pieceOf(batchOf(schemaOf(nullable("x", &arrow.Decimal128Type{Precision: 5, Scale: 3})), []any{"1"})),
			"the rows have decimal(5, 3)",
		},
		{
			"null in a required column", schemaOf(required("x", i64)),
			pieceOf(batchOf(sc, []any{1}, []any{nil})),
			"column x must not be null, 1 rows are",
		},
		{
			"a required column is missing", schemaOf(nullable("x", i64), required("y", i64)),
			pieceOf(ok),
			"column y must not be null, 1 rows are",
		},
		{
			"null in a required field", schemaOf(nullable("s", arrow.StructOf(required("f", i64)))),
			pieceOf(batchOf(schemaOf(nullable("s", nested)), []any{nil}, []any{[]any{nil}}, []any{[]any{1}})),
			"column s.f must not be null, 1 rows are",
		},
		{
			"null among required elements", schemaOf(nullable("l", arrow.ListOfNonNullable(str))),
			pieceOf(batchOf(schemaOf(nullable("l", arrow.ListOf(str))), []any{[]any{"a", nil}})),
			"column l[] must not be null, 1 rows are",
		},
		{
			"an index outside of its dictionary", schemaOf(nullable("x", str)),
			pieceOf(badIndex()),
			"column x: an index is outside of its dictionary",
		},
		{
			"a decimal with too many digits", schemaOf(nullable("x", decimal202)),
			pieceOf(tooLarge()),
			"column x: a decimal has more than 20 digits",
		},
		{
			"a type that is not written", schemaOf(nullable("x", arrow.PrimitiveTypes.Uint64)),
			pieceOf(ok),
			"column x has type uint64",
		},
		{
			"a unit that is not written", schemaOf(nullable("x", arrow.FixedWidthTypes.Timestamp_ns)),
			pieceOf(ok),
			"column x has type timestamp[ns",
		},
		{
			"a nested type that is not written", schemaOf(nullable("s", arrow.StructOf(nullable("l", arrow.ListOf(arrow.Null))))),
			pieceOf(ok),
			"column s.l[] has type null",
		},
		{"an empty struct", schemaOf(nullable("s", arrow.StructOf())), pieceOf(ok), "struct without fields"},
		{"two columns of one name", schemaOf(nullable("x", i64), nullable("x", i64)), pieceOf(ok), "two columns x"},
		{"no column", schemaOf(), pieceOf(ok), "without columns"},
	} {
		t.Run(c.name, func(t *testing.T) {
			err := Encode(t.Context(), c.sc, []connector.Piece{c.in}, Options{}, noFile(t))
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %q", err, c.want)
			}
		})
	}
}

// many returns n pieces of one batch each, their schema, and options for which each piece becomes a file of one row
// group.
func many(n int) (*arrow.Schema, []connector.Piece, Options) {
	sc, b := columnOf(i64, 1, 2, 3)
	pieces := make([]connector.Piece, n)
	for i := range pieces {
		pieces[i] = pieceOf(b.NewSlice(0, 3))
	}
	return sc, pieces, Options{TargetSize: 1, Parallel: 3}
}

// TestErrorOfYield: if yield returns an error, the encoding ends and Encode returns that error unchanged. TestMain
// checks that no goroutine is left.
func TestErrorOfYield(t *testing.T) {
	sc, pieces, o := many(20)
	broken, calls := errors.New("upload failed"), 0
	err := Encode(t.Context(), sc, pieces, o, func(File) error {
		if calls++; calls == 2 {
			return broken
		}
		return nil
	})
	if err != broken || calls != 2 { //nolint:errorlint // the very error, not one that wraps it
		t.Errorf("error %v after %d calls", err, calls)
	}
}

func TestCancel(t *testing.T) {
	sc, pieces, o := many(20)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	err := Encode(ctx, sc, pieces, o, func(File) error {
		if calls++; calls == 3 {
			cancel()
		}
		return nil
	})
	if !errors.Is(err, context.Canceled) || calls < 3 || calls > 3+o.Parallel {
		t.Errorf("error %v after %d calls", err, calls)
	}
	if err := Encode(ctx, sc, pieces, o, noFile(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("error %v, canceled before the start", err)
	}
}

// TestCancelWaits: after ctx has ended, Encode returns only once its encoders no longer use the rows.
func TestCancelWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		sc, pieces, o := many(3)
		var left atomic.Int32
		for i, p := range pieces {
			pieces[i].Rows = slow{p.Rows, ctx, &left}
		}
		time.AfterFunc(time.Second, cancel)
		if err := Encode(ctx, sc, pieces, o, noFile(t)); !errors.Is(err, context.Canceled) || left.Load() != 3 {
			t.Errorf("error %v, %d of 3 encoders had ended", err, left.Load())
		}
	})
}

// slow is a record batch that delays the reading of its columns once ctx has ended.
type slow struct {
	arrow.RecordBatch
	ctx  context.Context //nolint:containedctx // of the test
	left *atomic.Int32
}

func (s slow) Column(i int) arrow.Array {
	<-s.ctx.Done()
	time.Sleep(time.Minute)
	s.left.Add(1)
	return s.RecordBatch.Column(i)
}

// TestPanics: a panic in an encoder becomes an error. A panic in yield reaches the caller of Encode and leaves no
// goroutine.
func TestPanics(t *testing.T) {
	sc, pieces, o := many(20)
	pieces[4].Rows = panicking{pieces[4].Rows}
	calls := 0
	err := Encode(t.Context(), sc, pieces, o, func(File) error { calls++; return nil })
	if err == nil || !strings.Contains(err.Error(), "panic of type string") || calls != 4 {
		t.Errorf("error %v after %d files", err, calls)
	}
	defer func() {
		if r := recover(); r != "oh" {
			t.Errorf("recovered %v", r)
		}
	}()
	sc, pieces, o = many(20)
	_ = Encode(t.Context(), sc, pieces, o, func(File) error { panic("oh") })
}

type panicking struct{ arrow.RecordBatch }

func (panicking) Column(int) arrow.Array { panic("no such column") }

// watched is a record batch that calls count when an encoder first reads it.
type watched struct {
	arrow.RecordBatch
	once  sync.Once
	count func()
}

func (w *watched) Column(i int) arrow.Array {
	w.once.Do(w.count)
	return w.RecordBatch.Column(i)
}

// TestWindow: during a slow upload, at most Parallel row groups are being encoded or wait for the file.
func TestWindow(t *testing.T) {
	sc, pieces, o := many(40)
	var mu sync.Mutex
	started, all := 0, make(chan struct{}, len(pieces))
	for i, p := range pieces {
		pieces[i].Rows = &watched{RecordBatch: p.Rows, count: func() {
			mu.Lock()
			started++
			mu.Unlock()
			all <- struct{}{}
		}}
	}
	files, seen := 0, 0
	err := Encode(t.Context(), sc, pieces, o, func(File) error {
		files++
		// While this file is uploaded, the encoders begin with as many row groups as the window allows.
		for ; seen < min(files+o.Parallel, len(pieces)); seen++ {
			<-all
		}
		runtime.Gosched()
		mu.Lock()
		defer mu.Unlock()
		if started > files+o.Parallel {
			return fmt.Errorf("%d row groups begun while file %d waits", started, files)
		}
		return nil
	})
	if err != nil || files != 40 {
		t.Errorf("error %v after %d files", err, files)
	}
}

// TestNothingRefersToTheRows: an encoded file stays intact after the memory of its rows was freed or overwritten.
func TestNothingRefersToTheRows(t *testing.T) {
	sc := schemaOf(nullable("n", i64), nullable("s", str))
	make1 := func() (numbers, text []byte, b arrow.RecordBatch) {
		numbers, text = make([]byte, 8*1000), []byte(strings.Repeat("abcdefgh", 1000))
		offsets := make([]int32, 1001)
		for i := range offsets {
			offsets[i] = int32(8 * i)
		}
		n := fromData(i64, 1000, []*memory.Buffer{nil, memory.NewBufferBytes(numbers)}, nil, 0)
		starts := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))
		s := fromData(str, 1000, []*memory.Buffer{nil, starts, memory.NewBufferBytes(text)}, nil, 0)
		return numbers, text, array.NewRecordBatch(sc, []arrow.Array{n, s}, 1000)
	}
	var files []File
	keep := func(f File) error { files = append(files, f); return nil }
	var watch [2]weak.Pointer[byte]
	func() {
		numbers, text, b := make1()
		if err := Encode(t.Context(), sc, []connector.Piece{{Rows: b, From: 1, To: 900}}, Options{}, keep); err != nil {
			t.Fatal(err)
		}
		watch[0], watch[1] = weak.Make(&numbers[0]), weak.Make(&text[0])
	}()
	runtime.GC()
	runtime.GC()
	for i, w := range watch {
		if w.Value() != nil {
			t.Errorf("the memory of column %d is still referred to", i)
		}
	}
	numbers, text, b := make1()
	if err := Encode(t.Context(), sc, []connector.Piece{{Rows: b, From: 1, To: 900}}, Options{}, keep); err != nil {
		t.Fatal(err)
	}
	for i := range numbers {
		numbers[i] = 0xFF
	}
	for i := range text {
		text[i] = 0xFF
	}
	first, err1 := io.ReadAll(files[0].Body)
	second, err2 := io.ReadAll(files[1].Body)
	if err1 != nil || err2 != nil || !bytes.Equal(first, second) || files[0].Stats != files[1].Stats {
		t.Error("the file changed with the memory of its rows", err1, err2)
	}
}

// TestDetach: the bounds of a row group do not keep its rows in memory.
func TestDetach(t *testing.T) {
	text := []byte(strings.Repeat("x", 100))
	s := stat{minBytes: text[:5], maxBytes: text}
	s.detach(70)
	text[0] = 'y'
	if string(s.minBytes) != "xxxxx" || string(s.maxBytes) != strings.Repeat("x", 70) {
		t.Errorf("bounds %q and %q", s.minBytes, s.maxBytes)
	}
}

// TestReferences: Encode releases all references to arrays that it takes.
func TestReferences(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		mem := memory.NewCheckedAllocator(memory.NewGoAllocator())
		sc := schemaOf(nullable("s", str),
			nullable("l", arrow.ListOf(arrow.StructOf(nullable("a", str), nullable("b", f64)))))
		b := array.NewRecordBuilder(mem, sc)
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		for range 200 {
			for i := range 2 {
				if r.IntN(4) == 0 {
					b.Field(i).AppendNull()
					continue
				}
				switch f := b.Field(i).(type) {
				case *array.StringBuilder:
					f.Append(fmt.Sprint(r.IntN(1 << r.IntN(20))))
				case *array.ListBuilder:
					f.Append(true)
					for range r.IntN(3) {
						f.ValueBuilder().(*array.StructBuilder).Append(true)
						f.ValueBuilder().(*array.StructBuilder).FieldBuilder(0).(*array.StringBuilder).Append("x")
						f.ValueBuilder().(*array.StructBuilder).FieldBuilder(1).(*array.Float64Builder).Append(r.Float64())
					}
				}
			}
		}
		rows := b.NewRecordBatch()
		b.Release()
		pieces := []connector.Piece{{Rows: rows, From: 3, To: 50}, {Rows: rows, From: 60, To: 200}}
		encodeAllFiles(t, sc, pieces, Options{})
		rows.Release()
		if n := mem.CurrentAlloc(); n != 0 {
			t.Fatalf("%d bytes are still referred to", n)
		}
	})
}

func TestBody(t *testing.T) {
	content := "the parts of a file, one after the other"
	for _, parts := range [][]string{{content}, {"", "the ", "", "parts of a file", ", one after the othe", "r", ""}} {
		var list [][]byte
		for _, p := range parts {
			list = append(list, []byte(p))
		}
		if err := iotest.TestReader(newBody(list), []byte(content)); err != nil {
			t.Error(err)
		}
		b := newBody(list)
		if _, err := b.Seek(-1, io.SeekStart); err == nil {
			t.Error("seek before the start")
		}
		if _, err := b.Seek(0, 7); err == nil {
			t.Error("seek with an unknown whence")
		}
		if at, err := b.Seek(100, io.SeekStart); at != 100 || err != nil {
			t.Error("seek beyond the end:", at, err)
		}
		if n, err := b.Read(make([]byte, 3)); n != 0 || !errors.Is(err, io.EOF) {
			t.Error("read beyond the end:", n, err)
		}
	}
	if n, err := newBody(nil).Read(make([]byte, 1)); n != 0 || !errors.Is(err, io.EOF) {
		t.Error("read of nothing:", n, err)
	}
}

// TestValidRuns compares the runs of valid rows in a bitmap with those in a list of booleans.
func TestValidRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := rapid.SliceOfN(rapid.Bool(), 0, 200).Draw(t, "rows")
		if rapid.Bool().Draw(t, "long") {
			want = append(append(slices.Repeat([]bool{true}, 70), want...), slices.Repeat([]bool{true}, 64)...)
		}
		v, n := newValid(len(want)), 0
		for i, w := range want {
			if w {
				v[i/8] |= 1 << (i % 8)
				n++
			}
		}
		for i := len(want); i < 8*len(v); i++ { // bits after the last row have no meaning, so the test sets some
			v[i/8] |= 1 << (i % 8)
		}
		got, end := make([]bool, len(want)), -1
		v.runs(len(want), func(from, to int) {
			if from <= end || from >= to || to > len(want) {
				t.Fatalf("run [%d,%d) after %d", from, to, end)
			}
			end = to
			for i := from; i < to; i++ {
				got[i] = true
			}
		})
		if !slices.Equal(got, want) || v.count(len(want)) != n {
			t.Fatalf("runs %v of %v", got, want)
		}
	})
}
