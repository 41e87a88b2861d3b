package intake

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/lane"
	"sluice/reliability/bytepool"
)

// TestRoom_FirstWaiting: while a claim waits for memory, all other claims stop if the running commits will free enough
// for it. Memory of a late commit, and of the open batch after it, does not count as memory that will be free. A claim
// whose table is full stops no other claim.
func TestRoom_FirstWaiting(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := bytepool.New(1000)
		table := func(open, cut int64) *tableState {
			s := &tableState{limits: connector.Limits{Rows: 1 << 20, Bytes: 1 << 40}}
			if s.OpenBatch.Allocated.Store(open); open > 0 {
				s.opened = time.Now()
			}
			if cut > 0 {
				s.sealed = &lane.Barrier{Began: time.Now()}
				s.sealed.Allocated.Store(cut)
			}
			pool.Adjust(open + cut)
			return s
		}
		a, b := table(100, 400), table(0, 0)
		r := readerOf(t, Config{Pools: connector.Pools{Batch: pool}, Count: 1})
		r.tables = []*tableState{a, b}
		large, small := &claim{table: b}, &claim{table: b}
		if _, ok := r.room.reserve(large, 600); ok || r.room.first != large {
			t.Fatalf("it waits: %v, and it is first: %v", !ok, r.room.first == large)
		}
		if n, ok := r.room.reserve(small, 50); !ok || n != 50 {
			t.Errorf("%d bytes of a pool that has them", n)
		}
		r.room.unreserve(b, 50)

		time.Sleep(minPatience) // a is late now: 500 of the 1000 bytes belong to its sealed and its open batch
		if r.room.firstWaiting() != nil {
			t.Error("all wait for a commit that is late")
		}
		if got := r.room.freeable(time.Now(), minPatience); got != 500 {
			t.Errorf("%d bytes become free, want 500", got)
		}
		time.Sleep(5 * time.Second)
		// A new commit of a: it counts as late only after half of the time that the claim has waited.
		a.sealed.Began = time.Now().Add(-2 * time.Second)
		if r.room.firstWaiting() != large {
			t.Error("a commit is late after a third of the wait")
		}
		time.Sleep(2 * time.Minute)
		a.sealed.Began = time.Now().Add(-maxPatience)
		if r.room.firstWaiting() != nil {
			t.Error("a commit is not late after a minute")
		}

		other := &claim{table: b, nextBlock: nextBlock{wantsBytes: 450, wantsSince: time.Now()}} // this claim needs less memory than large, and so much is free
		r.room.waiting = append(r.room.waiting, other)
		if r.room.firstWaiting() != other {
			t.Error("a claim that can continue waits after one that cannot")
		}
		b.sealed = &lane.Barrier{Began: time.Now()}
		b.OpenBatch.Rows.Store(b.limits.Rows)
		if r.room.firstWaiting() != nil {
			t.Error("all wait for a claim whose table is full")
		}
		b.sealed = nil

		a.sealed, a.opened = nil, time.Time{}
		pool.Adjust(-500)
		a.OpenBatch.Allocated.Store(0)
		if r.room.first = r.room.firstWaiting(); r.room.first != large {
			t.Error("the claim that has waited longest is not the first")
		}
		if n, ok := r.room.reserve(large, 600); !ok || n != 600 || r.room.first == large || len(r.room.waiting) != 1 {
			t.Errorf("%d bytes, %d wait", n, len(r.room.waiting))
		}
		r.holds.dropQueued(other)
		if len(r.room.waiting) != 0 || r.room.first != nil {
			t.Error("a claim that was dropped still waits")
		}
	})
}

// TestFetches_ShedWaiting: while the fetch pool is short, the fetch results of a claim that waits for the batch pool
// are dropped. They are requested again once enough memory will be free.
func TestFetches_ShedWaiting(t *testing.T) {
	pool := bytepool.New(1000)
	held := &tableState{sealed: &lane.Barrier{Began: time.Now().Add(-time.Hour)}}
	held.sealed.Allocated.Store(600)
	pool.Adjust(600)
	tab := &tableState{}
	log := &asked{}
	r := readerOf(t, Config{Log: log, Pools: connector.Pools{Batch: pool}})
	r.tables = []*tableState{held, tab}
	c := &claim{Partition: connectortest.Partition(0), table: tab}
	r.claims[c.Partition], r.order = c, []*claim{c}
	r.holds.endSession(c)
	r.fetches.startReading(c, connector.Position{Partition: c.Partition, Next: 10})
	records := &counted{}
	r.fetches.accept(connector.Fetched{Partition: c.Partition, Session: c.session, From: 10, Next: 20, Records: records})
	if _, ok := r.room.reserve(c, 500); ok || r.room.first != nil {
		t.Fatal("it does not wait alone")
	}
	requests := log.n
	r.fetches.shedWaiting(false)
	if records.released != 0 {
		t.Error("shed while there is memory to fetch with")
	}
	r.fetches.shedWaiting(true)
	if records.released != 1 || c.wantsBytes != 0 || len(r.room.waiting) != 0 || log.n != requests {
		t.Errorf("released %d times, wants %d, asked again: %v", records.released, c.wantsBytes, log.n != requests)
	}
	r.fetches.request(c)
	if log.n != requests {
		t.Error("asked again while there is no room")
	}
	held.sealed = nil
	pool.Adjust(-600)
	r.fetches.shedWaiting(true)
	if log.n != requests+1 || c.ahead != 10 {
		t.Errorf("asked %d times more, from %d", log.n-requests, c.ahead)
	}
}

// asked is a Log that counts calls of Fetch.
type asked struct {
	connector.Log
	n int
}

func (a *asked) Fetch(connector.FetchRequest) { a.n++ }
func (*asked) Forget(connector.Partition)     {}
