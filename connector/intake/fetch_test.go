package intake

import (
	"io"
	"testing"
	"time"

	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/lane"
	"sluice/reliability/bytepool"
)

// counted are the records of a fetch result. It counts the calls of Release.
type counted struct{ released int }

func (c *counted) Read([]connector.Record) (int, error) { return 0, io.EOF }
func (c *counted) Release()                             { c.released++ }

// silent is a Log that ignores all requests.
type silent struct{ connector.Log }

func (silent) Fetch(connector.FetchRequest) {}
func (silent) Forget(connector.Partition)   {}

// TestFetches_Accept: a claim accepts a fetch result only if it begins at the offset that the claim requested last, in
// the same session. Every other result is released, once.
func TestFetches_Accept(t *testing.T) {
	r := readerOf(t, Config{})
	tab := &tableState{}
	c := &claim{Partition: connectortest.Partition(0), table: tab, claimState: claimState{state: resuming}, position: -1}
	r.claims[c.Partition] = c
	r.holds.endSession(c)
	r.fetches.startReading(c, connector.Position{Partition: c.Partition, Next: 10, Epoch: 1})
	answer := func(session uint64, from, next int64) *counted {
		records := &counted{}
		r.fetches.accept(connector.Fetched{Partition: c.Partition, Session: session, From: from, Next: next, Epoch: 1, Records: records})
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

	b := r.blocks.Get(c.queue[0]) // a block of the result is on its way to a lane
	r.fetches.shed(c)
	want("shed while a lane has a block", first, 0, 0)
	want("shed", second, 1, 0)
	if c.ahead != 10 || c.fetching {
		t.Errorf("reads on from %d, asked: %v", c.ahead, c.fetching)
	}
	r.blocks.Put(b)
	want("the lane is done", first, 1, 0)
	want("of before it was shed", answer(c.session, 30, 40), 1, 0)
	r.fetches.request(c)
	again := answer(c.session, 10, 20)
	want("again", again, 0, 1)
	tab.full = true
	c.fetching = false
	r.fetches.request(c)
	if c.fetching {
		t.Error("it asks for a table that can take no more")
	}
	r.holds.endSession(c)
	want("the session ended", again, 1, 0)
}

// TestRoom_TableToSeal: if the batch pool is nearly full, the table with the largest open batch is sealed first. While
// its commit runs, the batch that has been open longest is next. No batch is sealed if the running commits will free a
// third of the pool.
func TestRoom_TableToSeal(t *testing.T) {
	const mib = 1 << 20
	pools := connector.Pools{Batch: bytepool.New(100 * mib)}.WithDefaults()
	r := readerOf(t, Config{Pools: pools, Count: 1, Queue: connector.QueueConfig{PauseAt: 10, ResumeAt: 5, PerKey: 5}})
	tables, now := map[string]*tableState{}, time.Now()
	for i, held := range []int64{20, 40, 30} {
		name := string(rune('a' + i))
		tab := &tableState{name: name, opened: now.Add(-time.Duration(i) * time.Second)}
		tab.OpenBatch.Allocated.Store(held * mib)
		tables[name], r.tables = tab, append(r.tables, tab)
	}
	want := func(what string, tab *tableState) {
		t.Helper()
		if got := r.room.tableToSeal(); got != tab {
			t.Errorf("%s: %+v", what, got)
		}
	}
	pools.Batch.Adjust(84 * mib)
	want("below 85 %", nil)
	pools.Batch.Adjust(6 * mib)
	want("above", tables["b"])
	cut := func(name string) {
		tab := tables[name]
		tab.sealed = &lane.Barrier{Began: now}
		tab.sealed.Allocated.Store(tab.OpenBatch.Allocated.Swap(0))
		tab.sealed.Passed.Store(1)
	}
	cut("b")
	want("40 % are on their way", nil)
	tables["b"].sealed.Allocated.Store(10 * mib) // the writer has encoded most of the batch
	want("10 % are on their way", tables["c"])
	pools.Batch.Adjust(-60 * mib)
	want("room again", nil)
	waits := &claim{table: tables["a"], nextBlock: nextBlock{wantsBytes: 80 * mib, wantsSince: now}}
	r.room.waiting = []*claim{waits}
	r.room.first = r.room.firstWaiting()
	want("a block waits", tables["c"])
	cut("c")
	cut("a")
	want("all on their way", nil)
}
