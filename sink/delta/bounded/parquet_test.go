package bounded

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
)

var errDamaged = errors.New("damaged")

func damaged(err error) error { return fmt.Errorf("%w: %w", errDamaged, err) }

// memoryFile is a file in memory. Err returns the error in the field, as it would for a file of a failing store.
type memoryFile struct {
	*bytes.Reader
	err error
}

func (f *memoryFile) Err() error { return f.err }

// encoded returns a Parquet file with a column n, which has the numbers from 0 to rows-1.
func encoded(t *testing.T, rows int64) []byte {
	t.Helper()
	schema := arrow.NewSchema([]arrow.Field{{Name: "n", Type: arrow.PrimitiveTypes.Int64}}, nil)
	b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
	for n := range rows {
		b.Field(0).(*array.Int64Builder).Append(n)
	}
	batch := b.NewRecordBatch()
	defer batch.Release()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(schema, &out, parquet.NewWriterProperties(parquet.WithDictionaryDefault(false)), pqarrow.DefaultWriterProps())
	if err == nil {
		err = errors.Join(w.Write(batch), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// read opens a file and returns the number of its rows and the sum of the column n.
func read(t *testing.T, f *memoryFile, memory *Allocator) (rows, sum int64, err error) {
	t.Helper()
	p := NewParquet(f, memory, damaged)
	if err := p.Open(16 << 10); err != nil {
		return 0, 0, err
	}
	r, err := p.Rows(t.Context(), []int{0}, 100)
	if err != nil {
		return 0, 0, err
	}
	defer r.Release()
	for {
		batch, err := r.Next()
		if errors.Is(err, io.EOF) {
			return rows, sum, nil
		}
		if err != nil {
			return rows, sum, err
		}
		for _, n := range batch.Column(0).(*array.Int64).Int64Values() {
			sum += n
		}
		rows += batch.NumRows()
	}
}

func TestParquet(t *testing.T) {
	whole, mem := encoded(t, 1000), New(8<<20)
	if rows, sum, err := read(t, &memoryFile{Reader: bytes.NewReader(whole)}, mem); err != nil || rows != 1000 || sum != 499_500 {
		t.Errorf("%d rows, sum %d: %v", rows, sum, err)
	}
	if mem.Peak() == 0 || mem.Used() > mem.Peak()/2 {
		t.Errorf("%d bytes at most, %d in the end", mem.Peak(), mem.Used())
	}
	if rows, _, err := read(t, &memoryFile{Reader: bytes.NewReader(encoded(t, 0))}, mem); err != nil || rows != 0 {
		t.Errorf("%d rows of none: %v", rows, err)
	}
	for _, cut := range []int{0, 3, 11, len(whole) / 2, len(whole) - 1} {
		if _, _, err := read(t, &memoryFile{Reader: bytes.NewReader(whole[:cut])}, mem); !errors.Is(err, errDamaged) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
}

// TestParquet_Bounds: a file that needs more memory than the allocator has cannot be read. A footer that is too large
// is refused before it is read.
func TestParquet_Bounds(t *testing.T) {
	whole := encoded(t, 100_000)
	for limit, want := range map[int64]string{100 << 10: "page size 800000 exceeds configured limit 102400", 810 << 10: "that one file may take"} {
		if _, _, err := read(t, &memoryFile{Reader: bytes.NewReader(whole)}, New(limit)); !errors.Is(err, errDamaged) || !strings.Contains(err.Error(), want) {
			t.Errorf("pages within %d: %v", limit, err)
		}
	}
	footer := bytes.Clone(whole)
	binary.LittleEndian.PutUint32(footer[len(footer)-8:], 600<<10)
	_, _, err := read(t, &memoryFile{Reader: bytes.NewReader(footer)}, New(8<<20))
	if large := (TooLargeError{}); !errors.As(err, &large) || large.Limit != 8<<20 {
		t.Errorf("footer: %v", err)
	}
}

// TestParquet_Do: a panic of the Parquet reader becomes an error. If the store failed, Do returns the store's error,
// even if the Parquet reader hides it.
func TestParquet_Do(t *testing.T) {
	f := &memoryFile{Reader: bytes.NewReader(nil)}
	p := NewParquet(f, New(1), damaged)
	if err := p.Do(func() error { return nil }); err != nil {
		t.Error(err)
	}
	if err := p.Do(func() error { panic(io.EOF) }); !errors.Is(err, errDamaged) || errors.Is(err, io.EOF) {
		t.Errorf("a panic: %v", err)
	}
	if err := p.Do(func() error { return io.EOF }); !errors.Is(err, errDamaged) {
		t.Errorf("an error: %v", err)
	}
	f.err = errors.New("connection reset")
	for name, piece := range map[string]func() error{
		"success": func() error { return nil }, "error": func() error { return io.EOF }, "panic": func() error { panic(1) },
	} {
		if err := p.Do(piece); !errors.Is(err, f.err) || errors.Is(err, errDamaged) {
			t.Errorf("the store fails, %s: %v", name, err)
		}
	}
}
