package connector

import (
	"math"
	"slices"
	"sync/atomic"
	"time"

	"sluice/idempotency"
	"sluice/reliability/bytepool"
)

// Pools are the budgets of memory. They never borrow from each other. nil is no bound.
//
// Fetch holds responses of brokers and the records in them until they are rows. The reader only looks at it, to shed
// what waits; Log takes from it.
//
// Batch holds rows: blocks on their way to a lane by an estimate, chunks by what their columns take, encoded files until
// they are put; and bad records until their letters are durable. The reader alone asks for it, before it hands a block over; lanes correct the estimate afterwards, and
// writers give back. So nobody who holds a part of it ever waits for more.
type Pools struct {
	Fetch, Batch *bytepool.Pool
}

func (p Pools) withDefaults() Pools {
	if p.Fetch == nil {
		p.Fetch = bytepool.New(math.MaxInt64 / 2)
	}
	if p.Batch == nil {
		p.Batch = bytepool.New(math.MaxInt64 / 2)
	}
	return p
}

const (
	// blockBytes is what the values of a block come to at most, unless it has one record.
	blockBytes = 1 << 20
	// Before a table's first chunk has shown better: how many bytes of columns a byte of value becomes, and a row beside.
	usualRatio, usualRow = 1.25, 128
	leastChunk           = 512 << 10
)

// chunkLimit is the size at which lanes seal a chunk, shared by all of them: with few bytes, many lanes and many tables
// the chunks that are open at the same time must not be the whole pool.
type chunkLimit struct{ atomic.Int64 }

func (c *chunkLimit) set(pool int64, lanes, tables int) {
	c.Store(min(max(pool/int64(4*lanes*max(tables, 1)), leastChunk), chunkBytes))
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
	return int64(float64(values)*usualRatio) + int64(rows*usualRow)
}

// releaseRows gives back chunks that nobody needs any more.
func releaseRows(pool *bytepool.Pool, chunks []Chunk) {
	for _, c := range chunks {
		c.Rows.Release()
		pool.Adjust(-c.held - c.entries)
	}
}

// batchShare is the part of the batch pool that the rows of one table may take before they are cut: the cut and the
// batch behind it fit together.
func (r *reader) batchShare() int64 { return r.pools.Batch.Size() / 100 * 45 }

// crowding tells whether a table that has a cut on its way takes more than its part, while others need theirs.
func (r *reader) crowding(t *tableState) bool {
	pool := r.pools.Batch
	sharing := r.sharing()
	if t.rare {
		sharing++
	}
	return sharing > 1 && pool.Used() > pool.Size()/2 &&
		t.cutting.held.Load()+t.filled.held.Load() >= pool.Size()/int64(2*sharing)
}

// sharing is how many tables the batch pool is for. Those that are hardly ever fed do not count: when they are, what they
// need is taken by cutting others early, and otherwise it would lie idle.
func (r *reader) sharing() (n int) {
	for _, t := range r.tables {
		if !t.rare {
			n++
		}
	}
	return n
}

// pressing is the table to cut so that the batch pool gets room, nil if it has enough or soon will have: the largest one,
// then, while that is on its way, the one that has waited longest.
func (r *reader) pressing() *tableState {
	pool := r.pools.Batch
	if pool.Used() < pool.Size()/100*85 && r.first == nil {
		return nil
	}
	now, patience := time.Now(), maxPatience
	if r.first != nil {
		patience = r.first.patience(now)
	}
	var onTheWay int64
	var largest, oldest *tableState
	for _, t := range r.tables {
		held := t.filled.held.Load()
		switch {
		case t.late(now, patience): // no room comes from it soon
		case t.cutting != nil:
			if onTheWay += t.cutting.held.Load(); !t.cutting.marked(len(r.lanes)) {
				onTheWay += held
			}
		case t.opened.IsZero() || held == 0:
		default:
			if largest == nil || held > largest.filled.held.Load() {
				largest = t
			}
			if oldest == nil || t.opened.Before(oldest.opened) {
				oldest = t
			}
		}
	}
	switch {
	case onTheWay == 0:
		return largest
	case onTheWay < pool.Size()/3:
		return oldest
	}
	return nil
}

// reserve takes room in the batch pool for a claim's next block, which will come to so many bytes. If there is none, the claim
// waits for it: see foremost.
func (r *reader) reserve(c *claim, estimate int64) (int64, bool) {
	pool := r.pools.Batch
	n := min(estimate, pool.Size())
	if !pool.TryAcquire(n) {
		if c.wants == 0 {
			c.wantsSince, r.waiting = time.Now(), append(r.waiting, c)
		}
		c.wants = n
		if r.first == nil && r.attainable(c, time.Now()) {
			r.first = c
		}
		return 0, false
	}
	c.table.filled.held.Add(n)
	r.unwait(c)
	return n, true
}

// unwait ends a claim's wait for room.
func (r *reader) unwait(c *claim) {
	if c.wants == 0 {
		return
	}
	c.wants = 0
	r.waiting = slices.DeleteFunc(r.waiting, func(o *claim) bool { return o == c })
	if r.first == c {
		r.first = r.foremost()
	}
}

const (
	// A commit counts as late for a claim that waits for memory when it has taken half of the claim's wait, within these
	// bounds. After the second one it is a hold, commit_undecided.
	minPatience, maxPatience = time.Second, time.Minute
)

// patience is how long a commit may take while a claim waits for the memory that the commit will free. It grows with the
// wait, so that commits that are only slow do not keep the claim waiting for ever.
func (c *claim) patience(now time.Time) time.Duration {
	return min(max(now.Sub(c.wantsSince)/2, minPatience), maxPatience)
}

// late tells whether the cut of a table has been on its way for longer than patience.
func (t *tableState) late(now time.Time, patience time.Duration) bool {
	return t.cutting != nil && now.Sub(t.cutting.began) >= patience
}

// foremost returns the claim for which all others stop handing over, so that small blocks cannot take the room of a large one
// for ever: the one that has waited longest, of those whose room becomes free by commits that are not late. Where the room is
// in the hands of a late commit the claim waits alone, and others go on with what is left.
func (r *reader) foremost() *claim {
	now := time.Now()
	for _, c := range r.waiting {
		if r.attainable(c, now) {
			return c
		}
	}
	return nil
}

// attainable tells whether a claim that waits gets its room if all others stop handing over.
func (r *reader) attainable(c *claim, now time.Time) bool {
	if t := c.table; t.cutting != nil && r.full(t) {
		return false // it could not hand over anyway
	}
	return c.wants <= r.freeable(now, c.patience(now))
}

// freeable is how much of the batch pool is free, or becomes free without commits that are late.
func (r *reader) freeable(now time.Time, patience time.Duration) int64 {
	n := r.pools.Batch.Size() - r.pools.Batch.Used()
	for _, t := range r.tables {
		switch {
		case t.late(now, patience): // what fills behind it cannot leave either
		case t.cutting != nil:
			n += t.cutting.held.Load() + t.filled.held.Load()
		case !t.opened.IsZero(): // else there is nothing to cut
			n += t.filled.held.Load()
		}
	}
	return n
}

// unreserve gives the room of a block back that was not handed over.
func (r *reader) unreserve(t *tableState, n int64) {
	t.filled.held.Add(-n)
	r.pools.Batch.Release(n)
}

// sweep gives back what is left when everything has ended: blocks that no lane came to, cuts that no writer took.
func (r *reader) sweep() {
	for _, c := range r.claims {
		r.drop(c)
	}
	for _, l := range r.lanes {
		for len(l.in) > 0 {
			if w := <-l.in; w.block != nil {
				r.pools.Batch.Release(w.block.reserved)
				r.blocks.put(w.block)
			}
		}
	}
	for _, t := range r.tables {
		for _, open := range append(t.writer.todo.dropped, t.cutting, t.writer.todo.cut) {
			for open != nil && len(open.parts) > 0 {
				p := <-open.parts
				p.release(r.pools.Batch)
			}
		}
	}
}

// holding is what a cut has of the batch pool while it is written. Its rows are given back as they are encoded, the
// encoded bytes as they are put, its bad records when their letters are durable.
type holding struct {
	pool    *bytepool.Pool
	cut     *openCut
	chunks  []Chunk
	last    []int // of each chunk: the number of pieces up to its end
	freed   int   // chunks
	encoded int64
	from    *Cut
	letters int64 // bytes of candidates
	entries int64 // bytes of what duplicates are told by, which outlives the rows
	tell    func()
}

func (w *writer) hold(open *openCut, cut *Cut) *holding {
	h := &holding{pool: w.batch, cut: open, chunks: cut.Chunks, from: cut, letters: heldBy(cut.Candidates), tell: w.tell}
	for i := range h.chunks {
		c := &h.chunks[i]
		ids := idempotency.IDBytes(c.Entries) // until now they count as part of the rows, which they outlive
		h.entries += c.entries + ids
		c.entries, c.held = 0, c.held-ids
	}
	return h
}

// plan notes which pieces the chunks became.
func (h *holding) plan(pieces []Piece) {
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
		change -= c.held
	}
	releaseRows(h.pool, h.chunks[h.freed:to])
	h.pool.Adjust(encoded - h.encoded)
	h.cut.held.Add(change)
	h.freed, h.encoded = to, encoded
	h.tell()
}

// lettered gives back what the bad records took: nobody needs them any more.
func (h *holding) lettered() {
	h.from.Candidates = nil // else they would live as long as the cut
	h.pool.Adjust(-h.letters)
	h.cut.held.Add(-h.letters)
	h.letters = 0
	h.tell()
}

// end gives back what is left.
func (h *holding) end() {
	h.lettered()
	h.pool.Adjust(-h.entries)
	h.cut.held.Add(-h.entries)
	h.entries = 0
	h.give(len(h.chunks), 0)
}
