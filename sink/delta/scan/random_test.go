package scan_test

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// TestScanEqualsNaiveRead: after random commits, removals and checkpoints, each query returns every row that it asks
// for once, with the values that were written, and no removed row.
func TestScanEqualsNaiveRead(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type kept struct {
			add  deltalog.Add
			rows []row
		}
		var (
			ctx    = t.Context()
			l      = newLake(rt, ctx, objstore.NewMem(), tableSchema(t))
			active []kept
			nextID int64
		)
		draw := func() row {
			nextID++
			r := row{
				id: nextID, topic: rapid.SampledFrom([]string{"orders", "orders-eu", "", "a topic whose name is longer than statistics hold"}).Draw(rt, "topic"),
				partition: rapid.Int32Range(-1, 3).Draw(rt, "partition"), offset: rapid.Int64Range(-1, 40).Draw(rt, "offset"),
				at: rapid.Int64Range(0, 30_000).Draw(rt, "at"),
			}
			if rapid.IntRange(0, 3).Draw(rt, "text") > 0 {
				r.text = rapid.StringN(0, 20, 60).Draw(rt, "value")
			}
			return r
		}
		for range rapid.IntRange(1, 8).Draw(rt, "commits") {
			var actions []deltalog.Action
			for range rapid.IntRange(0, 2).Draw(rt, "removes") {
				if len(active) > 0 {
					i := rapid.IntRange(0, len(active)-1).Draw(rt, "removed")
					actions = append(actions, deltalog.Remove{Path: active[i].add.Path, DataChange: true})
					active = slices.Delete(active, i, i+1)
				}
			}
			for range rapid.IntRange(0, 2).Draw(rt, "adds") {
				var f kept
				var groups [][]row
				for range rapid.IntRange(1, 3).Draw(rt, "groups") {
					group := make([]row, rapid.IntRange(1, 6).Draw(rt, "rows"))
					for i := range group {
						group[i] = draw()
					}
					groups, f.rows = append(groups, group), append(f.rows, group...)
				}
				f.add = l.write(groups...)
				switch rapid.IntRange(0, 5).Draw(rt, "statistics") {
				case 0:
					f.add.Stats = ""
				case 1:
					f.add.Stats = `{"numRecords":1}`
				}
				active = append(active, f)
				actions = append(actions, f.add)
			}
			if len(actions) > 0 {
				l.commit(actions...)
			}
			if rapid.IntRange(0, 2).Draw(rt, "checkpoint") == 0 {
				l.checkpoint()
			}
		}

		q := scan.Query{Parallel: rapid.IntRange(0, 3).Draw(rt, "parallel"), Bytes: rapid.Int64Range(0, 4<<20).Draw(rt, "bytes")}
		for range rapid.IntRange(0, 2).Draw(rt, "where") {
			from := rapid.Int64Range(0, 40).Draw(rt, "from")
			q.Where = append(q.Where, scan.Where{
				Topic: draw().topic, Partition: rapid.Int32Range(0, 3).Draw(rt, "of"), From: from, Next: from + rapid.Int64Range(0, 20).Draw(rt, "length"),
			})
		}
		if rapid.Bool().Draw(rt, "timed") {
			q.Since = time.UnixMicro(rapid.Int64Range(1, 30_000).Draw(rt, "since"))
		}
		got, _, err := run(ctx, l.store, l.state(), q)
		if err != nil {
			rt.Fatal(err)
		}
		have := map[int64]row{}
		for _, r := range got {
			if _, twice := have[r.id]; twice {
				rt.Fatalf("twice: %v", r)
			}
			have[r.id] = r
		}
		known := map[int64]row{}
		for _, f := range active {
			for _, r := range f.rows {
				known[r.id] = r
				if _, ok := have[r.id]; !ok && wanted(q, r) {
					rt.Errorf("missing: %v", r)
				}
			}
		}
		for id, r := range have {
			if diff := cmp.Diff(known[id], r, cmp.AllowUnexported(row{})); diff != "" {
				rt.Error(diff)
			}
		}
	})
}

// wanted reports whether a query asks for a row, by the definition of Query and without statistics.
func wanted(q scan.Query, r row) bool {
	if !q.Since.IsZero() && (r.at == 0 || r.at < q.Since.Truncate(time.Millisecond).UnixMicro()) {
		return false
	}
	for _, w := range q.Where {
		if r.topic == w.Topic && r.partition == w.Partition && w.From <= r.offset && r.offset < w.Next && r.topic != "" {
			return true
		}
	}
	return len(q.Where) == 0
}
