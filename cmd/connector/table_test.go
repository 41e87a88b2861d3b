package main

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/decode"
	"sluice/connector/plan"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
)

// written is a table on the local disk, and its config.yaml.
type written struct {
	t       *testing.T
	config  string // path of config.yaml
	dir     string // folder of the table
	store   objstore.Store
	table   *delta.Table
	at      *connector.Snapshot
	columns *schema.Schema
	topic   connector.Topic
}

// newTable writes a config.yaml for the table of topic orders, with these brokers. It does not create the table.
func newTable(t *testing.T, topic connector.Topic, brokers ...string) *written {
	t.Helper()
	dir := t.TempDir()
	if brokers == nil {
		brokers = []string{"127.0.0.1:1"}
	}
	w := &written{t: t, config: filepath.Join(dir, "config.yaml"), dir: filepath.Join(dir, "lake", "orders"), topic: topic}
	text := fmt.Sprintf("pipeline: p\nkafka: {brokers: [%s], session: 10s}\nstorage: {url: \"file://%s/lake\"}\n"+
		"defaults: {schema: \"n int\", bad_records: hold}\ntopics: {orders: {}}\n", strings.Join(brokers, ", "), filepath.ToSlash(dir))
	if err := os.WriteFile(w.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return w
}

// create creates the table, partitioned by the entries, and makes the initial commit of partitions 0 and 1 at offset 0.
func (w *written) create(partitionBy ...string) *written {
	w.t.Helper()
	var err error
	if w.store, err = objstore.NewLocal(w.t.Context(), w.dir); err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = w.store.(*objstore.Local).Close() })
	if w.columns, err = schema.ParseDDL("n int"); err != nil {
		w.t.Fatal(err)
	}
	if w.columns, err = w.columns.WithPartitionBy(partitionBy); err != nil {
		w.t.Fatal(err)
	}
	guard := reliability.NewGuard("store", config.Default().Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	w.table, err = delta.Open(w.store, delta.Options{Pipeline: "p", Engine: "sluice/test", Schema: w.columns, Guard: guard, TempDir: w.t.TempDir()})
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(w.table.Close)
	if w.at, err = w.table.Load(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	c := &connector.Commit{Operation: "SLUICE START", Txns: []connector.Txn{{AppID: idempotency.TableAppID("p", w.at.TableID)}}}
	for id := range int32(2) {
		c.Txns = append(c.Txns, connector.Txn{AppID: w.partition(id).AppID("p")})
		c.Ranges = append(c.Ranges, connector.Range{Topic: "orders", Partition: id, From: -1, Epoch: -1})
	}
	w.commit(c)
	return w
}

func (w *written) partition(id int32) connector.Partition {
	return connector.Partition{Cluster: w.topic.Cluster, Topic: "orders", TopicID: w.topic.ID, ID: id}
}

func (w *written) commit(c *connector.Commit) {
	w.t.Helper()
	s, err := w.table.Commit(w.t.Context(), c, func(*connector.Snapshot) error { return nil })
	if err != nil {
		w.t.Fatal(err)
	}
	w.at = s
}

// append commits rows with these offsets, the range [from, next), and a position. The three need not agree, so that
// tests can write faulty tables.
func (w *written) append(id int32, from, next, position int64, offsets ...int64) {
	w.t.Helper()
	s := w.at.Schema
	b, err := decode.JSON{}.Builder(s)
	if err != nil {
		w.t.Fatal(err)
	}
	for _, o := range offsets {
		r := &connector.Record{Offset: o, Timestamp: 1, Value: fmt.Appendf(nil, `{"n":%d}`, o)}
		if err := b.Add(w.partition(id), r); err != nil {
			w.t.Fatal(err)
		}
	}
	c := &connector.Commit{
		Operation: "STREAMING UPDATE", Txns: []connector.Txn{{AppID: w.partition(id).AppID("p"), Version: position}},
		Ranges: []connector.Range{{Topic: "orders", Partition: id, From: from, Next: next, Rows: int64(len(offsets)), Epoch: -1}},
	}
	if rows := b.Seal(); rows != nil {
		defer rows.Release()
		if c.Staged, err = w.table.Stage(w.t.Context(), w.at, "b-1", []connector.Piece{{Rows: rows, To: rows.NumRows()}}, nil); err != nil {
			w.t.Fatal(err)
		}
	}
	w.commit(c)
}

// move sets a position as an operator does.
func (w *written) move(id int32, from, next int64) {
	w.t.Helper()
	m := plan.Moves{
		Moved: connector.Moved{Command: "offsets set", Operator: "somebody", Reason: "a test"}, Pipeline: "p", TableID: w.at.TableID,
		Moves: []plan.Move{{Partition: w.partition(id), From: from, Next: next}},
	}
	s, err := commit.Move(w.t.Context(), w.table, &m)
	if err != nil {
		w.t.Fatal(err)
	}
	w.at = s
}

var noTopic = connector.Topic{Cluster: "c", Name: "orders", ID: idempotency.TopicID{1}}

func TestVerify(t *testing.T) {
	for _, c := range []struct {
		name string
		do   func(*written)
		code int
		want []string // lines that the output must have
	}{
		{"only started", func(*written) {}, 0, []string{"ok: no gap, no overlap, no duplicate"}},
		{
			"sound", func(w *written) {
				w.append(0, 0, 5, 5, 0, 1, 2, 4) // offset 3 is a control record, so it has no row
				w.append(1, 0, 2, 2, 0, 1)
				w.append(0, 5, 9, 9)
				w.append(0, 9, 10, 10, 9)
			}, 0,
			[]string{
				"orders:0   [0, 10)          10        5               5", "orders:1   [0, 2)           2         2               2",
				"versions 0 to 5, 2 partitions, 7 rows", "ok: no gap, no overlap, no duplicate",
			},
		},
		{
			"a gap", func(w *written) { w.append(0, 3, 5, 5, 3, 4) }, 1,
			[]string{"gap: orders:0: offsets [0, 3) are in no commit: version 2 begins at 3", "1 findings"},
		},
		{
			"committed twice", func(w *written) {
				w.append(1, 0, 2, 2, 0, 1)
				w.append(1, 0, 2, 2, 0, 1)
			}, 1,
			[]string{
				"overlap: orders:1: offsets [0, 2) are in two commits, the second one is version 3",
				"duplicate: orders:1: 2 rows repeat an offset, the first one 0", "missing: orders:1: the commits hold 4 rows, the table has 2",
			},
		},
		{
			"rows that were not committed", func(w *written) { w.append(0, 0, 2, 2, 0, 1, 7) }, 1,
			[]string{"uncovered: orders:0: 1 rows have an offset that no commit covers, the first one 7"},
		},
		{
			"an operator left offsets out, and had others read again", func(w *written) {
				w.append(0, 0, 2, 2, 0, 1)
				w.move(0, 2, 4)
				w.append(0, 4, 6, 6, 4, 5)
				w.move(0, 6, 5)
				w.append(0, 5, 7, 7, 5, 6)
				w.append(1, 0, 3, 3, 0, 1, 2)
				w.move(1, 3, 1) // no commit of a member follows the move
			}, 0,
			[]string{
				"note: orders:0: version 3 moved the position to 4, offsets [2, 4) were left out: offsets set by somebody, \"a test\"",
				"note: orders:0: version 5 moved the position to 5, offsets [5, 6) were read again: offsets set by somebody, \"a test\"",
				"ok: no gap, no overlap, no duplicate",
			},
		},
		{
			"rows repeat where no operator had them read again", func(w *written) {
				w.append(0, 0, 6, 6, 0, 1, 2, 3, 4, 5)
				w.move(0, 6, 4)
				w.append(0, 4, 6, 6, 3, 4, 5)
			}, 1,
			[]string{"duplicate: orders:0: 1 rows repeat an offset, the first one 3"},
		},
		{
			"a position that no commit explains", func(w *written) { w.append(0, 0, 2, 3, 0, 1) }, 1,
			[]string{"position: orders:0: the table's position is 3, the last commit ended at 2"},
		},
		{
			"a data file is gone", func(w *written) {
				w.append(0, 0, 2, 2, 0, 1)
				for f, err := range deltatest.Adds(w.t.Context(), w.store) {
					if err == nil {
						err = w.store.Delete(w.t.Context(), f.Path)
					}
					if err != nil {
						w.t.Fatal(err)
					}
				}
			}, 1,
			[]string{" is in the table and does not exist", "missing: orders:0: the commits hold 2 rows, the table has 0"},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := newTable(t, noTopic).create()
			c.do(w)
			code, out, errs := connectorRun(t, "verify", "--config", w.config)
			if code != c.code || errs != "" {
				t.Errorf("exit code %d, want %d; stderr %q", code, c.code, errs)
			}
			for _, line := range c.want {
				if !strings.Contains(out, line) {
					t.Errorf("no %q in\n%s", line, out)
				}
			}
			code, out, _ = connectorRun(t, "verify", "--config", w.config, "-o", "json")
			var v admin.Verification
			if err := json.Unmarshal([]byte(out), &v); err != nil || code != c.code || (len(v.Findings) > 0) != (c.code == 1) {
				t.Errorf("%d %v\n%s", code, err, out)
			}
		})
	}
}

// TestNoTable_Canary: the text about a missing table of the canary says what creates it, and not that dead letters do.
func TestNoTable_Canary(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	l.Create("p-canary", 1)
	l.Produce("orders", 1, 0)
	l.runs(0, "run", "--until-current")
	l = l.as("health: {", "health: {canary: {topic: p-canary}, ")
	const want = "_sluice/p/canary: there is no table yet: the canary of a running member creates it: start a member"
	if _, errs := l.runs(0, "verify", "--kafka"); !strings.Contains(errs, want) || strings.Contains(errs, "dead letter") {
		t.Error(errs)
	}
	if _, errs := l.runs(1, "verify", "--kafka", "--topic", "p-canary"); !strings.Contains(errs, "_sluice/p/canary: the canary of a running member creates it") {
		t.Error(errs)
	}
}

func TestNoTable(t *testing.T) {
	w := newTable(t, noTopic)
	for _, args := range [][]string{{"verify"}, {"table", "inspect"}} {
		expect(t, 1, "", "connector: there is no table at file://", append(args, "--config", w.config)...)
	}
	if _, err := os.Stat(filepath.Dir(w.dir)); err == nil {
		t.Error("looking made a directory")
	}
	if err := os.MkdirAll(w.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"verify"}, {"table", "inspect"}} {
		expect(t, 1, "", "connector: there is no table at file://", append(args, "--config", w.config)...)
	}
	expect(t, 2, "", "cannot be opened", "verify", "--config", "nowhere.yaml")
}

// TestTableInspect_Renamed expects the fields of renamed columns beside the schema.
func TestTableInspect_Renamed(t *testing.T) {
	l := newLake(t, "topics: {orders: {schema: \"`unit price` double, s struct<`a=b`: int>\"}}")
	l.Create("orders", 1)
	record := &kgo.Record{Topic: "orders", Value: []byte(`{"unit price":1.5,"s":{"a=b":2}}`)}
	if err := l.Client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.runs(exitOK, "run", "--until-current")
	out, _ := l.runs(exitOK, "table", "inspect", "--topic", "orders")
	for _, want := range []string{"unit_price double", `column unit_price has the field "unit price"`, `column s.a_b has the field "a=b"`} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	if got := l.values(filepath.Join(l.Dir, "lake", "orders"), []string{"unit_price"}); len(got) != 1 || got[0][0] != "1.5" {
		t.Errorf("rows %v, want 1.5", got)
	}
}

func TestTableInspect(t *testing.T) {
	w := newTable(t, noTopic).create()
	w.append(0, 0, 3, 3, 0, 1, 2)
	expect(t, 0, "position    orders:0 next offset 3 (pipeline p)\n", "", "table", "inspect", "--config", w.config)
	p := w.partition(1)
	w.commit(&connector.Commit{Operation: "SLUICE POSITIONS", Txns: []connector.Txn{{AppID: p.AppID("p"), Version: 2}, {AppID: p.EpochAppID("p"), Version: 7}}})
	expect(t, 0, "position    orders:1 next offset 2, leader epoch 7 (pipeline p)\n", "", "table", "inspect", "--config", w.config)
	code, out, _ := connectorRun(t, "table", "inspect", "--config", w.config, "-o", "json")
	var got admin.Inspection
	if err := json.Unmarshal([]byte(out), &got); err != nil || code != 0 {
		t.Fatal(code, err, out)
	}
	zero, one, epoch := int32(0), int32(1), int64(7)
	want := admin.Inspection{
		URL: "file://" + filepath.ToSlash(w.dir), ID: w.at.TableID, Created: got.Created, Version: 3, Checkpoint: -1, Reader: 1, Writer: 2,
		Files: 1, Bytes: got.Bytes, Rows: 3, Properties: got.Properties,
		Schema: got.Schema,
		Positions: []admin.TablePosition{
			{AppID: w.partition(0).AppID("p"), Pipeline: "p", Topic: "orders", Partition: &zero, Version: 3},
			{AppID: w.partition(1).AppID("p"), Pipeline: "p", Topic: "orders", Partition: &one, Version: 2, LeaderEpoch: &epoch},
			{AppID: idempotency.TableAppID("p", w.at.TableID), Pipeline: "p"},
		},
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	if !strings.HasPrefix(got.Schema, "_kafka_topic string") || !strings.HasSuffix(got.Schema, ", n int") {
		t.Error(got.Schema)
	}
}

// TestIgnoredFields expects the names of fields without a column in the member's log and in the output of table
// inspect.
func TestIgnoredFields(t *testing.T) {
	l := newLake(t, `
log: {level: debug, format: json}
defaults: {schema: "n int, o struct<a:int>"}
topics: {orders: {}}`)
	l.Create("orders", 1)
	for _, value := range []string{`{"n":1,"new":2,"o":{"x":1}}`, `{"n":1,"new":3}`, `{"n":"bad","other":1}`} {
		if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Key: []byte("k"), Value: []byte(value)}).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	_, log := l.runs(exitOK, "run", "--until-current")
	var became []string
	var ignored [][]any
	for text := range strings.Lines(log) {
		var at laketest.Line
		if err := json.Unmarshal([]byte(text), &at); err != nil {
			continue // not a log line
		}
		switch at["msg"] {
		case "record":
			became = append(became, fmt.Sprint(at["topic"], ":", at["partition"], "@", at["offset"], " ", at["became"], " ", at["value_bytes"]))
		case "fields that the schema does not have are ignored":
			fields, _ := at["fields"].([]any)
			ignored = append(ignored, append([]any{at["topic"]}, fields...))
		}
	}
	if d := cmp.Diff([]string{"orders:0@0 row 27", "orders:0@1 row 15", "orders:0@2 bad_record 21"}, became); d != "" {
		t.Errorf("lines of records (-want +got):\n%s", d)
	}
	if d := cmp.Diff([][]any{{"orders", "new", "o.x"}}, ignored); d != "" {
		t.Errorf("ignored fields in the log (-want +got):\n%s", d)
	}
	out, _ := l.runs(exitOK, "table", "inspect", "--topic", "orders")
	if !strings.Contains(out, "ignored fields  orders: new, o.x (no column for them, since version 0)\n") {
		t.Error(out)
	}
	out, _ = l.runs(exitOK, "table", "inspect", "--topic", "orders", "-o", "json")
	var got admin.Inspection
	if err := json.Unmarshal([]byte(out), &got); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]connector.IgnoredFields{{Topic: "orders", Names: []string{"new", "o.x"}}}, got.Ignored); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

// TestInspectRefusal expects table inspect to show a table that must not be written, with exit code 1.
func TestInspectRefusal(t *testing.T) {
	w := newTable(t, noTopic).create()
	body := `{"protocol":{"minReaderVersion":3,"minWriterVersion":7,"readerFeatures":["deletionVectors"],"writerFeatures":["deletionVectors"]}}`
	if err := w.store.Put(context.WithoutCancel(t.Context()), fmt.Sprintf("_delta_log/%020d.json", 2), strings.NewReader(body), objstore.IfAbsent); err != nil {
		t.Fatal(err)
	}
	expect(t, 1, "not writable", "", "table", "inspect", "--config", w.config)
	expect(t, 1, "features deletionVectors", "", "table", "inspect", "--config", w.config)
}
