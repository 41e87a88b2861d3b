package main

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kfake"

	"sluice/internal/laketest"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// setBack deletes the versions of a table that are greater than to.
func (l *lake) setBack(table string, to int64) {
	l.T.Helper()
	store := objstore.Sub(l.Store, table)
	state, err := deltalog.Load(l.T.Context(), store)
	if err != nil {
		l.T.Fatal(err)
	}
	for v := state.Version; v > to; v-- { // newest first, so that a concurrent reader sees no gap
		if err := store.Delete(l.T.Context(), deltalog.CommitKey(v)); err != nil {
			l.T.Fatal(err)
		}
	}
}

// member runs a connector until stop is called, which returns the connector's log.
func (l *lake) member() (stop func() string) {
	l.T.Helper()
	ctx, cancel := context.WithCancel(l.T.Context())
	var out, errs bytes.Buffer
	ended := make(chan int, 1)
	go func() { ended <- run(ctx, []string{"run", "--config", l.Config}, &out, &errs) }()
	return func() string {
		l.T.Helper()
		cancel()
		if code := <-ended; code != 0 {
			l.T.Errorf("exit code %d", code)
		}
		return errs.String()
	}
}

// until waits until a condition is true. The text in what completes the sentence "waited in vain until".
func (l *lake) until(what string, condition func() bool) {
	l.T.Helper()
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	deadline := time.NewTimer(laketest.HangGuard)
	defer deadline.Stop()
	for !condition() {
		select {
		case <-look.C:
		case <-deadline.C:
			l.T.Fatalf("waited in vain until %s", what)
		}
	}
}

// TestTable_TwoPipelines: a table has rows of a topic from one pipeline. Another pipeline, with a group of its own,
// must hold the topic and add no rows, and the first pipeline must continue.
func TestTable_TwoPipelines(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	other := l.as("pipeline: p\n", "pipeline: q\n")
	l.Produce("orders", 2, 0, 1)
	_, errs := other.runs(1, "run", "--until-current")
	if !strings.Contains(errs, `"reason":"unknown_history"`) || !strings.Contains(errs, `pipeline \"p\" has written topic \"orders\" into this table`) {
		t.Error(errs)
	}
	l.Has("orders", laketest.UpTo(5, "orders:0", "orders:1"))
	l.runs(0, "run", "--until-current")
	l.Has("orders", laketest.UpTo(7, "orders:0", "orders:1"))
}

// TestCluster_Changed connects the pipeline to a cluster with another id and topics of the same names. The table must
// get no record of that cluster.
func TestCluster_Changed(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.ClusterID("elsewhere"), kfake.SeedTopics(2, "orders"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cluster.Close)
	brokers := strings.Join(mustLoad(t, l.Config, nil).Kafka.Brokers, ", ")
	other := l.as("brokers: ["+brokers+"]", "brokers: ["+strings.Join(cluster.ListenAddrs(), ", ")+"]")
	_, errs := other.runs(1, "run", "--until-current")
	if strings.Count(errs, `"reason":"cluster_changed"`) < 2 || !strings.Contains(errs, `this is \"elsewhere\"`) {
		t.Error(errs)
	}
	l.Has("orders", laketest.UpTo(5, "orders:0", "orders:1"))
}

// TestOlderTable_AtStart restores the table to an older version before a member starts, so that the committed offsets
// are ahead of its positions. The member must warn and read the records again. If the version is from before the
// initial commit, the member must hold the partitions.
func TestOlderTable_AtStart(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5) // version 0 creates the table, 1 is the initial commit, 2 has the rows
	l.Produce("orders", 3, 0, 1)
	l.runs(0, "run", "--until-current")
	before := l.versions("orders")
	l.setBack("orders", 2)
	l.Has("orders", laketest.UpTo(5, "orders:0", "orders:1"))
	l.Produce("orders", 1, 1)
	_, errs := l.runs(0, "run", "--until-current")
	if !strings.Contains(errs, `"level":"WARN","msg":"committed offset is ahead of the table's position`) ||
		!strings.Contains(errs, `"position":5,"group_offset":8`) {
		t.Error(errs)
	}
	l.Has("orders", map[string][]int64{"orders:0": laketest.UpTo(8, "o")["o"], "orders:1": laketest.UpTo(9, "o")["o"]})
	l.runs(0, "verify", "--kafka")
	if after := l.versions("orders"); after < before {
		t.Errorf("%d versions, before %d", after, before)
	}

	l.setBack("orders", 0)
	_, errs = l.runs(1, "run", "--until-current")
	if strings.Count(errs, `"reason":"unknown_history"`) < 2 {
		t.Error(errs)
	}
	if n := l.versions("orders"); n != 1 {
		t.Errorf("%d versions: it began by itself", n)
	}
}

// TestOlderTable_RunningMember restores the table to an older version while a member runs. The member must read the
// missing records again and leave no hole in the versions. In the end the table must have every record once.
func TestOlderTable_RunningMember(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	stop := l.member()
	records := 5
	rows := func(n int) func() bool {
		return func() bool { return len(l.Rows("orders")["orders:0"]) == n && len(l.Rows("orders")["orders:1"]) == n }
	}
	for round := range 3 {
		l.Produce("orders", 4, 0, 1)
		records += 4
		l.until(fmt.Sprintf("round %d is in the table", round), rows(records))
		l.setBack("orders", 2)
	}
	l.Produce("orders", 1, 0, 1)
	records++
	l.until("all of it is in the table again", rows(records))
	if log := stop(); !strings.Contains(log, `"level":"ERROR"`) {
		t.Errorf("the log has no line about it\n%s", log)
	}
	l.Has("orders", laketest.UpTo(int64(records), "orders:0", "orders:1"))
	l.runs(0, "verify", "--kafka")
}

// TestOffsetsSetBesideARunningMember moves positions many times while a member runs. Each move must commit or fail as a
// whole, and the table must have the rows that follow from the moves and the records.
func TestOffsetsSetBesideARunningMember(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	stop := l.member()
	want := map[string][]int64{"orders:0": laketest.UpTo(5, "o")["o"], "orders:1": laketest.UpTo(5, "o")["o"]}
	end := int64(5)
	for range 3 {
		p := l.moves(0, "set", "orders:0", fmt.Sprint(end-2))
		if len(p.Moves) != 1 || p.Moves[0].From != end {
			t.Errorf("%+v", p.Moves)
		}
		l.Produce("orders", 3, 0, 1)
		for o := end - 2; o < end+3; o++ {
			want["orders:0"] = append(want["orders:0"], o)
		}
		for o := end; o < end+3; o++ {
			want["orders:1"] = append(want["orders:1"], o)
		}
		end += 3
		l.until("the member went on", func() bool {
			rows := l.Rows("orders")
			return len(rows["orders:0"]) == len(want["orders:0"]) && len(rows["orders:1"]) == len(want["orders:1"])
		})
	}
	stop()
	for _, offsets := range want {
		slices.Sort(offsets)
	}
	l.Has("orders", want)
	l.runs(0, "verify", "--kafka")
}
