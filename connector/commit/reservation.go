package commit

import (
	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
)

// reservation is the memory that a sealed batch has in the batch pool while it is written. Rows are released as they
// are encoded, encoded bytes as their files are put, and bad records once their dead letters are durable.
type reservation struct {
	pool       *bytepool.Pool
	barrier    *lane.Barrier
	chunks     []plan.Chunk
	last       []int // for each chunk, how many pieces of the plan are in it or in a chunk before it
	freed      int   // how many chunks were released
	encoded    int64 // the bytes of encoded files that are in memory
	batch      *plan.SealedBatch
	letters    int64 // the bytes of candidates and origins
	entries    int64 // the bytes of entries, which are needed longer than the rows
	wakeReader func()
}

// reserve takes over the memory of a sealed batch from its barrier. The caller must call end.
func (c *committer) reserve(barrier *lane.Barrier, batch *plan.SealedBatch) *reservation {
	r := &reservation{pool: c.batch, barrier: barrier, chunks: batch.Chunks, batch: batch, letters: lane.AllocatedBy(batch.Candidates, batch.Origins), wakeReader: c.wakeReader}
	for i := range r.chunks {
		c := &r.chunks[i]
		ids := idempotency.IDBytes(c.Entries) // so far counted with the rows, but needed longer
		r.entries += c.EntryBytes + ids
		c.EntryBytes, c.Allocated = 0, c.Allocated-ids
	}
	return r
}

// plan notes, for each chunk, how many pieces of the plan are in it and in the chunks before it. The method progress
// needs these numbers.
func (r *reservation) plan(pieces []connector.Piece) {
	r.last = make([]int, len(r.chunks))
	n := 0
	for i, c := range r.chunks {
		for n < len(pieces) && pieces[n].Rows == c.Rows {
			n++
		}
		r.last[i] = n
	}
}

// progress is called while pieces are encoded: see [connector.Table]. It releases the chunks whose pieces are all
// encoded, and counts the encoded bytes that are in memory.
func (r *reservation) progress(done int, encoded int64) {
	to := r.freed
	for to < len(r.chunks) && r.last[to] <= done {
		to++
	}
	r.release(to, encoded)
}

// release releases the chunks whose index is less than to. encoded is the number of encoded bytes that are in memory
// now.
func (r *reservation) release(to int, encoded int64) {
	change := encoded - r.encoded
	for _, c := range r.chunks[r.freed:to] {
		change -= c.Allocated
	}
	lane.ReleaseRows(r.pool, r.chunks[r.freed:to])
	r.pool.Adjust(encoded - r.encoded)
	r.barrier.Allocated.Add(change)
	r.freed, r.encoded = to, encoded
	r.wakeReader()
}

// releaseLetters releases the bad records and the origins, once the dead letters are durable or will not be written.
func (r *reservation) releaseLetters() {
	r.batch.Candidates, r.batch.Origins = nil, nil // otherwise their memory would be in use as long as the batch is
	r.pool.Adjust(-r.letters)
	r.barrier.Allocated.Add(-r.letters)
	r.letters = 0
	r.wakeReader()
}

// end releases what is still reserved.
func (r *reservation) end() {
	r.releaseLetters()
	r.pool.Adjust(-r.entries)
	r.barrier.Allocated.Add(-r.entries)
	r.entries = 0
	r.release(len(r.chunks), 0)
}
