package datafile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Partitioner assigns rows to the partitions of a table.
type Partitioner interface {
	// Of returns the number of the table partition of each row of a record batch. Numbers count from 0, in the order in
	// which their values are first seen, and equal values have equal numbers in all calls.
	Of(rows arrow.RecordBatch) ([]int32, error)
	// Columns returns the names of the partition columns, which data files do not have.
	Columns() []string
}

// rowRef is one row of one of the batches of a chunk.
type rowRef struct{ batch, row int32 }

const (
	// directRows is the number of rows of one record batch and one table partition from which on they become a row group
	// of their own. Fewer rows are gathered with those of the next batches, so that no file has many small row groups.
	directRows = 8 << 10
	// directRun is the least average length of their ranges: shorter ranges are cheaper to gather row by row.
	directRun = 16
	// gatheredRows and gatheredBytes bound a row group of gathered rows, as chunks of the decoder are bounded.
	gatheredRows  = 65_000
	gatheredBytes = 16 << 20
)

// partitionChunks sorts the rows of the chunks by table partition and makes chunks of one table partition each. The
// order of rows within a table partition stays.
func partitionChunks(chunks []chunk, p Partitioner) ([]chunk, error) {
	s, err := sortRows(chunks, p)
	if err != nil {
		return nil, fmt.Errorf("encode data file: table partitions: %w", err)
	}
	var out []chunk
	from := 0
	for id, to := range s.ends {
		out = s.split(out, int32(id), s.order[from:to])
		from = to
	}
	if len(out) > 0 {
		out[len(out)-1].pieces = chunks[len(chunks)-1].pieces
	}
	return out, nil
}

// sorted are rows in the order of their table partitions.
type sorted struct {
	batches []arrow.RecordBatch
	sizes   []rowSizes // of each batch
	order   []rowRef
	ends    []int // the end of each table partition in order
}

// sortRows sorts the rows of chunks by table partition, by counting.
func sortRows(chunks []chunk, p Partitioner) (*sorted, error) {
	s := &sorted{}
	ids, total := make([][]int32, len(chunks)), 0
	index := map[arrow.RecordBatch]int32{}
	of := make([]int32, len(chunks)) // the batch of each chunk
	known := map[int32][]int32{}     // the numbers of the rows of a batch that several chunks have
	for i, c := range chunks {
		b, seen := index[c.rows]
		if !seen {
			b = int32(len(s.batches)) //nolint:gosec // a call has far fewer batches
			index[c.rows] = b
			numbers, err := p.Of(c.rows)
			if err != nil {
				return nil, err
			}
			known[b] = numbers
			for _, column := range c.rows.Columns() {
				resolve(column)
			}
			s.batches = append(s.batches, c.rows)
			s.sizes = append(s.sizes, sizesOf(c.rows.Columns()))
		}
		of[i], ids[i] = b, known[b]
		for _, r := range c.ranges {
			total += int(r[1] - r[0])
			for _, id := range ids[i][r[0]:r[1]] {
				for int(id) >= len(s.ends) {
					s.ends = append(s.ends, 0)
				}
				s.ends[id]++
			}
		}
	}
	next, sum := make([]int, len(s.ends)), 0
	for id, n := range s.ends {
		next[id] = sum
		sum += n
		s.ends[id] = sum
	}
	s.order = make([]rowRef, total)
	for i, c := range chunks {
		for _, r := range c.ranges {
			for row := r[0]; row < r[1]; row++ {
				id := ids[i][row]
				s.order[next[id]] = rowRef{of[i], int32(row)} //nolint:gosec // a batch has far fewer rows
				next[id]++
			}
		}
	}
	return s, nil
}

// resolve makes the dictionaries in an array. Arrow makes one at its first use, without a lock, and several encoders read
// one batch if its rows are in several table partitions.
func resolve(a arrow.Array) {
	switch a := a.(type) {
	case *array.Dictionary:
		resolve(a.Dictionary())
	case *array.Struct:
		for i := range a.NumField() {
			resolve(a.Field(i))
		}
	case array.ListLike: // also a map
		resolve(a.ListValues())
	}
}

// split appends the chunks of the rows of one table partition.
func (s *sorted) split(out []chunk, id int32, rows []rowRef) []chunk {
	start, size := 0, int64(0) // the rows since start wait to be gathered, size is their estimated size
	flush := func(to int) {
		if to > start {
			out = append(out, chunk{gathered: rows[start:to], batches: s.batches, size: size, partition: id})
		}
		start, size = to, 0
	}
	for from := 0; from < len(rows); {
		b, to, runs := rows[from].batch, from+1, 1
		for to < len(rows) && rows[to].batch == b {
			if rows[to].row != rows[to-1].row+1 {
				runs++
			}
			to++
		}
		if n := to - from; n >= directRun*runs && (n >= directRows || int64(n) == s.batches[b].NumRows()) {
			flush(from)
			out = append(out, chunk{rows: s.batches[b], ranges: rangesOf(rows[from:to], runs), partition: id})
			start = to
		} else {
			for i := from; i < to; i++ {
				if size += s.sizes[b].of(int(rows[i].row)); i-start+1 >= gatheredRows || size >= gatheredBytes {
					flush(i + 1)
				}
			}
		}
		from = to
	}
	flush(len(rows))
	return out
}

// rangesOf returns rows of one batch as ranges; n is their number.
func rangesOf(rows []rowRef, n int) [][2]int64 {
	ranges := make([][2]int64, 0, n)
	for i, r := range rows {
		at := int64(r.row)
		if i > 0 && rows[i-1].row+1 == r.row {
			ranges[len(ranges)-1][1] = at + 1
			continue
		}
		ranges = append(ranges, [2]int64{at, at + 1})
	}
	return ranges
}

// rowRun is a run of adjacent rows of one batch.
type rowRun struct {
	rows     arrow.RecordBatch
	from, to int
}

// runsOf returns the rows of a gathered chunk as runs.
func runsOf(c chunk) []rowRun {
	var runs []rowRun
	for i, r := range c.gathered {
		if last := len(runs) - 1; i > 0 && c.gathered[i-1].batch == r.batch && runs[last].to == int(r.row) {
			runs[last].to++
			continue
		}
		runs = append(runs, rowRun{c.batches[r.batch], int(r.row), int(r.row) + 1})
	}
	return runs
}
