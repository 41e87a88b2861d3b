package intake

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"pgregory.net/rapid"

	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/lane"
)

func TestBackpressure_Hysteresis(t *testing.T) {
	v := lane.NewBackpressure(connector.QueueConfig{PauseAt: 10_000, ResumeAt: 5_000, PerKey: 20_000})
	step := func(to int64, open bool) {
		t.Helper()
		v.Queued.Store(to)
		if got := v.IsOpen(); got != open {
			t.Errorf("%d queued: open %v, want %v", to, got, open)
		}
	}
	step(9_999, true)
	step(10_000, false)
	step(9_000, false)
	step(5_001, false)
	step(5_000, true)
	step(9_999, true)
}

// TestBackpressure_Bounds: no sequence of Reserve and Release lets the queue exceed its bound, or a key exceed its own.
// Once all records are released, every counter is 0.
func TestBackpressure_Bounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := connector.QueueConfig{PauseAt: rapid.Int64Range(1, 50).Draw(t, "pause"), PerKey: rapid.Int64Range(1, 10).Draw(t, "per key")}
		v := lane.NewBackpressure(q)
		keys := [][]byte{nil, {}, {'a'}, {'b'}, {'c'}}
		held := map[uint16]int64{}
		var all []uint16
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "give") {
				n := rapid.IntRange(1, len(all)).Draw(t, "n")
				v.Release(all[:n])
				for _, s := range all[:n] {
					held[s]--
				}
				all = all[n:]
				continue
			}
			s := v.Slot(connectortest.Partition(int32(rapid.IntRange(0, 2).Draw(t, "partition"))), rapid.SampledFrom(keys).Draw(t, "key"))
			room := held[s] < q.PerKey && int64(len(all)) < q.PauseAt
			if got := v.Reserve(s); got != room {
				t.Fatalf("take %v with %d of the key and %d in all queued", got, held[s], len(all))
			}
			if room {
				held[s]++
				all = append(all, s)
			}
		}
		v.Release(all)
		if v.Queued.Load() != 0 {
			t.Fatalf("%d left", v.Queued.Load())
		}
	})
}

func TestBackpressure_NullKey(t *testing.T) {
	v := lane.NewBackpressure(connector.QueueConfig{PauseAt: 10, PerKey: 1})
	first, again := v.Slot(connectortest.Partition(0), nil), v.Slot(connectortest.Partition(0), nil)
	if first != again || v.Slot(connectortest.Partition(0), []byte("k")) != v.Slot(connectortest.Partition(1), []byte("k")) {
		t.Error("a slot must depend on the key, or on the partition where there is none")
	}
	differ := false
	for id := range int32(10) {
		differ = differ || v.Slot(connectortest.Partition(id), nil) != v.Slot(connectortest.Partition(0), nil)
	}
	if !differ {
		t.Error("null keys of all partitions share a slot")
	}
}

// TestDispatcher_KeyWaits: if as many records of a key are queued as the bound of a key allows, a partition whose next
// record has this key waits; other partitions continue. One wait counts once in the metric, however many turns of the
// dispatcher it lasts.
func TestDispatcher_KeyWaits(t *testing.T) {
	registry := prometheus.NewRegistry()
	m := NewMetrics(registry)
	r := readerOf(t, Config{Metrics: m, Count: 1, Queue: connector.QueueConfig{PauseAt: 100, ResumeAt: 50, PerKey: 2}})
	l := r.lanes[0]
	tab := &tableState{Table: lane.Table{Decoder: connectortest.Tallies{}}, schema: &connectortest.Schema{}, claims: map[connector.Partition]*claim{}, limits: connector.Limits{Rows: 1 << 20, Bytes: 1 << 30}}
	r.tables = []*tableState{tab}
	for id := range int32(2) {
		c := &claim{Partition: connectortest.Partition(id), table: tab, lane: l, claimState: claimState{state: resuming}}
		r.claims[c.Partition], tab.claims[c.Partition], r.order = c, c, append(r.order, c)
		r.holds.endSession(c)
		r.fetches.startReading(c, connector.Position{Partition: c.Partition, Epoch: 1})
	}
	fetched := func(c *claim, key string, n int64) {
		var records []connector.Record
		for o := range n {
			records = append(records, connector.Record{Offset: c.ahead + o, Key: []byte(key), Value: []byte("x")})
		}
		r.fetches.accept(connector.Fetched{Partition: c.Partition, Session: c.session, From: c.ahead, Next: c.ahead + n, Epoch: 1, Records: &connectortest.Records{Left: records}})
	}
	turns := func(waits float64, queued int64) {
		t.Helper()
		for range 3 {
			r.dispatcher.enqueue()
		}
		var all float64
		families, err := registry.Gather()
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if f.GetName() == "sluice_key_waits_total" {
				all = f.Metric[0].Counter.GetValue()
			}
		}
		if all != waits || r.backpressure.Queued.Load() != queued {
			t.Errorf("%v waits with %d records queued, want %v and %d", all, r.backpressure.Queued.Load(), waits, queued)
		}
	}
	hot, other := r.order[0], r.order[1]
	key, cold := []byte("k"), []byte("other")
	for r.backpressure.Slot(connectortest.Partition(0), key) == r.backpressure.Slot(connectortest.Partition(0), cold) { // two keys may have the same hash slot
		cold = append(cold, '.')
	}
	fetched(hot, string(key), 5)
	fetched(other, string(cold), 2)
	turns(1, 4) // two records of each key are enqueued; the other three of "k" wait
	turns(1, 4)
	decoded := func(n int) {
		t.Helper()
		for i := range n {
			if !l.Step(t.Context()) {
				t.Fatalf("%d blocks are queued, want %d", i, n)
			}
		}
	}
	decoded(2)
	turns(2, 2)
	decoded(1)
	turns(2, 1)
	m.leaves(hot.Topic)
	turns(0, 1)
}
