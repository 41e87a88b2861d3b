package connector

import (
	"testing"

	"sluice/idempotency"
)

func TestDerive(t *testing.T) {
	p := Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: 0}
	other := func(change func(*Partition)) Partition {
		o := p
		change(&o)
		return o
	}
	table := func(positions map[string]int64) *Snapshot { return &Snapshot{TableID: "t", Positions: positions} }
	mark := idempotency.TableAppID("a", "t")
	fine := map[Partition]Bounds{p: {LogStart: 5, LastStable: 10, HighWatermark: 10, DivergedAt: -1}}
	for _, c := range []struct {
		name    string
		s       *Snapshot
		offsets map[int32]GroupOffset
		bounds  map[Partition]Bounds
		want    Reason
		rows    bool
	}{
		{"first start", table(nil), nil, fine, "", false},
		{"at work", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, fine, "", false},
		{"a partition that was added", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}), nil, fine, "", false},
		{
			"a partition that was added, and the group has an offset of it", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}),
			map[int32]GroupOffset{0: {Next: 3}, 1: {Next: 7}},
			fine, ReasonUnknownHistory, false,
		},
		{
			"a partition that was added, and the group has offsets of the others", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}),
			map[int32]GroupOffset{1: {Next: 7}},
			fine, "", false,
		},
		{"behind the log's start", table(map[string]int64{mark: 0, p.AppID("a"): 4}), nil, fine, ReasonBehindLogStart, false},
		{"ahead of its end", table(map[string]int64{mark: 0, p.AppID("a"): 11}), nil, fine, ReasonAheadOfLogEnd, false},
		{"truncated", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, map[Partition]Bounds{p: {HighWatermark: 10, DivergedAt: 6}}, ReasonTruncated, false},
		{"gone", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, nil, ReasonTopicRecreated, false},
		{"another topic id", table(map[string]int64{mark: 0, other(func(o *Partition) { o.TopicID[0] = 2 }).AppID("a"): 7}), nil, fine, ReasonTopicRecreated, false},
		{"another cluster", table(map[string]int64{mark: 0, other(func(o *Partition) { o.Cluster = "d" }).AppID("a"): 7}), nil, fine, ReasonClusterChanged, false},
		{"another pipeline", table(map[string]int64{p.AppID("b"): 7}), nil, fine, ReasonUnknownHistory, false},
		{"a group offset alone", table(nil), map[int32]GroupOffset{0: {Next: 3}}, fine, ReasonUnknownHistory, false},
		{"a group offset of another partition alone", table(nil), map[int32]GroupOffset{1: {Next: 3}}, fine, ReasonUnknownHistory, false},
		{"another table", table(map[string]int64{p.AppID("a"): 7}), nil, fine, ReasonTableReplaced, false},
		{"rows alone", table(nil), nil, fine, ReasonUnknownHistory, true},
		{"rows of a topic at work", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, fine, "", true},
		{"rows, and a partition that was added", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}), nil, fine, "", true},
	} {
		got := Reason("")
		if h := Derive(c.s, "a", p, c.offsets, c.bounds, c.rows); h != nil {
			got = h.Reason
			if h.Partition != p || h.Detail == "" {
				t.Errorf("%s: %+v", c.name, h)
			}
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}
