package intake

import (
	"testing"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/reliability/bytepool"
)

// TestRoom_RareTables: a table that is rarely fed does not reduce the share of the batch pool that other tables may
// use. When its own share is computed, it counts as one more table beside them.
func TestRoom_RareTables(t *testing.T) {
	const size = 64 << 20
	busy, quiet, other := &tableState{}, &tableState{rare: true}, &tableState{}
	r := readerOf(t, Config{Pools: connector.Pools{Batch: bytepool.New(size)}})
	r.tables = []*tableState{busy, quiet}
	if n := r.room.sharing(); n != 1 {
		t.Errorf("%d tables share the pool", n)
	}
	r.Pools.Batch.Adjust(size/2 + 1)
	for _, c := range []struct {
		table    *tableState
		held     int64
		crowding bool
	}{
		{busy, size / 2, false}, // it is the only table that needs the pool
		{quiet, size / 2, true},
		{quiet, size/4 - 1, false},
	} {
		c.table.sealed = &lane.Barrier{}
		c.table.sealed.Allocated.Store(c.held)
		if got := r.room.overShare(c.table); got != c.crowding {
			t.Errorf("rare %v with %d bytes crowds: %v", c.table.rare, c.held, got)
		}
	}
	r.tables = append(r.tables, other)
	if n := r.room.sharing(); n != 2 || !r.room.overShare(busy) {
		t.Errorf("%d tables share the pool, crowding %v", n, r.room.overShare(busy))
	}
}
