package lane

import (
	"math"
	"sync/atomic"

	"sluice/connector/plan"
	"sluice/reliability/bytepool"
)

const (
	// Before a table's first chunk has shown better: how many bytes of columns a byte of value becomes, and a row beside.
	defaultRatio, defaultRow = 1.25, 128
	minChunk                 = 512 << 10
)

// ChunkLimit is the size at which lanes seal a chunk, shared by all of them: with few bytes, many lanes and many tables
// the chunks that are open at the same time must not be the whole pool.
type ChunkLimit struct{ atomic.Int64 }

// Set shares a pool of so many bytes among lanes and tables.
func (c *ChunkLimit) Set(pool int64, lanes, tables int) {
	c.Store(min(max(pool/int64(4*lanes*max(tables, 1)), minChunk), chunkBytes))
}

// ratio is what lanes learned of a table: bytes of columns for a byte of value.
type ratio struct{ bits atomic.Uint64 }

func (r *ratio) learn(held, values int64) {
	if values > 0 {
		r.bits.Store(math.Float64bits(float64(held) / float64(values)))
	}
}

// estimate is what rows of so many bytes of values will take.
func (r *ratio) estimate(values, rows int) int64 {
	if bits := r.bits.Load(); bits != 0 {
		return int64(float64(values)*math.Float64frombits(bits)) + 1
	}
	return int64(float64(values)*defaultRatio) + int64(rows*defaultRow)
}

// ReleaseRows gives back chunks that nobody needs any more.
func ReleaseRows(pool *bytepool.Pool, chunks []plan.Chunk) {
	for _, c := range chunks {
		c.Rows.Release()
		pool.Adjust(-c.Allocated - c.EntryBytes)
	}
}
