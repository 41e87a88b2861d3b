package lane

import (
	"math"
	"sync/atomic"

	"sluice/connector/plan"
	"sluice/reliability/bytepool"
)

const (
	// defaultRatio and defaultRow estimate the memory of a row until the first chunk of its table was sealed:
	// defaultRatio bytes for each byte of the record, plus defaultRow bytes.
	defaultRatio, defaultRow = 1.25, 128
	// minChunk is the smallest limit for the size of a chunk, in bytes.
	minChunk = 512 << 10
)

// ChunkLimit is the size in bytes at which lanes seal a chunk. All lanes share it. If the batch pool is small, the
// limit is small, too, because each lane can have an open chunk for each table.
type ChunkLimit struct{ atomic.Int64 }

// Set computes the limit from the size of the pool and the numbers of lanes and tables.
func (c *ChunkLimit) Set(pool int64, lanes, tables int) {
	c.Store(min(max(pool/int64(4*lanes*max(tables, 1)), minChunk), chunkBytes))
}

// ratio is how many bytes of columns a table needs for each byte of a record, as measured. A record counts with its key
// and headers, because a table may store them.
type ratio struct{ bits atomic.Uint64 }

// learn sets the ratio from a sealed chunk: allocated is its memory, records the total size of the records in it.
func (r *ratio) learn(allocated, records int64) {
	if records > 0 {
		r.bits.Store(math.Float64bits(float64(allocated) / float64(records)))
	}
}

// estimate returns the expected memory of this many rows, whose records have bytes bytes in total.
func (r *ratio) estimate(bytes, rows int) int64 {
	if bits := r.bits.Load(); bits != 0 {
		return int64(float64(bytes)*math.Float64frombits(bits)) + 1
	}
	return int64(float64(bytes)*defaultRatio) + int64(rows*defaultRow)
}

// ReleaseRows releases the rows of chunks, and their bytes in the pool.
func ReleaseRows(pool *bytepool.Pool, chunks []plan.Chunk) {
	for _, c := range chunks {
		c.Rows.Release()
		pool.Adjust(-c.Allocated - c.EntryBytes)
	}
}
