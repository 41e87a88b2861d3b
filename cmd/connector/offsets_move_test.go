package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// why has the flags for a command that needs a reason and must not ask for confirmation.
var why = []string{"--yes", "--operator", "ann", "--reason", "a test"}

// moves runs a command that moves positions and returns its result.
func (l *lake) moves(code int, args ...string) (p admin.MovePlan) {
	l.T.Helper()
	out, errs := l.runs(code, slices.Concat([]string{"offsets"}, args, why, []string{"-o", "json"})...)
	if code == 0 {
		if err := json.Unmarshal([]byte(out), &p); err != nil || errs != "" {
			l.T.Errorf("%v: %v\n%s%s", args, err, out, errs)
		}
	}
	return p
}

// refuses runs a command and expects that it is refused with this exit code and text, and does not change the table.
func (l *lake) refuses(code int, text string, args ...string) {
	l.T.Helper()
	before := l.versions("orders")
	_, errs := l.runs(code, slices.Concat([]string{"offsets"}, args, why)...)
	if !strings.Contains(errs, text) {
		l.T.Errorf("%v: %q does not say %q", args, errs, text)
	}
	if after := l.versions("orders"); after != before {
		l.T.Errorf("%v: %d versions were written", args, after-before)
	}
}

// versions counts the versions of a table.
func (l *lake) versions(table string) (n int) {
	l.T.Helper()
	for _, err := range delta.History(l.T.Context(), objstore.Sub(l.Store, table)) {
		if err != nil {
			l.T.Fatal(err)
		}
		n++
	}
	return n
}

// operations returns the bodies of all entries of the operations log.
func (l *lake) operations() (bodies []opslog.Body) {
	l.T.Helper()
	guard := reliability.NewGuard("store", config.Default().Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	for e, err := range opslog.Open(l.Store, "p", opslog.Options{Guard: guard}).Entries(l.T.Context(), 1) {
		if err != nil {
			l.T.Fatal(err)
		}
		b, err := e.Decode()
		if err != nil || e.Operator != "ann" || e.Reason != "a test" {
			l.T.Errorf("%+v: %v", e, err)
		}
		bodies = append(bodies, b)
	}
	return bodies
}

// positions runs offsets show, expects this exit code, and returns the positions of topic orders by partition.
func (l *lake) positions(code int) map[int32]int64 {
	l.T.Helper()
	out, _ := l.runs(code, "offsets", "show", "-o", "json")
	var lines []admin.Position
	if err := json.Unmarshal([]byte(out), &lines); err != nil {
		l.T.Fatal(err, out)
	}
	at := map[int32]int64{}
	for _, line := range lines {
		if line.Topic == "orders" && line.Position != nil {
			at[line.Partition] = *line.Position
		}
	}
	return at
}

func (l *lake) stands(want map[int32]int64) {
	l.T.Helper()
	if d := cmp.Diff(want, l.positions(0)); d != "" {
		l.T.Errorf("positions (-want +got):\n%s", d)
	}
}

// newOrders returns a lake whose table orders has n records of each of two partitions.
func newOrders(t *testing.T, n int) *lake {
	t.Helper()
	l := newLake(t, "topics: {orders: {bad_records: hold}}")
	l.Create("orders", 2)
	l.Produce("orders", n, 0, 1)
	l.runs(0, "run", "--until-current")
	return l
}

func ids(offsets ...int64) []int64 { return offsets }

func TestOffsetsSet(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	before := l.versions("orders")

	out, errs := l.runs(0, "offsets", "set", "orders:0", "2", "orders:1", "5", "--dry-run")
	want := "PARTITION  FROM  TO  EFFECT\n" +
		"orders:0   5     2   offsets [2, 5) are read again, at most 3 rows repeat\n" +
		"orders:1   5     5   stays\n"
	if !strings.Contains(out, want) || !strings.Contains(errs, "dry run: nothing was changed") {
		t.Errorf("%s%s", out, errs)
	}
	if n := l.versions("orders"); n != before || len(l.operations()) > 0 {
		t.Errorf("a dry run wrote %d versions and %v", n-before, l.operations())
	}

	p := l.moves(0, "set", "orders:0", "2")
	if p.Outcome != opslog.Committed || *p.Version != int64(before) || p.Operation != 1 || p.Moves[0].Repeated != 3 {
		t.Errorf("%+v %+v", p, p.Moves)
	}
	l.stands(map[int32]int64{0: 2, 1: 5})
	moved := []opslog.Move{{Topic: "orders", TopicID: l.topicID("orders"), From: 5, To: 2}}
	wantLog := []opslog.Body{
		opslog.OffsetsIntent{Command: "offsets set", Table: "orders", Moves: moved},
		opslog.OffsetsDone{Intent: 1, Command: "offsets set", Table: "orders", Moves: moved, Version: int64(before), Outcome: opslog.Committed},
	}
	if d := cmp.Diff(wantLog, l.operations()); d != "" {
		t.Errorf("operations log (-want +got):\n%s", d)
	}
	l.runs(0, "run", "--until-current")
	l.Has("orders", map[string][]int64{"orders:0": ids(0, 1, 2, 2, 3, 3, 4, 4), "orders:1": ids(0, 1, 2, 3, 4)})
	l.runs(0, "verify", "--kafka")

	l.Produce("orders", 3, 0, 1)
	if p = l.moves(0, "set", "orders:0", "7", "orders:1", "6"); p.Moves[0].LeftOut != 2 || p.Moves[1].LeftOut != 1 {
		t.Errorf("%+v %+v", p.Moves[0], p.Moves[1])
	}
	l.runs(0, "run", "--until-current")
	l.Has("orders", map[string][]int64{"orders:0": ids(0, 1, 2, 2, 3, 3, 4, 4, 7), "orders:1": ids(0, 1, 2, 3, 4, 6, 7)})
	l.runs(0, "verify", "--kafka")

	l.refuses(4, "offset 9 is outside of the log of orders:0, which is [0, 8]", "set", "orders:0", "9")
	l.refuses(4, "has no partition 7", "set", "orders:7", "0")
	l.refuses(2, `"first" is not an offset`, "set", "orders:0", "first")
	l.refuses(2, "orders:1\" has no offset", "set", "orders:0", "1", "orders:1")
	l.refuses(2, "orders:0 is given twice", "set", "orders:0", "1", "orders:0", "2")
	l.refuses(2, "topic users is not in topics", "set", "users:0", "1")
	if _, errs := l.runs(2, "offsets", "set", "orders:0", "1", "--yes"); !strings.Contains(errs, "the reason is missing") {
		t.Error(errs)
	}
}

// TestOffsetsSet_Where: offsets set plans the right position for each way to name it: an offset, a distance from the
// current position, the start or end of the log, or a time. It does so for one partition and for all partitions of a
// topic.
func TestOffsetsSet_Where(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	later := time.Now().Add(time.Hour).Truncate(time.Second)
	for _, p := range []int32{0, 1} {
		record := &kgo.Record{Topic: "orders", Partition: p, Timestamp: later, Value: []byte(`{"n":5}`)}
		if err := l.Client.ProduceSync(t.Context(), record, record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	for _, c := range []struct {
		args []string
		want string // the old and the new position of each partition
	}{
		{[]string{"orders:0@3", "orders-1@2"}, "orders:0 5 3, orders:1 5 2"},
		{[]string{"orders:0", "-3"}, "orders:0 5 2"},
		{[]string{"orders-1", "+1"}, "orders:1 5 6"},
		{[]string{"orders", "-5"}, "orders:0 5 0, orders:1 5 0"},
		{[]string{"orders", "position-1"}, "orders:0 5 4, orders:1 5 4"},
		{[]string{"orders", "earliest"}, "orders:0 5 0, orders:1 5 0"},
		{[]string{"orders:1", "latest"}, "orders:1 5 7"},
		{[]string{"orders", later.UTC().Format(time.RFC3339)}, "orders:0 5 5, orders:1 5 5"},
		{[]string{"orders:1", "24h", "orders:0", "-1"}, "orders:0 5 4, orders:1 5 0"},
		{[]string{"orders", "1"}, "orders:0 5 1, orders:1 5 1"},
	} {
		_, p := l.planned(c.args...)
		slices.SortFunc(p.Moves, func(a, b *admin.PlannedMove) int { return int(a.Partition - b.Partition) })
		var got []string
		for _, s := range p.Moves {
			got = append(got, fmt.Sprintf("%s:%d %d %d", s.Topic, s.Partition, s.From, s.To))
		}
		if got := strings.Join(got, ", "); got != c.want {
			t.Errorf("%v: %s, want %s", c.args, got, c.want)
		}
	}
	out, _ := l.runs(0, "offsets", "set", "orders:0", "-3", "--dry-run")
	ids := slices.Collect(maps.Keys(l.topicIDsOf("orders")))
	if len(ids) != 1 || len(ids[0]) != 22 {
		t.Fatalf("topic ids %q", ids)
	}
	if want := "DELETE FROM orders WHERE _kafka_topic = 'orders' AND _kafka_topic_id = '" + ids[0] + "' AND _kafka_partition = 0 AND _kafka_offset >= 2 AND _kafka_offset < 5\n"; !strings.Contains(out, want) {
		t.Errorf("no %s in\n%s", want, out)
	}
	l.refuses(4, "offset -1 is outside of the log of orders:0, which is [0, 7]", "set", "orders:0", "-6")
	l.refuses(4, "offset 8 is outside of the log of orders:0, which is [0, 7]", "set", "orders:0", "+3")
	l.refuses(2, "orders:0 is given twice", "set", "orders", "1", "orders:0", "2")
	l.refuses(2, "orders:0 is given twice: topic orders stands for it, too", "set", "orders:0", "2", "orders", "1")
	l.refuses(2, "has no partition", "set", "orders@5")
	l.refuses(2, `"99999999999999999999" is not an offset`, "set", "orders:0", "99999999999999999999")
	l.refuses(2, `"+99999999999999999999" is not a number of offsets`, "set", "orders:0", "+99999999999999999999")
}

func (l *lake) topicID(name string) string {
	l.T.Helper()
	p, err := l.PartitionsOf(name)
	if err != nil {
		l.T.Fatal(err)
	}
	return p.ID.String()
}

// TestOffsetsSet_TableMovedOn changes the position in the table between the plan of a command and its commit. The
// command must be refused, and the operations log must have this outcome.
func TestOffsetsSet_TableMovedOn(t *testing.T) {
	t.Parallel()
	l := newOrders(t, 5)
	a, p := l.planned("orders:0", "2")
	l.moves(0, "set", "orders:0", "4")
	err := admin.Move(t.Context(), a, p, admin.By{Operator: "ann", Reason: "a test"}, 20*time.Second)
	if fail.Of(err) != fail.KindRefused || !strings.Contains(err.Error(), "is 4, but this commit starts at 5") {
		t.Errorf("%v", err)
	}
	l.stands(map[int32]int64{0: 4, 1: 5})
	log := l.operations()
	if done, ok := log[len(log)-1].(opslog.OffsetsDone); !ok || done.Outcome != opslog.Conflict || done.Version != -1 || done.Intent != 3 {
		t.Errorf("%+v", log[len(log)-1])
	}
	// If a member commits in between, the command is refused as well.
	a, p = l.planned("orders:0", "2")
	l.runs(0, "run", "--until-current")
	if err := admin.Move(t.Context(), a, p, admin.By{Operator: "ann", Reason: "a test"}, 20*time.Second); err == nil || p.Outcome != opslog.Conflict {
		t.Errorf("%v %v", err, p.Outcome)
	}
	l.runs(0, "verify")
}

// planned returns the plan of offsets set with these arguments, and the access that the test needs to carry it out.
func (l *lake) planned(args ...string) (*admin.Access, *admin.MovePlan) {
	l.T.Helper()
	a := &admin.Access{Config: mustLoad(l.T, l.Config, nil)}
	all, err := parseWanted(a.Config, args)
	if err != nil {
		l.T.Fatal(err)
	}
	p, err := admin.PlanSet(l.T.Context(), a, all)
	if err != nil {
		l.T.Fatal(err)
	}
	return a, p
}

func TestOffsetsStart(t *testing.T) {
	t.Parallel()
	t.Run("a group offset without a txn", func(t *testing.T) {
		t.Parallel()
		l := newLake(t, "topics: {orders: {}}")
		l.Create("orders", 2)
		l.Produce("orders", 5, 0, 1)
		l.group("p", "orders", 1, 3)
		l.runs(1, "run", "--until-current")
		l.refuses(4, "offsets start or offsets adopt begins it", "set", "orders:0", "0")
		l.refuses(4, "leave out --partition", "start", "orders", "--partition", "0")
		l.refuses(4, "has no position that could stay", "start", "orders", "--at", "position")
		l.refuses(2, `--at "now" is unknown`, "start", "orders", "--at", "now")
		l.refuses(2, "a topic is given twice", "start", "orders", "orders")
		p := l.moves(0, "start", "orders", "--at", "latest")
		if !strings.Contains(strings.Join(p.Notes, "\n"), "unknown_history: ") || p.Outcome != opslog.Committed {
			t.Errorf("%+v", p)
		}
		l.stands(map[int32]int64{0: 5, 1: 5})
		l.Produce("orders", 1, 0)
		l.runs(0, "run", "--until-current")
		l.Has("orders", map[string][]int64{"orders:0": ids(5)})
		l.refuses(4, "all partitions of topic orders have a position", "start", "orders")
		l.refuses(4, "has a position already: write --again", "start", "orders", "--partition", "0")
		l.moves(0, "start", "orders", "--partition", "0", "--again")
		l.runs(0, "run", "--until-current")
		l.Has("orders", map[string][]int64{"orders:0": ids(0, 1, 2, 3, 4, 5, 5)})
		l.runs(0, "verify")
	})
	t.Run("there is no table yet", func(t *testing.T) {
		t.Parallel()
		l := newLake(t, "topics: {orders: {}}")
		l.Create("orders", 1)
		l.Produce("orders", 3, 0)
		l.group("p", "orders", 0, 3)
		l.moves(0, "start", "orders", "--at", "1h")
		l.runs(0, "run", "--until-current")
		l.Has("orders", laketest.UpTo(3, "orders:0"))
	})
	t.Run("the topic was created again", func(t *testing.T) {
		t.Parallel()
		l := newOrders(t, 5)
		if _, err := l.Admin.DeleteTopic(t.Context(), "orders"); err != nil {
			t.Fatal(err)
		}
		l.Create("orders", 1)
		l.Produce("orders", 2, 0)
		l.runs(1, "run", "--until-current")
		p := l.moves(0, "start", "orders")
		if !strings.Contains(strings.Join(p.Notes, "\n"), "topic_recreated: ") {
			t.Errorf("%+v", p)
		}
		l.runs(0, "run", "--until-current")
		l.Has("orders", map[string][]int64{"orders:0": ids(0, 0, 1, 1, 2, 3, 4), "orders:1": ids(0, 1, 2, 3, 4)})
		l.runs(0, "verify")
	})
	t.Run("the table was created again", func(t *testing.T) {
		t.Parallel()
		l := newLake(t, "topics: {orders: {table: all}, users: {table: all}}")
		l.Create("orders", 1)
		l.Create("users", 1)
		l.Produce("orders", 3, 0)
		l.Produce("users", 3, 0)
		l.runs(0, "run", "--until-current")
		l.ReplaceTable("all")
		l.Produce("orders", 1, 0)
		l.runs(1, "run", "--until-current")
		l.refuses(4, "table_replaced: ", "set", "orders:0", "0")
		l.refuses(4, "it has positions of users too", "start", "orders")
		if _, err := l.Admin.CreatePartitions(t.Context(), 1, "orders"); err != nil {
			t.Fatal(err)
		}
		l.Produce("orders", 2, 1)
		p := l.moves(0, "start", "orders", "users", "--at", "position")
		if !p.Accept || len(p.Moves) != 2 || p.Moves[0].To != 3 || !strings.Contains(strings.Join(p.Notes, "\n"), "orders:1 has no position yet") {
			t.Errorf("%+v", p)
		}
		l.runs(0, "run", "--until-current")
		want := laketest.UpTo(4, "orders:0")
		want["orders:1"] = ids(0, 1)
		want["users:0"] = ids(0, 1, 2)
		l.Has("all", want)
	})
}

func TestOffsetsAcceptGap(t *testing.T) {
	t.Parallel()
	t.Run("behind the start of the log", func(t *testing.T) {
		t.Parallel()
		l := newOrders(t, 5)
		l.Produce("orders", 4, 0, 1)
		l.deleteRecords("orders", 0, 7)
		l.runs(1, "run", "--until-current")
		l.refuses(4, "there is no gap to accept", "accept-gap", "orders:1")
		out, _ := l.runs(0, "offsets", "accept-gap", "orders", "--dry-run")
		if !strings.Contains(out, "orders:0   5     7   offsets [5, 7) are left out, at most 2 records; behind_log_start") {
			t.Error(out)
		}
		l.moves(0, "accept-gap", "orders")
		l.runs(0, "run", "--until-current")
		l.Has("orders", map[string][]int64{"orders:0": ids(0, 1, 2, 3, 4, 7, 8), "orders:1": ids(0, 1, 2, 3, 4, 5, 6, 7, 8)})
		l.runs(0, "verify", "--kafka")
	})
	t.Run("ahead of the log's end", func(t *testing.T) {
		t.Parallel()
		w := newLake(t, "topics: {orders: {}}")
		w.Create("orders", 1)
		w.Produce("orders", 3, 0)
		w.runs(0, "run", "--until-current")
		w.SetPosition("orders", 0, 9)
		w.runs(1, "run", "--until-current")
		p := w.moves(0, "accept-gap", "orders:0")
		if len(p.Moves) != 1 || p.Moves[0].From != 9 || p.Moves[0].To != 3 || !strings.Contains(p.Moves[0].Note, "ahead_of_log_end: the log ends at 3") {
			t.Errorf("%+v", p.Moves)
		}
		w.Produce("orders", 1, 0)
		w.runs(0, "run", "--until-current")
		w.Has("orders", laketest.UpTo(4, "orders:0"))
	})
}

func TestOffsetsSkip(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {bad_records: hold}}")
	l.Create("orders", 2)
	batch := []*kgo.Record{{Topic: "orders", Value: []byte(`{"n":0}`)}, {Topic: "orders", Value: []byte(`{"n":"poison"}`)}, {Topic: "orders", Value: []byte(`{"n":2}`)}}
	if err := l.Client.ProduceSync(t.Context(), batch...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.Produce("orders", 2, 1)
	l.runs(1, "run", "--until-current")
	l.stands(map[int32]int64{0: 1, 1: 2})
	l.refuses(4, "orders:0 stands at offset 1, not at 0", "skip", "orders:0@0")
	l.refuses(4, "there is no committed record at offset 2 of orders:1 yet", "skip", "orders:1@2")
	l.refuses(4, "has no partition 4", "skip", "orders:4@2")
	l.refuses(2, "--to 1 is not after offset 1", "skip", "orders:0@1", "--to", "1")
	l.refuses(4, "--to 4 is after the last stable offset 3", "skip", "orders:0@1", "--to", "4")
	l.refuses(2, "none of the others can be", "skip", "orders:0@1", "--to", "2", "--batch")
	for flag, to := range map[string]int64{"": 2, "--batch": 3, "--to=3": 3} {
		args := []string{"offsets", "skip", "orders:0@1", "--dry-run", "-o", "json"}
		if flag != "" {
			args = append(args, flag)
		}
		out, _ := l.runs(0, args...)
		var p admin.MovePlan
		if err := json.Unmarshal([]byte(out), &p); err != nil || len(p.Moves) != 1 || p.Moves[0].To != to || p.Moves[0].From != 1 {
			t.Errorf("%s: %v\n%s", flag, err, out)
		}
	}
	l.moves(0, "skip", "orders:0@1")
	l.runs(0, "run", "--until-current")
	l.Has("orders", map[string][]int64{"orders:0": ids(0, 2), "orders:1": ids(0, 1)})
	l.runs(0, "verify", "--kafka")
}

func (l *lake) group(name, topic string, id int32, next int64) {
	l.T.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, id, next, -1)
	if err := l.Admin.CommitAllOffsets(l.T.Context(), name, offsets); err != nil {
		l.T.Fatal(err)
	}
}

func (l *lake) deleteRecords(topic string, id int32, before int64) {
	l.T.Helper()
	var offsets kadm.Offsets
	offsets.AddOffset(topic, id, before, -1)
	if _, err := l.Admin.DeleteRecords(l.T.Context(), offsets); err != nil {
		l.T.Fatal(err)
	}
}

// TestOffsetsAcceptGapOfATruncatedLog has a position with a leader epoch that the log does not have: the log was
// truncated. The epoch comes from the table's txn, from the committed offset, or from the range of the commit. The
// command must move the position back to where the logs differ.
func TestOffsetsAcceptGapOfATruncatedLog(t *testing.T) {
	t.Parallel()
	for name, forge := range map[string]func(l *lake){
		"by the table": func(l *lake) {
			p := ordersOf(l)
			l.Append("orders", fmt.Sprintf(`{"txn":{"appId":%q,"version":5}}`, p.AppID("p")), fmt.Sprintf(`{"txn":{"appId":%q,"version":7}}`, p.EpochAppID("p")))
			l.group("p", "orders", 0, 3)
		},
		"by the group, of a table that keeps no epochs": func(l *lake) {
			l.Append("orders", fmt.Sprintf(`{"txn":{"appId":%q,"version":5}}`, ordersOf(l).AppID("p")))
			var offsets kadm.Offsets
			offsets.Add(kadm.Offset{Topic: "orders", Partition: 0, At: 5, LeaderEpoch: 7, Metadata: "epoch=7"})
			if err := l.Admin.CommitAllOffsets(l.T.Context(), "p", offsets); err != nil {
				l.T.Fatal(err)
			}
		},
		"by the commit, of a table that keeps no epochs": func(l *lake) {
			l.group("p", "orders", 0, 3)
			l.Append("orders", `{"commitInfo":{"operation":"STREAMING UPDATE","sluice":{"ranges":[{"topic":"orders","partition":0,"from":5,"next":5,"rows":0,"epoch":7}]}}}`,
				fmt.Sprintf(`{"txn":{"appId":%q,"version":5}}`, ordersOf(l).AppID("p")))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newOrders(t, 5)
			forge(l)
			l.wantHolds(1, []string{"orders:0 truncated at 5 from table and Kafka: connector offsets accept-gap orders:0 --reason truncated"})
			p := l.moves(0, "accept-gap", "orders")
			if len(p.Moves) != 1 || p.Moves[0].From != 5 || p.Moves[0].To != 4 || !strings.Contains(p.Moves[0].Note, "truncated: from offset 4 on") {
				t.Errorf("%+v", p.Moves)
			}
			l.runs(0, "run", "--until-current")
			l.Has("orders", map[string][]int64{"orders:0": ids(0, 1, 2, 3, 4, 4), "orders:1": ids(0, 1, 2, 3, 4)})
		})
	}
}

// ordersOf returns partition 0 of the topic orders.
func ordersOf(l *lake) connector.Partition {
	l.T.Helper()
	topic, err := l.PartitionsOf("orders")
	if err != nil {
		l.T.Fatal(err)
	}
	return connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID}
}
