package delta_test

import (
	"testing"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// TestSnapshot_EpochOfItsPosition: a snapshot has the leader epoch of a position only if the same commit set both. A
// program that does not know of epochs moves the position alone; the epoch of the new position is then unknown.
func TestSnapshot_EpochOfItsPosition(t *testing.T) {
	store := objstore.NewMem()
	tab := process(t, store)
	partition := idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}}
	epoch := func() (int32, bool) {
		t.Helper()
		info, err := delta.Inspect(t.Context(), store)
		if err != nil {
			t.Fatal(err)
		}
		seen, fresh := load(t, tab), load(t, process(t, store))
		e, kept := seen.Epoch("p", partition)
		for name, positions := range map[string]map[string]int64{"loaded anew": fresh.Positions, "inspected": info.Positions} {
			if other, has := (&connector.Snapshot{Positions: positions}).Epoch("p", partition); other != e || has != kept {
				t.Errorf("%s: epoch %d, %t; refreshed: %d, %t", name, other, has, e, kept)
			}
		}
		return e, kept
	}
	set := func(next int64, epoch int64) {
		t.Helper()
		load(t, tab)
		c := connector.Commit{Operation: "SLUICE POSITIONS", Txns: []connector.Txn{
			{AppID: partition.AppID("p"), Version: next}, {AppID: partition.EpochAppID("p"), Version: epoch},
		}}
		if _, err := tab.Commit(t.Context(), &c, func(*connector.Snapshot) error { return nil }); err != nil {
			t.Fatal(err)
		}
	}
	load(t, tab)
	if e, kept := epoch(); kept {
		t.Errorf("an empty table keeps epoch %d", e)
	}
	set(10, 5)
	if e, kept := epoch(); e != 5 || !kept {
		t.Errorf("epoch %d, %t; want 5", e, kept)
	}
	later := int64(1)
	foreign(t, store, deltalog.Txn{AppID: partition.AppID("p"), Version: 20, LastUpdated: &later})
	if e, kept := epoch(); kept {
		t.Errorf("the position was moved alone and has epoch %d", e)
	}
	set(30, -1)
	if e, kept := epoch(); e != -1 || !kept {
		t.Errorf("epoch %d, %t; want that it is unknown", e, kept)
	}
	foreign(t, store, deltalog.Txn{AppID: partition.AppID("p"), Version: 40}, deltalog.Txn{AppID: partition.EpochAppID("p"), Version: 6})
	if e, kept := epoch(); e != 6 || !kept {
		t.Errorf("epoch %d, %t; want 6 of a commit whose txns have no time", e, kept)
	}
	for _, damaged := range []int64{1 << 31, -7} {
		set(50, damaged)
		if e, kept := epoch(); e != -1 || !kept {
			t.Errorf("a txn of version %d is epoch %d, %t", damaged, e, kept)
		}
	}
}
