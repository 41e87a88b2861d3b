package scan

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/metadata"

	"sluice/sink/delta/bounded"
	"sluice/sink/delta/deltalog"
)

// Divisors of a query's memory. A quarter is for prefetched bytes, a sixteenth for read buffers, and a sixteenth for
// the rows of a batch, which take three times that while they grow. The rest is for pages.
const (
	shareAhead  = 4
	shareBatch  = 16
	shareBuffer = 16 // the read buffers of the column chunks that are not prefetched

	batchRows = 64 << 10
)

// reader reads one data file.
type reader struct {
	scan *scan
	f    deltalog.File
	mem  *bounded.Allocator
	src  *source
	file *bounded.Parquet

	leaves []int // index in the file of each column of the query; -1 if the file lacks it
	buffer int64 // size of the read buffer of each column
	out    *builders
}

// readFile passes the rows of the wanted row groups of a file to the caller.
func readFile(ctx context.Context, s *scan, f deltalog.File) error {
	mem := bounded.New(s.query.Bytes)
	r := &reader{
		scan: s, f: f, mem: mem, out: newBuilders(mem, s.columns),
		src: &source{ctx: ctx, store: s.store, key: deltalog.Key(f.Path), size: f.Size},
	}
	r.file = bounded.NewParquet(r.src, mem, damaged)
	defer r.out.release()
	if err := r.sound(r.tail); err != nil {
		return err
	}
	r.buffer = min(max(mem.Limit()/shareBuffer/int64(max(len(s.columns), 1)), 16<<10), 1<<20)
	if err := r.file.Open(r.buffer); err != nil {
		return r.named(err)
	}
	var groups []int
	if err := r.sound(func() (err error) { groups, err = r.wanted(); return err }); err != nil {
		return err
	}
	for len(groups) > 0 {
		var n int
		if err := r.sound(func() (err error) { n, err = r.ahead(groups); return err }); err != nil {
			return err
		}
		for _, g := range groups[:n] {
			if err := r.group(g); err != nil {
				return err
			}
		}
		groups = groups[n:]
	}
	return nil
}

// damaged returns an error of the Parquet reader as an [ErrUnsound].
func damaged(err error) error {
	if errors.Is(err, ErrUnsound) {
		return err
	}
	return unsound("%v", err)
}

// sound runs a function that calls the Parquet reader: see [bounded.Parquet.Do]. It adds the file's path to errors.
func (r *reader) sound(piece func() error) error { return r.named(r.file.Do(piece)) }

// named adds the path of the file to an error.
func (r *reader) named(err error) error {
	if err != nil {
		return fmt.Errorf("scan %s: %w", r.f.Path, err)
	}
	return nil
}

// tail reads the end of the file into memory. It returns [ErrUnsound] if the log says that the file is too short for
// Parquet.
func (r *reader) tail() error {
	if r.src.size < 12 { // a Parquet file has at least two magic numbers and a length
		return unsound("the log says that it has %d bytes", r.src.size)
	}
	return r.src.open(r.mem)
}

// wanted returns the indexes of the row groups that may hold rows of interest. It stores the index of each column of
// the query in r.leaves, or -1 if the file lacks the column.
func (r *reader) wanted() (groups []int, err error) {
	md, filter := r.file.Content().MetaData(), r.scan.wanted()
	r.leaves = make([]int, len(r.scan.columns))
	for i, c := range r.scan.columns {
		r.leaves[i] = -1
		if !c.partitioned {
			if r.leaves[i], err = findLeaf(md.Schema, c); err != nil {
				return nil, err
			}
		}
	}
	for g := range r.file.Content().NumRowGroups() {
		if group := md.RowGroup(g); group.NumRows() > 0 && (filter.all() || !filter.excludes(groupBounds(group, md.Schema))) {
			groups = append(groups, g)
		}
	}
	return groups, nil
}

// ahead prefetches the columns of as many row groups as fit into memory at once, and returns their number. A row
// group that is too large by itself is read piece by piece.
func (r *reader) ahead(groups []int) (n int, err error) {
	var all, fetch []piece
	for n < len(groups) {
		ranges, err := r.ranges(groups[n])
		if err != nil {
			return 0, err
		}
		all = append(all, ranges...)
		joined := r.src.joined(all)
		var sum int64
		for _, p := range joined {
			sum += p.to - p.from
		}
		if sum > r.mem.Limit()/shareAhead {
			break
		}
		fetch = joined
		n++
	}
	return max(n, 1), r.src.prefetch(fetch, r.mem)
}

// ranges returns the byte ranges of the columns in a row group.
func (r *reader) ranges(g int) ([]piece, error) {
	var ranges []piece
	group := r.file.Content().MetaData().RowGroup(g)
	for _, i := range r.leaves {
		if i < 0 {
			continue
		}
		chunk, err := group.ColumnChunk(i)
		if err != nil {
			return nil, err
		}
		from := chunk.DataPageOffset()
		if d := chunk.DictionaryPageOffset(); chunk.HasDictionaryPage() && d > 0 && d < from {
			from = d
		}
		to := from + chunk.TotalCompressedSize()
		if from < 0 || to < from || to > r.src.size {
			return nil, unsound("row group %d lies outside of the file", g)
		}
		ranges = append(ranges, piece{from, to})
	}
	return ranges, nil
}

// group passes the rows of one row group to the caller.
func (r *reader) group(g int) error {
	md := r.file.Content().MetaData().RowGroup(g)
	var in *rowGroup
	if err := r.sound(func() (err error) { in, err = r.openGroup(g, md); return err }); err != nil {
		return err
	}
	defer in.close()
	for in.left > 0 {
		var batch arrow.RecordBatch
		if err := r.sound(func() (err error) { batch, err = r.batch(in); return err }); err != nil {
			return err
		}
		err := r.scan.emit(r.f, batch)
		batch.Release()
		if err != nil {
			return err
		}
	}
	return nil
}

// rowGroup is a row group that is being read, all columns at the same row.
type rowGroup struct {
	mem     *bounded.Allocator
	buffers int64   // total size of the read buffers, which count in mem
	leaves  []*leaf // reader of each column of the query; nil if the file lacks it
	left    int64   // number of rows still to read
}

func (r *reader) openGroup(g int, md *metadata.RowGroupMetaData) (*rowGroup, error) {
	// The footer may claim more rows than the file has. If the file has no column of the query, no column is read that
	// would show this. So the number of values in the first column of the file is compared.
	if first, err := md.ColumnChunk(0); err != nil {
		return nil, err
	} else if first.NumValues() < md.NumRows() {
		return nil, unsound("row group %d has %d rows, and fewer values", g, md.NumRows())
	}
	in := &rowGroup{mem: r.mem, leaves: make([]*leaf, len(r.leaves)), left: md.NumRows()}
	whole := false
	defer func() {
		if !whole {
			in.close()
		}
	}()
	rows := r.file.Content().RowGroup(g)
	for i, at := range r.leaves {
		if at < 0 {
			continue
		}
		r.mem.Take(r.buffer)
		in.buffers += r.buffer
		column, err := rows.Column(at)
		if err != nil {
			return nil, err
		}
		if in.leaves[i], err = newLeaf(r.scan.columns[i], column, r.out.of[i]); err != nil {
			return nil, errors.Join(err, column.Close())
		}
	}
	whole = true
	return in, nil
}

func (in *rowGroup) close() {
	in.mem.Take(-in.buffers)
	for _, l := range in.leaves {
		if l != nil {
			_ = l.end() // an error no longer matters: the rows are already read
		}
	}
}

// batch reads as many rows as fit into a batch, at least one.
func (r *reader) batch(in *rowGroup) (arrow.RecordBatch, error) {
	room := r.mem.Limit() / shareBatch
	var rows, bytes int64
	for in.left > 0 && rows < batchRows && bytes < room {
		n := min(in.left, batchRows-rows, maxDecoded)
		for _, l := range in.leaves {
			if l == nil {
				continue
			}
			have, err := l.have(room - bytes)
			if err != nil {
				return nil, err
			}
			n = min(n, int64(have))
		}
		for i := range in.leaves {
			size, err := r.take(in.leaves[i], i, int(n))
			if err != nil {
				return nil, err
			}
			bytes += size
		}
		rows, in.left = rows+n, in.left-n
	}
	return r.out.batch(rows), nil
}

// take appends the next n rows of a column and returns their size.
func (r *reader) take(l *leaf, column, n int) (bytes int64, err error) {
	const number = 8
	into, c := r.out.of[column], r.scan.columns[column]
	switch {
	case l != nil:
		bytes, err = l.take(n)
	case c.partitioned:
		value := r.f.PartitionValues[c.path[0]]
		if err = appendConstant(into, value, n); err != nil {
			return 0, unsound("the value of table partition %s is no %s", c.name(), c.typ)
		}
		if value != nil {
			bytes = int64(n) * int64(len(*value))
		}
	default:
		into.AppendNulls(n)
	}
	return bytes + int64(n)*number, err
}
