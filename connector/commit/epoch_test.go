package commit

import (
	"testing"

	"sluice/connector"
	"sluice/connector/connectortest"
)

// TestEpochBefore: the leader epoch in the table counts, even if its value is "unknown". If the table has none, the
// epoch of the reader or of the committed offset counts, if it belongs to exactly the table's position. Otherwise it is
// -1.
func TestEpochBefore(t *testing.T) {
	p := connectortest.Partition(0)
	kept := func(epoch int64) map[string]int64 {
		return map[string]int64{p.AppID("pipe"): 10, p.EpochAppID("pipe"): epoch}
	}
	none := map[string]int64{p.AppID("pipe"): 10, p.EpochAppID("other"): 8, connectortest.Partition(1).EpochAppID("pipe"): 8}
	for name, c := range map[string]struct {
		positions map[string]int64
		last      connector.Position
		offsets   map[int32]connector.GroupOffset
		want      int32
	}{
		"in the table":                                {kept(5), connector.Position{Partition: p, Next: 10, Epoch: 6}, map[int32]connector.GroupOffset{0: {Next: 10, Epoch: 7}}, 5},
		"in the table alone":                          {kept(5), connector.Position{Partition: p, Next: -1, Epoch: -1}, nil, 5},
		"unknown to the table":                        {kept(-1), connector.Position{Partition: p, Next: 10, Epoch: 6}, map[int32]connector.GroupOffset{0: {Next: 10, Epoch: 7}}, -1},
		"not in the table, in the reader's memory":    {none, connector.Position{Partition: p, Next: 10, Epoch: 6}, map[int32]connector.GroupOffset{0: {Next: 10, Epoch: 7}}, 6},
		"the reader does not know it":                 {none, connector.Position{Partition: p, Next: 10, Epoch: -1}, map[int32]connector.GroupOffset{0: {Next: 10, Epoch: 7}}, 7},
		"the reader remembers another position":       {none, connector.Position{Partition: p, Next: 9, Epoch: 6}, map[int32]connector.GroupOffset{0: {Next: 10, Epoch: 7}}, 7},
		"the committed offset is an older one":        {none, connector.Position{Partition: p, Next: -1, Epoch: -1}, map[int32]connector.GroupOffset{0: {Next: 9, Epoch: 7}}, -1},
		"the committed offset is another partition's": {none, connector.Position{Partition: p, Next: -1, Epoch: -1}, map[int32]connector.GroupOffset{1: {Next: 10, Epoch: 7}}, -1},
		"not known at all":                            {none, connector.Position{Partition: p, Next: -1, Epoch: -1}, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			w := writerOf(Config{}, connector.Target{}, connectortest.Snapshot(c.positions))
			if got := w.resolver.epochBefore(p, 10, c.last, c.offsets); got != c.want {
				t.Errorf("epoch %d, want %d", got, c.want)
			}
		})
	}
}
