package plan

import (
	"testing"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

func TestDerive(t *testing.T) {
	p := connector.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: 0}
	other := func(change func(*connector.Partition)) connector.Partition {
		o := p
		change(&o)
		return o
	}
	table := func(positions map[string]int64) *connector.Snapshot {
		return &connector.Snapshot{TableID: "t", Positions: positions}
	}
	mark := idempotency.TableAppID("a", "t")
	ofTopic, own := connector.RowsOf{Topic: "orders", Partition: connector.AnyPartition}, connector.RowsOf{Topic: "orders"}
	fine := map[connector.Partition]connector.Bounds{p: {LogStart: 5, LastStable: 10, HighWatermark: 10, DivergedAt: -1}}
	for _, c := range []struct {
		name    string
		s       *connector.Snapshot
		offsets map[int32]connector.GroupOffset
		bounds  map[connector.Partition]connector.Bounds
		want    hold.Reason
		rows    []connector.RowsOf
	}{
		{"first start", table(nil), nil, fine, "", nil},
		{"at work", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, fine, "", nil},
		{"a partition that was added", table(map[string]int64{mark: 0, other(func(o *connector.Partition) { o.ID = 1 }).AppID("a"): 7}), nil, fine, "", nil},
		{
			"a partition that was added, and the group has an offset of it", table(map[string]int64{mark: 0, other(func(o *connector.Partition) { o.ID = 1 }).AppID("a"): 7}),
			map[int32]connector.GroupOffset{0: {Next: 3}, 1: {Next: 7}},
			fine, hold.UnknownHistory, nil,
		},
		{
			"a partition that was added, and the group has offsets of the others", table(map[string]int64{mark: 0, other(func(o *connector.Partition) { o.ID = 1 }).AppID("a"): 7}),
			map[int32]connector.GroupOffset{1: {Next: 7}},
			fine, "", nil,
		},
		{"behind the log's start", table(map[string]int64{mark: 0, p.AppID("a"): 4}), nil, fine, hold.BehindLogStart, nil},
		{"ahead of its end", table(map[string]int64{mark: 0, p.AppID("a"): 11}), nil, fine, hold.AheadOfLogEnd, nil},
		{"truncated", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, map[connector.Partition]connector.Bounds{p: {HighWatermark: 10, DivergedAt: 6}}, hold.Truncated, nil},
		{"gone", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, nil, hold.TopicRecreated, nil},
		{"another topic id", table(map[string]int64{mark: 0, other(func(o *connector.Partition) { o.TopicID[0] = 2 }).AppID("a"): 7}), nil, fine, hold.TopicRecreated, nil},
		{"another cluster", table(map[string]int64{mark: 0, other(func(o *connector.Partition) { o.Cluster = "d" }).AppID("a"): 7}), nil, fine, hold.ClusterChanged, nil},
		{"another pipeline", table(map[string]int64{p.AppID("b"): 7}), nil, fine, hold.UnknownHistory, nil},
		{"a group offset alone", table(nil), map[int32]connector.GroupOffset{0: {Next: 3}}, fine, hold.UnknownHistory, nil},
		{"a group offset of another partition alone", table(nil), map[int32]connector.GroupOffset{1: {Next: 3}}, fine, hold.UnknownHistory, nil},
		{"another table", table(map[string]int64{p.AppID("a"): 7}), nil, fine, hold.TableReplaced, nil},
		{"rows alone", table(nil), nil, fine, hold.UnknownHistory, []connector.RowsOf{ofTopic}},
		{"rows of a topic at work", table(map[string]int64{mark: 0, p.AppID("a"): 7}), nil, fine, "", []connector.RowsOf{ofTopic, own}},
		{
			"rows of its own, and the others have positions", table(map[string]int64{mark: 0, other(func(o *connector.Partition) { o.ID = 1 }).AppID("a"): 7}),
			nil, fine, hold.UnknownHistory,
			[]connector.RowsOf{ofTopic, own},
		},
		{
			"rows of the others, and a partition that was added", table(map[string]int64{mark: 0, other(func(o *connector.Partition) { o.ID = 1 }).AppID("a"): 7}),
			nil, fine, "",
			[]connector.RowsOf{ofTopic, {Topic: "orders", Partition: 1}},
		},
	} {
		got, rows := hold.Reason(""), map[connector.RowsOf]bool{}
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
