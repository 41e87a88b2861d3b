// Package datafile encodes rows as data files of a Delta table: Parquet, with the statistics for the table's log.
//
// Row groups are encoded in parallel and assembled in order, so that a file does not depend on scheduling: equal
// pieces give equal bytes. The bounds of every column are computed once, from Arrow, for both the Parquet footer and
// Delta's statistics. The path of a row group: columns.go has the schema, shape.go prepares the arrays and computes
// bounds, encode.go makes Parquet of them, assemble.go builds files, stats.go writes the JSON.
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

// Options configure [Encode]. Zero fields take their defaults.
type Options struct {
	// TargetSize is the size in bytes of Parquet at which a file is closed. A file exceeds it by less than one row
	// group. Default: 128 MiB.
	TargetSize int64
	// Parallel is the number of row groups encoded in parallel. Default: GOMAXPROCS.
	Parallel int
	// Statistics returns which statistics a leaf has, given the names from its column down. An array or map is one
	// leaf. Default: all leaves have all statistics.
	Statistics func(path []string) Statistics
	// StringPrefix is the length of string bounds in UTF-16 code units. Default: 32, Delta's own.
	StringPrefix int
	// Partition assigns the rows of a record batch to table partitions; nil for a table without them.
	Partition Partitioner
	// Fit, unless nil, makes rows of the schema of each record batch; see [connector.Snapshot]. The encoders call it, so
	// that at most as many batches as there are shares exist in both forms. With Partition, Encode calls it for one batch
	// after the other, and then needs only the results: progress counts them as encoded bytes.
	Fit func(arrow.RecordBatch) (arrow.RecordBatch, error)
	// Shares bound the encoding of all tables of a process: all calls with the same Shares together encode at most as
	// many row groups at a time as there are shares. Default: Parallel shares for this call only.
	Shares *Shares
	// Progress, unless nil, is called on the goroutine of Encode. done is the number of pieces, counted from the first,
	// that Encode no longer uses. encoded is the number of bytes of the unfinished file in memory; it is 0 once yield
	// has returned.
	Progress func(done int, encoded int64)
}

func (o Options) withDefaults() Options {
	if o.TargetSize <= 0 {
		o.TargetSize = 128 << 20
	}
	if o.Parallel <= 0 {
		o.Parallel = runtime.GOMAXPROCS(0)
	}
	if o.Statistics == nil {
		o.Statistics = func([]string) Statistics { return InLogAndFooter }
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

// Statistics are the statistics that a leaf of the schema has.
type Statistics uint8

// What a leaf can have.
const (
	InLogAndFooter Statistics = iota // bounds and null counts
	InFooter                         // none in the log, bounds and null counts in the Parquet footer
	NoBounds                         // none in the log, null counts in the Parquet footer
)

// File is an encoded data file.
type File struct {
	// Body reads the file from its start. It shares no memory with the rows and may be kept.
	Body io.ReadSeeker
	// Size is the length of the file in bytes.
	Size int64
	// Rows is the number of rows, at least one.
	Rows int64
	// Stats is Delta's statistics JSON for the file, the `stats` of its add action.
	Stats string
	// Partition is the number of the table partition of all rows, as [Options.Partition] returned it.
	Partition int32
}

// Encode encodes pieces in order and passes each finished file to yield, which may upload it. An error of yield ends
// the encoding and is returned unchanged.
//
// Rows become rows of the files in the given order. Consecutive pieces of one record batch become one row group.
// Pieces without rows are skipped; without any row there is no file.
//
// Columns are matched by name, at any depth. A column that a batch lacks is null there; a column that sc lacks is an
// error. A string or binary column may be a dictionary array in any batch.
//
// With [Options.Partition] the rows of a file are all of one table partition, in the given order. Files come in the
// order of the numbers of their table partitions. The pieces are then used until the last file is encoded, and 12 more
// bytes a row.
//
// Memory: the encoded row groups of one file, plus that of Shares. When Encode returns, all its goroutines have ended
// and it holds no reference to the pieces.
func Encode(ctx context.Context, sc *arrow.Schema, pieces []connector.Piece, o Options, yield func(File) error) error {
	o = o.withDefaults()
	cols, err := newColumns(sc, o.Statistics)
	if err != nil {
		return err
	}
	if o.Fit != nil && o.Partition != nil { // a row group has rows of many batches
		var release func()
		if pieces, o, release, err = fitAll(ctx, pieces, o); err != nil {
			return err
		}
		defer release()
	}
	chunks, err := groupPieces(pieces)
	if err == nil && o.Partition != nil {
		cols.absent = o.Partition.Columns()
		chunks, err = partitionChunks(chunks, o.Partition)
	}
	if err != nil || len(chunks) == 0 {
		return err
	}
	return encodeAll(ctx, cols, chunks, o, yield)
}

// encodeAll encodes chunks in parallel and adds their row groups to files in order. At most Parallel row groups at a
// time are being encoded or wait to be added, which bounds the memory.
func encodeAll(ctx context.Context, cols *columns, chunks []chunk, o Options, yield func(File) error) error {
	ctx, cancel := context.WithCancel(ctx)
	window := min(o.Parallel, len(chunks))
	todo := make(chan int, window)
	done := make([]chan encoded, window) // row group i is sent to done[i%window]
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
			e.fit = o.Fit
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
		last := i+1 == len(chunks) || chunks[i+1].partition != chunks[i].partition
		if !last && file.size() < o.TargetSize && !file.full() {
			continue
		}
		whole, err := file.finish(o.StringPrefix)
		if err != nil {
			return fmt.Errorf("encode data file: %w", err)
		}
		whole.Partition = chunks[i].partition
		file = newAssembly(cols)
		if err := yield(whole); err != nil {
			return err
		}
		o.Progress(chunks[i].pieces, 0)
	}
	return nil
}

// shared encodes a chunk once a share is free. For a large chunk it waits until it has all shares.
func (e *encoder) shared(ctx context.Context, shares *Shares, c chunk) encoded {
	taken, err := shares.take(ctx, c.isLarge())
	if err != nil {
		return encoded{err: err}
	}
	defer shares.put(taken)
	e.share = taken[0]
	return e.protected(ctx, c)
}

// protected encodes a chunk and turns a panic into its error: the Parquet writer panics on some malformed arrays, and
// a panic in this goroutine would end the process.
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

// chunk is the rows that become one row group: non-empty, non-adjacent ranges [from, to) of one record batch, or single
// rows of several ones.
type chunk struct {
	rows   arrow.RecordBatch
	ranges [][2]int64
	// gathered are the single rows, in order; rows is then nil. size is about their bytes.
	gathered  []rowRef
	batches   []arrow.RecordBatch
	size      int64
	partition int32
	pieces    int // number of pieces from the first one of the call that are no longer used after this chunk
}

// largeRow is the average size of a row in bytes from which on a chunk is large: it is encoded alone. Its pages are
// much larger than usual, and the Parquet writer holds several copies of a page.
const largeRow = 256 << 10

func (c *chunk) isLarge() bool {
	if c.rows == nil {
		return len(c.gathered) < 1<<10 && c.size >= int64(len(c.gathered))*largeRow
	}
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

// sizeOf returns the bytes in the buffers of an array.
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

// groupPieces returns one chunk for each run of consecutive pieces of the same record batch, without empty pieces. A
// piece that reaches outside of its batch is an error.
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
