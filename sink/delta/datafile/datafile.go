// Package datafile turns rows into the data files of a Delta table: Parquet, with the statistics that go into the
// table's log.
//
// Row groups are encoded side by side and put together in order, so that a file does not depend on scheduling: equal
// pieces give equal bytes. The bounds of every column are computed once, from Arrow, and used for the Parquet footer
// and for Delta alike. The way of a row group: columns.go says what is written, shape.go brings the arrays to it and
// computes bounds, encode.go makes Parquet of them, assemble.go puts files together, stats.go writes the JSON.
package datafile

import (
	"context"
	"fmt"
	"io"
	"runtime"
	"sync"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector"
	"sluice/reliability/pulse"
)

// Options of the encoder. The zero value of each field means its default.
type Options struct {
	// TargetSize is the size in Parquet bytes at which a file is closed. It is passed by less than one row group.
	// Default: 128 MiB.
	TargetSize int64
	// Parallel is the number of row groups encoded side by side. Default: GOMAXPROCS.
	Parallel int
	// IndexedLeaves is how many leaves get statistics in the log, counted as Delta counts them: in the order of the
	// schema, an array or map as one. Default: 32, Delta's own; negative: all. The Parquet footer is not limited.
	IndexedLeaves int
	// StringPrefix is the length of string bounds in UTF-16 code units. Default: 32, Delta's own.
	StringPrefix int
	// Shares are the working memory of encoders, for all tables of a process. Default: Parallel of them for this call.
	Shares *Shares
	// Progress is called by the goroutine of Encode: the first done pieces are not touched any more, and the file that is
	// put together has so many bytes in memory, which are gone when yield has returned. May be nil.
	Progress func(done int, encoded int64)
}

func (o Options) withDefaults() Options {
	if o.TargetSize <= 0 {
		o.TargetSize = 128 << 20
	}
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	if o.IndexedLeaves == 0 {
		o.IndexedLeaves = 32
	}
	if o.StringPrefix <= 0 {
		o.StringPrefix = 32
	}
	if o.Shares == nil {
		o.Shares = NewShares(o.Parallel)
	}
	if o.Progress == nil {
		o.Progress = func(int, int64) {}
	}
	return o
}

// File is a data file.
type File struct {
	// Body is the file from its start. It shares no memory with the rows and may be kept.
	Body io.ReadSeeker
	// Size is the file's length in bytes.
	Size int64
	// Rows is the number of rows, at least one.
	Rows int64
	// Stats is Delta's statistics JSON for the file, the `stats` of its add action.
	Stats string
}

// Encode encodes pieces in order and hands over each file when it is whole. yield may upload it; its error ends the
// encoding and is returned as it is.
//
// Rows become rows of the files in the order given. The pieces of one record batch that follow each other become one
// row group; pieces without rows are passed over, and without any row there is no file.
//
// Columns are found by name, at any depth. One that a batch lacks is null there; one that sc lacks is an error. A
// string or binary column may come as a dictionary array, in any batch.
//
// Memory: the encoded row groups of one file, and what Shares take. All goroutines
// have ended and nothing refers to the pieces when Encode returns.
func Encode(ctx context.Context, sc *arrow.Schema, pieces []connector.Piece, o Options, yield func(File) error) error {
	o = o.withDefaults()
	cols, err := newColumns(sc, o.IndexedLeaves)
	if err != nil {
		return err
	}
	chunks, err := groupPieces(pieces)
	if err != nil || len(chunks) == 0 {
		return err
	}
	return encodeAll(ctx, cols, chunks, o, yield)
}

// encodeAll runs the encoders a window of Parallel row groups ahead of the file that is being put together: what is
// encoded and not yet taken counts as much as what is being encoded.
func encodeAll(ctx context.Context, cols *columns, chunks []chunk, o Options, yield func(File) error) error {
	ctx, cancel := context.WithCancel(ctx)
	window := min(o.Parallel, len(chunks))
	todo := make(chan int, window)
	done := make([]chan encoded, window) // row group i answers on done[i%window]
	for i := range done {
		done[i] = make(chan encoded, 1)
	}
	var encoders sync.WaitGroup
	defer encoders.Wait()
	defer close(todo)
	defer cancel()
	for range window {
		encoders.Go(func() {
			e := newEncoder(cols, o.StringPrefix)
			for i := range todo {
				done[i%window] <- e.shared(ctx, o.Shares, chunks[i])
			}
		})
	}
	for i := range window {
		todo <- i
	}
	file := newAssembly(cols)
	for i := range chunks {
		var g encoded
		select {
		case g = <-done[i%window]:
		case <-ctx.Done():
			return fmt.Errorf("encode data file: %w", ctx.Err())
		}
		if g.err != nil {
			return fmt.Errorf("encode data file: %w", g.err)
		}
		if next := i + window; next < len(chunks) {
			todo <- next
		}
		if err := file.add(g); err != nil {
			return fmt.Errorf("encode data file: %w", err)
		}
		pulse.Of(ctx).Turn()
		o.Progress(chunks[i].pieces, file.size())
		if i+1 < len(chunks) && file.size() < o.TargetSize && !file.full() {
			continue
		}
		whole, err := file.finish(o.StringPrefix)
		if err != nil {
			return fmt.Errorf("encode data file: %w", err)
		}
		file = newAssembly(cols)
		if err := yield(whole); err != nil {
			return err
		}
		o.Progress(chunks[i].pieces, 0)
	}
	return nil
}

// shared encodes a chunk when there is a share for it.
func (e *encoder) shared(ctx context.Context, shares *Shares, c chunk) encoded {
	taken, err := shares.take(ctx, c.isLarge())
	if err != nil {
		return encoded{err: err}
	}
	defer shares.put(taken)
	e.share = taken[0]
	return e.protected(ctx, c)
}

// protected encodes a chunk and turns a panic into its error: one in a goroutine would end the process whatever the
// caller recovers from, and the Parquet writer panics on some malformed arrays.
func (e *encoder) protected(ctx context.Context, c chunk) (g encoded) {
	defer func() {
		if r := recover(); r != nil {
			g = encoded{err: connector.Recovered("encode", r)}
		}
	}()
	g, err := e.encode(ctx, c)
	if err != nil {
		return encoded{err: err}
	}
	return g
}

// chunk is the rows of one record batch that become one row group, as ranges [from, to) that are not empty and do not
// touch.
type chunk struct {
	rows   arrow.RecordBatch
	ranges [][2]int64
	pieces int // of all, up to the end of this chunk
}

// largeRow is the size from which on rows make pages much larger than pages should be, of which the Parquet writer holds
// several copies.
const largeRow = 256 << 10

func (c *chunk) isLarge() bool {
	rows := c.rows.NumRows()
	if rows >= 1<<10 {
		return false
	}
	size := int64(0)
	for _, column := range c.rows.Columns() {
		size += sizeOf(column.Data())
	}
	return size >= rows*largeRow
}

// sizeOf is what the buffers of an array hold.
func sizeOf(data arrow.ArrayData) (size int64) {
	for _, b := range data.Buffers() {
		if b != nil {
			size += int64(b.Len())
		}
	}
	for _, child := range data.Children() {
		size += sizeOf(child)
	}
	if d, ok := data.Dictionary().(*array.Data); ok && d != nil {
		size += sizeOf(d)
	}
	return size
}

// groupPieces gathers pieces that follow each other and stem from the same record batch.
func groupPieces(pieces []connector.Piece) ([]chunk, error) {
	var chunks []chunk
	for i, p := range pieces {
		if p.From < 0 || p.To < p.From || p.From < p.To && p.To > p.Rows.NumRows() {
			return nil, fmt.Errorf("encode data file: piece %d is [%d,%d) of %d rows", i, p.From, p.To, p.Rows.NumRows())
		}
		if p.From == p.To {
			continue
		}
		if len(chunks) == 0 || chunks[len(chunks)-1].rows != p.Rows {
			chunks = append(chunks, chunk{rows: p.Rows})
		}
		c := &chunks[len(chunks)-1]
		c.pieces = i + 1
		if n := len(c.ranges); n > 0 && c.ranges[n-1][1] == p.From {
			c.ranges[n-1][1] = p.To
			continue
		}
		c.ranges = append(c.ranges, [2]int64{p.From, p.To})
	}
	return chunks, nil
}
