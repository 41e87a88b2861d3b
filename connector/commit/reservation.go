package commit

import (
	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
)

// reservation is what a cut has of the batch pool while it is written. Its rows are given back as they are encoded, the
// encoded bytes as they are put, its bad records when their letters are durable.
type reservation struct {
	pool       *bytepool.Pool
	barrier    *lane.Barrier
	chunks     []plan.Chunk
	last       []int // of each chunk: the number of pieces up to its end
	freed      int   // chunks
	encoded    int64
	batch      *plan.SealedBatch
	letters    int64 // bytes of candidates
	entries    int64 // bytes of what duplicates are told by, which outlives the rows
	wakeReader func()
}

func (c *committer) reserve(barrier *lane.Barrier, batch *plan.SealedBatch) *reservation {
	h := &reservation{pool: c.batch, barrier: barrier, chunks: batch.Chunks, batch: batch, letters: lane.AllocatedBy(batch.Candidates), wakeReader: c.wakeReader}
	for i := range h.chunks {
		c := &h.chunks[i]
		ids := idempotency.IDBytes(c.Entries) // until now they count as part of the rows, which they outlive
		h.entries += c.EntryBytes + ids
		c.EntryBytes, c.Allocated = 0, c.Allocated-ids
	}
	return h
}

// plan notes which pieces the chunks became.
func (h *reservation) plan(pieces []connector.Piece) {
	h.last = make([]int, len(h.chunks))
	n := 0
	for i, c := range h.chunks {
		for n < len(pieces) && pieces[n].Rows == c.Rows {
			n++
		}
		h.last[i] = n
	}
}

// progress is told while the pieces are encoded: nobody needs the first done of them any more, and so many bytes of files
// are in memory.
func (h *reservation) progress(done int, encoded int64) {
	to := h.freed
	for to < len(h.chunks) && h.last[to] <= done {
		to++
	}
	h.release(to, encoded)
}

func (h *reservation) release(to int, encoded int64) {
	change := encoded - h.encoded
	for _, c := range h.chunks[h.freed:to] {
		change -= c.Allocated
	}
	lane.ReleaseRows(h.pool, h.chunks[h.freed:to])
	h.pool.Adjust(encoded - h.encoded)
	h.barrier.Allocated.Add(change)
	h.freed, h.encoded = to, encoded
	h.wakeReader()
}

// releaseLetters gives back what the bad records took: nobody needs them any more.
func (h *reservation) releaseLetters() {
	h.batch.Candidates = nil // else they would live as long as the cut
	h.pool.Adjust(-h.letters)
	h.barrier.Allocated.Add(-h.letters)
	h.letters = 0
	h.wakeReader()
}

// end gives back what is left.
func (h *reservation) end() {
	h.releaseLetters()
	h.pool.Adjust(-h.entries)
	h.barrier.Allocated.Add(-h.entries)
	h.entries = 0
	h.release(len(h.chunks), 0)
}
