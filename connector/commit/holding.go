package commit

import (
	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
)

// holding is what a cut has of the batch pool while it is written. Its rows are given back as they are encoded, the
// encoded bytes as they are put, its bad records when their letters are durable.
type holding struct {
	pool    *bytepool.Pool
	cut     *lane.Sealed
	chunks  []plan.Chunk
	last    []int // of each chunk: the number of pieces up to its end
	freed   int   // chunks
	encoded int64
	from    *plan.Cut
	letters int64 // bytes of candidates
	entries int64 // bytes of what duplicates are told by, which outlives the rows
	tell    func()
}

func (c *committer) hold(open *lane.Sealed, cut *plan.Cut) *holding {
	h := &holding{pool: c.batch, cut: open, chunks: cut.Chunks, from: cut, letters: lane.HeldBy(cut.Candidates), tell: c.tell}
	for i := range h.chunks {
		c := &h.chunks[i]
		ids := idempotency.IDBytes(c.Entries) // until now they count as part of the rows, which they outlive
		h.entries += c.EntryBytes + ids
		c.EntryBytes, c.Held = 0, c.Held-ids
	}
	return h
}

// plan notes which pieces the chunks became.
func (h *holding) plan(pieces []connector.Piece) {
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
func (h *holding) progress(done int, encoded int64) {
	to := h.freed
	for to < len(h.chunks) && h.last[to] <= done {
		to++
	}
	h.give(to, encoded)
}

func (h *holding) give(to int, encoded int64) {
	change := encoded - h.encoded
	for _, c := range h.chunks[h.freed:to] {
		change -= c.Held
	}
	lane.ReleaseRows(h.pool, h.chunks[h.freed:to])
	h.pool.Adjust(encoded - h.encoded)
	h.cut.Held.Add(change)
	h.freed, h.encoded = to, encoded
	h.tell()
}

// lettered gives back what the bad records took: nobody needs them any more.
func (h *holding) lettered() {
	h.from.Candidates = nil // else they would live as long as the cut
	h.pool.Adjust(-h.letters)
	h.cut.Held.Add(-h.letters)
	h.letters = 0
	h.tell()
}

// end gives back what is left.
func (h *holding) end() {
	h.lettered()
	h.pool.Adjust(-h.entries)
	h.cut.Held.Add(-h.entries)
	h.entries = 0
	h.give(len(h.chunks), 0)
}
