package connector

import (
	"testing"

	"pgregory.net/rapid"
)

func TestValveHysteresis(t *testing.T) {
	v := newValve(QueueConfig{PauseAt: 10_000, ResumeAt: 5_000, PerKey: 20_000})
	step := func(to int64, open bool) {
		t.Helper()
		v.queued.Store(to)
		if got := v.isOpen(); got != open {
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

// TestValveBounds: whatever is taken and given back, neither bound is passed, and in the end nothing is left.
func TestValveBounds(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		q := QueueConfig{PauseAt: rapid.Int64Range(1, 50).Draw(t, "pause"), PerKey: rapid.Int64Range(1, 10).Draw(t, "per key")}
		v := newValve(q)
		keys := [][]byte{nil, {}, {'a'}, {'b'}, {'c'}}
		held := map[uint16]int64{}
		var all []uint16
		for range rapid.IntRange(1, 200).Draw(t, "steps") {
			if len(all) > 0 && rapid.Bool().Draw(t, "give") {
				n := rapid.IntRange(1, len(all)).Draw(t, "n")
				v.give(all[:n])
				for _, s := range all[:n] {
					held[s]--
				}
				all = all[n:]
				continue
			}
			s := v.slot(part0(int32(rapid.IntRange(0, 2).Draw(t, "partition"))), rapid.SampledFrom(keys).Draw(t, "key"))
			room := held[s] < q.PerKey && int64(len(all)) < q.PauseAt
			if got := v.take(s); got != room {
				t.Fatalf("take %v with %d of the key and %d in all queued", got, held[s], len(all))
			}
			if room {
				held[s]++
				all = append(all, s)
			}
		}
		v.give(all)
		if v.queued.Load() != 0 {
			t.Fatalf("%d left", v.queued.Load())
		}
	})
}

func TestANullKeyCountsByPartition(t *testing.T) {
	v := newValve(QueueConfig{PauseAt: 10, PerKey: 1})
	first, again := v.slot(part0(0), nil), v.slot(part0(0), nil)
	if first != again || v.slot(part0(0), []byte("k")) != v.slot(part0(1), []byte("k")) {
		t.Error("a slot must depend on the key, or on the partition where there is none")
	}
	differ := false
	for id := range int32(10) {
		differ = differ || v.slot(part0(id), nil) != v.slot(part0(0), nil)
	}
	if !differ {
		t.Error("null keys of all partitions share a slot")
	}
}
