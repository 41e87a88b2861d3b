package admin

import (
	"slices"
	"testing"

	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
)

// TestWindowsOf_TopicCreatedAgain: if a table has two positions of a partition, under two topic ids, that with the
// newest record counts, in any order of the txns. A position without a record counts only if there is no other.
func TestWindowsOf_TopicCreatedAgain(t *testing.T) {
	partition := func(id byte) idempotency.Partition {
		return idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: [16]byte{id}, ID: 3}
	}
	txns := func(id byte, next, newest int64) []deltalog.Txn {
		p := partition(id)
		all := []deltalog.Txn{{AppID: p.AppID("p"), Version: next}}
		if newest > 0 {
			all = append(all, deltalog.Txn{AppID: p.NewestAppID("p"), Version: newest})
		}
		return all
	}
	o := &Table{config: &config.Config{Pipeline: "p"}, topics: []string{"orders"}}
	for _, c := range []struct {
		name string
		all  [][]deltalog.Txn
		want byte
	}{
		{"one", [][]deltalog.Txn{txns(1, 10, 1000)}, 1},
		{"two", [][]deltalog.Txn{txns(1, 10, 1000), txns(2, 5, 2000)}, 2},
		{"without a record", [][]deltalog.Txn{txns(1, 10, 1000), txns(2, 0, 0)}, 1},
	} {
		for range 2 {
			windows := windowsOf(o, &delta.Info{Txns: slices.Concat(c.all...)}, nil)
			w := windows[source{"orders", 3}]
			if len(windows) != 1 || w == nil || w.scope.Partition != partition(c.want) {
				t.Errorf("%s: %d windows, %+v", c.name, len(windows), w)
			}
			slices.Reverse(c.all)
		}
	}
}
