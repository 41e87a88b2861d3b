package datafile

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"pgregory.net/rapid"

	"sluice/connector"
)

// drawn assigns rows to table partitions at random, the same in each call for a batch.
type drawn struct {
	of     map[arrow.RecordBatch][]int32
	absent []string
	err    error
}

func (d *drawn) Of(rows arrow.RecordBatch) ([]int32, error) { return d.of[rows], d.err }

func (d *drawn) Columns() []string { return d.absent }

// TestSortedRowBytes: sorting takes the memory that builders of rows reserve for it: a reference and a number a row.
func TestSortedRowBytes(t *testing.T) {
	var number int32
	if n := unsafe.Sizeof(rowRef{}) + unsafe.Sizeof(number); n != 12 { // schema.SortedRowBytes, which is in another layer
		t.Errorf("%d bytes", n)
	}
}

// TestPartitions: the rows of the files are the rows of the pieces. Each file has rows of one table partition, in the
// order of the pieces, and right statistics and footers.
func TestPartitions(t *testing.T) { rapid.Check(t, partitions) }

func partitions(t *rapid.T) {
	r := newRandom(rapid.Uint64().Draw(t, "seed"))
	sc := r.schema()
	o := Options{TargetSize: int64(1 + r.IntN(20_000)), Parallel: 1 + r.IntN(3)}
	d := &drawn{of: map[arrow.RecordBatch][]int32{}}
	o.Partition = d
	pieces, kinds, run := r.pieces(sc), 1+r.IntN(5), 1+r.IntN(60)
	for _, p := range pieces {
		if d.of[p.Rows] != nil {
			continue
		}
		ids, id := make([]int32, p.Rows.NumRows()), int32(0)
		for row := range ids {
			if r.chance(run) {
				id = int32(r.IntN(kinds))
			}
			ids[row] = id
		}
		d.of[p.Rows] = ids
	}
	want := make([][][]any, kinds)
	for _, p := range pieces {
		for row := p.From; row < p.To; row++ {
			id := d.of[p.Rows][row]
			want[id] = append(want[id], rowsOf(sc, []connector.Piece{{Rows: p.Rows, From: row, To: row + 1}})...)
		}
	}
	got, last, done := make([][][]any, kinds), int32(0), 0
	o.Progress = func(n int, _ int64) { done = n }
	for _, f := range encodeAllFiles(t, sc, pieces, o) {
		if f.Partition < last {
			t.Fatalf("a file of table partition %d after one of %d", f.Partition, last)
		}
		last = f.Partition
		f.read(t, sc)
		checkStats(t, sc, &f, o)
		checkFooter(t, sc, &f, o)
		got[last] = append(got[last], f.rows...)
	}
	total := 0
	for id := range want {
		sameRows(t, want[id], got[id])
		total += len(want[id])
	}
	if total > 0 && done == 0 {
		t.Fatal("the pieces are not released at the end")
	}
}

// TestPartitions_RowGroups: few rows of many batches share a row group, and many rows of one batch are one.
func TestPartitions_RowGroups(t *testing.T) {
	sc := schemaOf(nullable("x", i64))
	d := &drawn{of: map[arrow.RecordBatch][]int32{}, absent: []string{"p"}}
	in := schemaOf(nullable("x", i64), nullable("p", str))
	var pieces []connector.Piece
	for range 6 {
		xs, ps := array.NewInt64Builder(memory.DefaultAllocator), array.NewStringBuilder(memory.DefaultAllocator)
		ids := make([]int32, 10_000)
		for row := range ids {
			ids[row] = 1 // one large table partition
			if row%100 == 0 {
				ids[row] = 0 // and a small one
			}
			xs.Append(int64(row))
			ps.Append("p")
		}
		b := array.NewRecordBatch(in, []arrow.Array{xs.NewArray(), ps.NewArray()}, int64(len(ids)))
		d.of[b] = ids
		pieces = append(pieces, pieceOf(b))
	}
	files := encodeAllFiles(t, sc, pieces, Options{Partition: d})
	if len(files) != 2 {
		t.Fatalf("%d files", len(files))
	}
	for i, want := range []int{1, 6} {
		files[i].read(t, sc)
		if n := len(files[i].meta.RowGroups); n != want {
			t.Errorf("file %d has %d row groups, want %d", i, n, want)
		}
	}
	if files[0].Rows != 600 || files[1].Rows != 59_400 {
		t.Errorf("files of %d and %d rows", files[0].Rows, files[1].Rows)
	}
}

// TestPartitions_LargeRows: gathered rows count by their own size, also if a dictionary has their text once or if the other
// rows of their batch are small. So a row group of them stays near its bound.
func TestPartitions_LargeRows(t *testing.T) {
	const large, batches = 1 << 20, 64
	for name, of := range map[string]func(string) arrow.Array{
		"plain": func(text string) arrow.Array {
			b := array.NewStringBuilder(memory.DefaultAllocator)
			b.Append(text)
			b.AppendEmptyValues(999)
			return b.NewArray()
		},
		"dictionary": func(text string) arrow.Array {
			b := array.NewDictionaryBuilder(memory.DefaultAllocator, &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Uint32, ValueType: str}).(*array.BinaryDictionaryBuilder)
			for row := range 1000 {
				value := ""
				if row == 0 {
					value = text
				}
				if err := b.AppendString(value); err != nil {
					t.Fatal(err)
				}
			}
			return b.NewArray()
		},
		"nested": func(text string) arrow.Array {
			b := array.NewBuilder(memory.DefaultAllocator, arrow.ListOf(arrow.StructOf(nullable("s", str)))).(*array.ListBuilder)
			s := b.ValueBuilder().(*array.StructBuilder)
			for row := range 1000 {
				b.Append(true)
				if row == 0 {
					s.Append(true)
					s.FieldBuilder(0).(*array.StringBuilder).Append(text)
				}
			}
			return b.NewArray()
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := &drawn{of: map[arrow.RecordBatch][]int32{}}
			var pieces []connector.Piece
			for i := range batches {
				a := of(strings.Repeat(string(rune('a'+i%26)), large))
				b := array.NewRecordBatch(schemaOf(nullable("x", a.DataType())), []arrow.Array{a}, int64(a.Len()))
				d.of[b] = make([]int32, a.Len())
				for row := range d.of[b] {
					d.of[b][row] = int32(min(row, 1)) // the large row is in a table partition of its own
				}
				pieces = append(pieces, pieceOf(b))
			}
			chunks, err := groupPieces(pieces)
			if err == nil {
				chunks, err = partitionChunks(chunks, d)
			}
			if err != nil {
				t.Fatal(err)
			}
			groups := 0
			for _, c := range chunks {
				if c.partition == 0 {
					groups++
					if c.size > gatheredBytes+large+100 || len(c.gathered) > 17 {
						t.Errorf("%d rows of %d bytes in a row group", len(c.gathered), c.size)
					}
				}
			}
			if groups != 4 {
				t.Errorf("%d row groups", groups)
			}
		})
	}
}

func TestPartitions_Errors(t *testing.T) {
	sc, b := columnOf(i64, 1, 2, 1)
	mine := errors.New("no value")
	d := &drawn{of: map[arrow.RecordBatch][]int32{b: {0, 1, 0}}, err: mine}
	if err := Encode(t.Context(), sc, []connector.Piece{pieceOf(b)}, Options{Partition: d}, noFile(t)); !errors.Is(err, mine) {
		t.Error(err)
	}
	d.err = nil
	for want, other := range map[string]*arrow.Schema{
		"column that the table does not have: x": schemaOf(nullable("y", i64)),
		"column x is utf8":                       schemaOf(nullable("x", str)),
	} {
		if err := Encode(t.Context(), other, []connector.Piece{pieceOf(b)}, Options{Partition: d}, noFile(t)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
}
