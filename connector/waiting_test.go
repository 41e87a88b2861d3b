package connector

import (
	"testing"
	"testing/synctest"
	"time"

	"sluice/reliability/bytepool"
)

// A claim that waits for room has all others stop while commits that are not late will free it. What a late commit holds does
// not count, nor what fills behind it, and a claim whose table can take nothing has nobody stop.
func TestForemost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pool := bytepool.New(1000)
		table := func(open, cut int64) *tableState {
			s := &tableState{limits: Limits{Rows: 1 << 20, Bytes: 1 << 40}}
			if s.filled.held.Store(open); open > 0 {
				s.opened = time.Now()
			}
			if cut > 0 {
				s.cutting = &openCut{began: time.Now()}
				s.cutting.held.Store(cut)
			}
			pool.Adjust(open + cut)
			return s
		}
		a, b := table(100, 400), table(0, 0)
		r := &reader{pools: Pools{Batch: pool}, tables: []*tableState{a, b}, lanes: []*lane{{}}, metrics: newMetrics(nil)}
		large, small := &claim{table: b}, &claim{table: b}
		if _, ok := r.reserve(large, 600); ok || r.first != large {
			t.Fatalf("it waits: %v, and it is first: %v", !ok, r.first == large)
		}
		if n, ok := r.reserve(small, 50); !ok || n != 50 {
			t.Errorf("%d bytes of a pool that has them", n)
		}
		r.unreserve(b, 50)

		time.Sleep(minPatience) // the commit is late: 500 of 1000 bytes are its own and its successor's
		if r.foremost() != nil {
			t.Error("all wait for a commit that is late")
		}
		if got := r.freeable(time.Now(), minPatience); got != 500 {
			t.Errorf("%d bytes become free, want 500", got)
		}
		time.Sleep(5 * time.Second)
		a.cutting.began = time.Now().Add(-2 * time.Second) // another one: the claim is patient for half of its wait
		if r.foremost() != large {
			t.Error("a commit is late after a third of the wait")
		}
		time.Sleep(2 * time.Minute)
		a.cutting.began = time.Now().Add(-maxPatience)
		if r.foremost() != nil {
			t.Error("a commit is not late after a minute")
		}

		other := &claim{table: b, wants: 450, wantsSince: time.Now()} // less than the other, and there is room for it
		r.waiting = append(r.waiting, other)
		if r.foremost() != other {
			t.Error("a claim that could go on stands behind one that cannot")
		}
		b.cutting = &openCut{began: time.Now()}
		b.filled.rows.Store(b.limits.Rows)
		if r.foremost() != nil {
			t.Error("all wait for a claim whose table is full")
		}
		b.cutting = nil

		a.cutting, a.opened = nil, time.Time{}
		pool.Adjust(-500)
		a.filled.held.Store(0)
		if r.first = r.foremost(); r.first != large {
			t.Error("the claim that has waited longest is not the first")
		}
		if n, ok := r.reserve(large, 600); !ok || n != 600 || r.first == large || len(r.waiting) != 1 {
			t.Errorf("%d bytes, %d wait", n, len(r.waiting))
		}
		r.drop(other)
		if len(r.waiting) != 0 || r.first != nil {
			t.Error("a claim that was dropped still waits")
		}
	})
}

// Where others wait for memory to fetch with, a claim gives up the block that finds no room, and fetches it again once there
// may be some.
func TestTurnWaiting(t *testing.T) {
	pool := bytepool.New(1000)
	held := &tableState{cutting: &openCut{began: time.Now().Add(-time.Hour)}}
	held.cutting.held.Store(600)
	pool.Adjust(600)
	tab := &tableState{}
	log := &asked{}
	r := &reader{
		log: log, claims: map[Partition]*claim{}, blocks: newBlockPool(1), pools: Pools{Batch: pool}.withDefaults(),
		metrics: newMetrics(nil), tables: []*tableState{held, tab},
	}
	c := &claim{Partition: part0(0), table: tab}
	r.claims[c.Partition], r.order = c, []*claim{c}
	r.end(c)
	r.begin(c, Position{Partition: c.Partition, Next: 10})
	records := &counted{}
	r.fetched(Fetched{Partition: c.Partition, Session: c.session, From: 10, Next: 20, Records: records})
	if _, ok := r.reserve(c, 500); ok || r.first != nil {
		t.Fatal("it does not wait alone")
	}
	requests := log.n
	r.turnWaiting(false)
	if records.released != 0 {
		t.Error("shed while there is memory to fetch with")
	}
	r.turnWaiting(true)
	if records.released != 1 || c.wants != 0 || len(r.waiting) != 0 || log.n != requests {
		t.Errorf("released %d times, wants %d, asked again: %v", records.released, c.wants, log.n != requests)
	}
	r.request(c)
	if log.n != requests {
		t.Error("asked again while there is no room")
	}
	held.cutting = nil
	pool.Adjust(-600)
	r.turnWaiting(true)
	if log.n != requests+1 || c.ahead != 10 {
		t.Errorf("asked %d times more, from %d", log.n-requests, c.ahead)
	}
}

// asked is a Log that counts requests.
type asked struct {
	Log
	n int
}

func (a *asked) Fetch(FetchRequest) { a.n++ }
func (*asked) Forget(Partition)     {}
