package connector

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/idempotency"
)

// TestEpochBefore: the table's word about the leader epoch of a position wins, and the others speak about this position only.
func TestEpochBefore(t *testing.T) {
	p := part0(0)
	kept := func(epoch int64) map[string]int64 {
		return map[string]int64{p.AppID("pipe"): 10, p.EpochAppID("pipe"): epoch}
	}
	none := map[string]int64{p.AppID("pipe"): 10, p.EpochAppID("other"): 8, part0(1).EpochAppID("pipe"): 8}
	for name, c := range map[string]struct {
		positions map[string]int64
		last      Position
		offsets   map[int32]GroupOffset
		want      int32
	}{
		"in the table":                                {kept(5), Position{p, 10, 6}, map[int32]GroupOffset{0: {10, 7}}, 5},
		"in the table alone":                          {kept(5), Position{p, -1, -1}, nil, 5},
		"unknown to the table":                        {kept(-1), Position{p, 10, 6}, map[int32]GroupOffset{0: {10, 7}}, -1},
		"not in the table, in the reader's memory":    {none, Position{p, 10, 6}, map[int32]GroupOffset{0: {10, 7}}, 6},
		"the reader does not know it":                 {none, Position{p, 10, -1}, map[int32]GroupOffset{0: {10, 7}}, 7},
		"the reader remembers another position":       {none, Position{p, 9, 6}, map[int32]GroupOffset{0: {10, 7}}, 7},
		"the committed offset is an older one":        {none, Position{p, -1, -1}, map[int32]GroupOffset{0: {9, 7}}, -1},
		"the committed offset is another partition's": {none, Position{p, -1, -1}, map[int32]GroupOffset{1: {10, 7}}, -1},
		"not known at all":                            {none, Position{p, -1, -1}, nil, -1},
	} {
		t.Run(name, func(t *testing.T) {
			w := &writer{pipeline: "pipe", snapshot: snapshotAt(c.positions)}
			if got := w.epochBefore(p, 10, c.last, c.offsets); got != c.want {
				t.Errorf("epoch %d, want %d", got, c.want)
			}
		})
	}
}

// TestSpan_EndAt: each place in a batch has the leader epoch of what was read before it.
func TestSpan_EndAt(t *testing.T) {
	c := &claim{next: 10, epoch: 3}
	c.pass(14, 3, 11)
	c.pass(20, 5, 16)
	c.pass(25, 5, 20)
	c.pass(30, 6, 29) // a batch without records
	for next, want := range map[int64]int32{10: 3, 14: 3, 15: -1, 16: -1, 17: 5, 25: 5, 29: -1, 30: 6} {
		span := Span{From: 10, Next: c.next, Epoch: c.epoch, Earlier: c.earlier}
		if span.endAt(next); span.Next != next || span.Epoch != want {
			t.Errorf("shortened to %d: next %d, epoch %d; want epoch %d", next, span.Next, span.Epoch, want)
		}
	}
}

// TestMoves_EpochUnknown: a member has not read up to the place that an operator moves a position to.
func TestMoves_EpochUnknown(t *testing.T) {
	p := part0(0)
	m := Moves{Pipeline: "pipe", Moves: []Move{{Partition: p, From: 10, Next: 4}}}
	s := snapshotAt(map[string]int64{p.AppID("pipe"): 10, p.EpochAppID("pipe"): 7, idempotency.TableAppID("pipe", "T"): 0})
	want := []Txn{{p.AppID("pipe"), 4}, {p.EpochAppID("pipe"), -1}}
	if diff := cmp.Diff(want, m.plan(s).Commit.Txns); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
}
