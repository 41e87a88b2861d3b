package commit

import (
	"fmt"
	"runtime"
	"testing"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/reliability/bytepool"
)

// refused is an error that takes as much memory as a decoder's error.
type refused struct {
	code   string
	path   string
	offset int
}

func (r *refused) Error() string {
	return fmt.Sprintf("json: %s at byte %d in column %s", r.code, r.offset, r.path)
}
func (r *refused) Code() string { return r.code }

// TestCandidate_Weight: for bad records of any size, the bytes reserved in the batch pool are at least those that
// candidates and dead letters take in the heap, and at most four times as many.
func TestCandidate_Weight(t *testing.T) {
	for name, r := range map[string]*connector.Record{
		"no value":     {},
		"small":        {Key: []byte("key"), Value: make([]byte, 100)},
		"many headers": {Value: make([]byte, 10), Headers: make([]connector.Header, 40)},
		"large":        {Value: make([]byte, 100_000)},
	} {
		t.Run(name, func(t *testing.T) {
			n := int64(20_000)
			if len(r.Value) > 1000 {
				n = 400
			}
			before := heap()
			batch := &plan.SealedBatch{ID: "member-1", Claims: map[connector.Partition]plan.Span{connectortest.Partition(0): {Session: 1, From: 0, Next: n, Epoch: 0, Earlier: nil}}}
			b := &lane.Block{Partition: connectortest.Partition(0), Session: 1, Letters: true}
			for i := range n {
				rec := *r
				rec.Offset = i
				c, _ := lane.NewCandidate(b, &rec, classify.Mark(&refused{"type_mismatch", "shipping.address.lines[3].text", 17}, classify.Poison))
				batch.Candidates = append(batch.Candidates, c)
			}
			p := plan.Decide(batch, connectortest.Snapshot(nil), plan.Terms{Pipeline: "pipe", Member: "m", Letters: map[string]connector.LetterRules{"orders": {HoldAbove: 0.5}}, Allowed: map[string]bool{"orders": true}})
			taken := heap() - before
			if held := lane.AllocatedBy(batch.Candidates, nil); taken > held || taken < held/4 {
				t.Errorf("%d bytes are taken, %d held: %d and %d for each", taken, held, taken/n, held/n)
			}
			if len(p.Letters) != int(n) {
				t.Errorf("%d letters", len(p.Letters))
			}
			// Once the dead letters are durable, all of their memory is free although the batch is still in use.
			pool := bytepool.New(1 << 40)
			pool.Adjust(lane.AllocatedBy(batch.Candidates, nil))
			reserved := writerOf(Config{Batch: pool}, connector.Target{}, nil).committer.reserve(&lane.Barrier{}, batch)
			reserved.releaseLetters()
			p.Letters = nil
			if left := heap() - before; left > n*40 || pool.Used() != 0 {
				t.Errorf("%d bytes are left, the pool has %d", left, pool.Used())
			}
			runtime.KeepAlive(batch)
			runtime.KeepAlive(p)
		})
	}
}

// heap returns the bytes of live objects in the heap.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
