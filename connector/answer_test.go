package connector

import (
	"io"
	"log/slog"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/reliability/bytepool"
)

// counted are records that count how often they are released.
type counted struct{ released int }

func (c *counted) Read([]Record) (int, error) { return 0, io.EOF }
func (c *counted) Release()                   { c.released++ }

// silent is a Log that nobody hears of.
type silent struct{ Log }

func (silent) Fetch(FetchRequest) {}
func (silent) Forget(Partition)   {}

// An answer is taken only for the place that was asked for last; what is dropped is released, once.
func TestAnswers(t *testing.T) {
	r := &reader{
		log: silent{}, claims: map[Partition]*claim{}, blocks: newBlockPool(1), pools: Pools{}.withDefaults(),
		metrics: newMetrics(prometheus.NewRegistry()), logger: slog.New(slog.DiscardHandler),
	}
	tab := &tableState{}
	c := &claim{Partition: part0(0), table: tab, state: resuming, position: -1}
	r.claims[c.Partition] = c
	r.end(c)
	r.begin(c, Position{Partition: c.Partition, Next: 10, Epoch: 1})
	answer := func(session uint64, from, next int64) *counted {
		records := &counted{}
		r.fetched(Fetched{Partition: c.Partition, Session: session, From: from, Next: next, Epoch: 1, Records: records})
		return records
	}
	want := func(what string, records *counted, released, queued int) {
		t.Helper()
		if records.released != released || len(c.queue) != queued {
			t.Errorf("%s: released %d times, want %d; %d queued, want %d", what, records.released, released, len(c.queue), queued)
		}
	}
	want("of an earlier session", answer(c.session-1, 10, 20), 1, 0)
	want("from elsewhere", answer(c.session, 5, 20), 1, 0)
	first := answer(c.session, 10, 20)
	want("as asked", first, 0, 1)
	second := answer(c.session, 20, 30)
	want("the next", second, 0, 2)
	want("not asked for", answer(c.session, 30, 40), 1, 2)

	b := r.blocks.get(c.queue[0]) // on its way to a lane
	r.shed(c)
	want("shed while a lane has a block", first, 0, 0)
	want("shed", second, 1, 0)
	if c.ahead != 10 || c.fetching {
		t.Errorf("reads on from %d, asked: %v", c.ahead, c.fetching)
	}
	r.blocks.put(b)
	want("the lane is done", first, 1, 0)
	want("of before it was shed", answer(c.session, 30, 40), 1, 0)
	r.request(c)
	again := answer(c.session, 10, 20)
	want("again", again, 0, 1)
	tab.stuck = true
	c.fetching = false
	r.request(c)
	if c.fetching {
		t.Error("it asks for a table that can take no more")
	}
	r.end(c)
	want("the session ended", again, 1, 0)
}

// The largest table is cut first, then the oldest while that is on its way, and nobody once enough is on its way.
func TestPressing(t *testing.T) {
	const mib = 1 << 20
	pools := Pools{Batch: bytepool.New(100 * mib)}.withDefaults()
	r := &reader{pools: pools, valve: newValve(QueueConfig{PauseAt: 10, ResumeAt: 5, PerKey: 5}), lanes: []*lane{{}}}
	tables, now := map[string]*tableState{}, time.Now()
	for i, held := range []int64{20, 40, 30} {
		name := string(rune('a' + i))
		tab := &tableState{name: name, opened: now.Add(-time.Duration(i) * time.Second)}
		tab.filled.held.Store(held * mib)
		tables[name], r.tables = tab, append(r.tables, tab)
	}
	want := func(what string, tab *tableState) {
		t.Helper()
		if got := r.pressing(); got != tab {
			t.Errorf("%s: %+v", what, got)
		}
	}
	pools.Batch.Adjust(84 * mib)
	want("below 85 %", nil)
	pools.Batch.Adjust(6 * mib)
	want("above", tables["b"])
	cut := func(name string) {
		tab := tables[name]
		tab.cutting = &openCut{began: now}
		tab.cutting.held.Store(tab.filled.held.Swap(0))
		tab.cutting.passed.Store(1)
	}
	cut("b")
	want("40 % are on their way", nil)
	tables["b"].cutting.held.Store(10 * mib) // most of it is encoded
	want("10 % are on their way", tables["c"])
	pools.Batch.Adjust(-60 * mib)
	want("room again", nil)
	waits := &claim{table: tables["a"], wants: 80 * mib, wantsSince: now}
	r.waiting = []*claim{waits}
	r.first = r.foremost()
	want("a block waits", tables["c"])
	cut("c")
	cut("a")
	want("all on their way", nil)
}

// rows are released, and nothing else.
type rows struct {
	arrow.RecordBatch

	id       int
	released *int
}

func (r rows) Release() { *r.released++ }

// What lanes had for a cut that nobody wants any more is given back once, whether its writer had taken it or not; what a
// writer has is given back as it is encoded and put.
func TestHoldings(t *testing.T) {
	pool := bytepool.New(1000)
	w := &writer{lanes: 2, batch: pool, tell: func() {}}
	released := 0
	cut := func() *openCut {
		open := &openCut{parts: make(chan part, 2)}
		for lane := range 2 {
			a, b := Chunk{Rows: rows{id: 2 * lane, released: &released}, held: 100}, Chunk{Rows: rows{id: 2*lane + 1, released: &released}, held: 30}
			open.parts <- part{lane: lane, chunks: []Chunk{a, b}}
		}
		open.held.Add(260)
		pool.Adjust(260)
		return open
	}
	dropped := cut()
	w.discard(t.Context(), dropped)
	w.discard(t.Context(), dropped)
	if pool.Used() != 0 || released != 4 {
		t.Errorf("%d used, %d released", pool.Used(), released)
	}

	released = 0
	open := cut()
	taken := w.gather(t.Context(), open)
	h := w.hold(open, taken)
	first, last := taken.Chunks[0].Rows, taken.Chunks[3].Rows
	h.plan([]Piece{{Rows: first, To: 5}, {Rows: first, From: 7, To: 9}, {Rows: last, To: 1}}) // two chunks are masked
	for _, step := range []struct {
		done           int
		encoded        int64
		used, released int
	}{{1, 0, 260, 0}, {2, 20, 50, 3}, {2, 0, 30, 3}, {3, 15, 15, 4}, {3, 0, 0, 4}} {
		h.progress(step.done, step.encoded)
		if open.held.Load() != pool.Used() || pool.Used() != int64(step.used) || released != step.released {
			t.Errorf("%+v: %d used, %d of the cut, %d released", step, pool.Used(), open.held.Load(), released)
		}
	}
	h.end()
	w.discard(t.Context(), open)
	if pool.Used() != 0 || released != 4 {
		t.Errorf("%d used, %d released", pool.Used(), released)
	}
}
