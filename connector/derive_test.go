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
	ofTopic, own := RowsOf{Topic: "orders", Partition: AnyPartition}, RowsOf{Topic: "orders"}
	fine := map[Partition]Bounds{p: {LogStart: 5, LastStable: 10, HighWatermark: 10, DivergedAt: -1}}
	for _, c := range []struct {
		name    string
		s       *Snapshot
		offsets map[int32]GroupOffset
		bounds  map[Partition]Bounds
		want    Reason
		rows    []RowsOf
	}{
		{"first start", table(nil), nil, fine, "", nil},
		{"at work", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, fine, "", nil},
		{"a partition that was added", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}), nil, fine, "", nil},
		{
			"a partition that was added, and the group has an offset of it", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}),
			map[int32]GroupOffset{0: {Next: 3}, 1: {Next: 7}},
			fine, ReasonUnknownHistory, nil,
		},
		{
			"a partition that was added, and the group has offsets of the others", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}),
			map[int32]GroupOffset{1: {Next: 7}},
			fine, "", nil,
		},
		{"behind the log's start", table(map[string]int64{mark: 0, p.AppID("a"): 4}), nil, fine, ReasonBehindLogStart, nil},
		{"ahead of its end", table(map[string]int64{mark: 0, p.AppID("a"): 11}), nil, fine, ReasonAheadOfLogEnd, nil},
		{"truncated", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, map[Partition]Bounds{p: {HighWatermark: 10, DivergedAt: 6}}, ReasonTruncated, nil},
		{"gone", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, nil, ReasonTopicRecreated, nil},
		{"another topic id", table(map[string]int64{mark: 0, other(func(o *Partition) { o.TopicID[0] = 2 }).AppID("a"): 7}), nil, fine, ReasonTopicRecreated, nil},
		{"another cluster", table(map[string]int64{mark: 0, other(func(o *Partition) { o.Cluster = "d" }).AppID("a"): 7}), nil, fine, ReasonClusterChanged, nil},
		{"another pipeline", table(map[string]int64{p.AppID("b"): 7}), nil, fine, ReasonUnknownHistory, nil},
		{"a group offset alone", table(nil), map[int32]GroupOffset{0: {Next: 3}}, fine, ReasonUnknownHistory, nil},
		{"a group offset of another partition alone", table(nil), map[int32]GroupOffset{1: {Next: 3}}, fine, ReasonUnknownHistory, nil},
		{"another table", table(map[string]int64{p.AppID("a"): 7}), nil, fine, ReasonTableReplaced, nil},
		{"rows alone", table(nil), nil, fine, ReasonUnknownHistory, []RowsOf{ofTopic}},
		{"rows of a topic at work", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, fine, "", []RowsOf{ofTopic, own}},
		{
			"rows of its own, and the others have positions", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}),
			nil, fine, ReasonUnknownHistory,
			[]RowsOf{ofTopic, own},
		},
		{
			"rows of the others, and a partition that was added", table(map[string]int64{mark: 0, other(func(o *Partition) { o.ID = 1 }).AppID("a"): 7}),
			nil, fine, "",
			[]RowsOf{ofTopic, {Topic: "orders", Partition: 1}},
		},
	} {
		got, rows := Reason(""), map[RowsOf]bool{}
		for _, of := range c.rows {
			rows[of] = true
		}
		if h := Derive(c.s, "a", p, c.offsets, c.bounds, rows); h != nil {
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
