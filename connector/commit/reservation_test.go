package commit

import (
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/reliability/bytepool"
)

// TestReservation: the memory of a batch that is discarded before the writer takes it is released once. The memory of a
// batch that is committed is released step by step, as its pieces are encoded and its files are put.
func TestReservation(t *testing.T) {
	pool := bytepool.New(1000)
	w := writerOf(Config{Lanes: 2, Batch: pool}, connector.Target{}, nil).committer
	released := 0
	newBarrier := func() *lane.Barrier {
		barrier := &lane.Barrier{Parts: make(chan lane.Part, 2)}
		for n := range 2 {
			a, b := plan.Chunk{Rows: rows{id: 2 * n, released: &released}, Allocated: 100}, plan.Chunk{Rows: rows{id: 2*n + 1, released: &released}, Allocated: 30}
			barrier.Parts <- lane.Part{Lane: n, Chunks: []plan.Chunk{a, b}}
		}
		barrier.Allocated.Add(260)
		pool.Adjust(260)
		return barrier
	}
	dropped := newBarrier()
	w.discard(t.Context(), dropped)
	w.discard(t.Context(), dropped)
	if pool.Used() != 0 || released != 4 {
		t.Errorf("%d used, %d released", pool.Used(), released)
	}

	released = 0
	barrier := newBarrier()
	taken := w.gather(t.Context(), barrier)
	r := w.reserve(barrier, taken)
	first, last := taken.Chunks[0].Rows, taken.Chunks[3].Rows
	r.plan([]connector.Piece{{Rows: first, To: 5}, {Rows: first, From: 7, To: 9}, {Rows: last, To: 1}}) // the plan has no row of the two other chunks
	for _, step := range []struct {
		done           int
		encoded        int64
		used, released int
	}{{1, 0, 260, 0}, {2, 20, 50, 3}, {2, 0, 30, 3}, {3, 15, 15, 4}, {3, 0, 0, 4}} {
		r.progress(step.done, step.encoded)
		if barrier.Allocated.Load() != pool.Used() || pool.Used() != int64(step.used) || released != step.released {
			t.Errorf("%+v: %d used, %d of the batch, %d released", step, pool.Used(), barrier.Allocated.Load(), released)
		}
	}
	r.end()
	w.discard(t.Context(), barrier)
	if pool.Used() != 0 || released != 4 {
		t.Errorf("%d used, %d released", pool.Used(), released)
	}
}

// rows is a record batch of which only Release may be called.
type rows struct {
	arrow.RecordBatch

	id       int
	released *int
}

func (r rows) Release() { *r.released++ }
