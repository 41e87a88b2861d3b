//go:build lab

package rolling

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// TestDowngrade lets this version use what the earlier one does not have: added columns of new types, metadata columns, a column
// of rescued fields, decisions about dead letters, a replay, and a snapshot of the operations log. Members of the earlier version then
// continue with their own configuration. They commit every record, leave the new columns null, and read the operations log.
func TestDowngrade(t *testing.T) {
	g := newGroup(t, "")
	g.topic("orders")
	g.topic("users")
	stop := g.produceAlways()
	defer stop()
	a := g.start(before)
	g.calm("orders", "users")
	stop()
	g.progress("orders", "users")
	g.stop(a)

	text, err := os.ReadFile(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	wide := filepath.Join(g.Dir, "wide.yaml")
	changed := strings.NewReplacer(`n int"`, `n int, price decimal(9,2), raw binary, more map<string,int>", unknown_fields: rescue, metadata_columns: `+
		`[topic, partition, offset, timestamp, key, headers, ingested_at], tombstones: dead_letter`).Replace(string(text))
	if err := os.WriteFile(wide, []byte(changed), 0o600); err != nil {
		t.Fatal(err)
	}
	narrow := g.configs[now]
	g.configs[now] = wide
	b := g.start(now)
	for id := range int32(partitions) {
		r := &kgo.Record{Topic: "orders", Partition: id, Key: []byte("key"), Value: []byte(`{"id":"wide","n":1,"price":1.25,"raw":"AAE=","more":{"a":1},"other":true}`)}
		if err := g.Client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
		g.took("orders", r)
	}
	g.progress("orders")
	g.stop(b)
	shown := g.run(now, 0, "table", "inspect")
	for _, column := range []string{"price", "_rescued", "_kafka_key"} {
		if !strings.Contains(shown, column) {
			t.Errorf("the table has no column %s:\n%s", column, shown)
		}
	}
	var bad []string // those of the table with the new columns
	for _, at := range g.bad {
		if strings.HasPrefix(at, "orders:") {
			bad = append(bad, at)
		}
	}
	value := filepath.Join(g.Dir, "value.json")
	if err := os.WriteFile(value, []byte(`{"id":"replayed","n":1}`), 0o600); err != nil {
		t.Fatal(err)
	}
	g.run(now, 0, "deadletters", "discard", bad[0], "--reason", "test", "--yes")
	g.run(now, 0, "deadletters", "acknowledge", bad[1], "--reason", "test", "--yes")
	g.run(now, 0, "deadletters", "replay", bad[2], "--value-file", value, "--reason", "test", "--yes")
	g.snapshot()
	g.run(now, 0, "audit", "verify")

	g.configs[now] = narrow
	stop = g.produceAlways()
	defer stop()
	c, d := g.start(before), g.start(before)
	g.calm("orders", "users")
	g.pauseAndResume(before, before)
	stop()
	g.progress("orders", "users")
	for _, line := range g.complaints() {
		t.Error(line)
	}
	g.stop(c)
	g.stop(d)
	g.run(before, 0, "audit", "verify")
	g.run(before, 0, "audit", "list")
	g.run(before, 0, "verify", "--kafka")
	g.run(now, 0, "verify", "--kafka")
	all := len(g.bad)
	if l := g.deadLetters(before); l.Distinct != all || l.Unresolved != all-1 || l.Void != 1 {
		t.Errorf("%d dead letters, the earlier version counts %+v", all, l)
	}
	if l := g.deadLetters(now); l.Distinct != all || l.Unresolved != all-3 || l.Discarded != 1 || l.Acknowledged != 1 || l.Replayed != 1 {
		t.Errorf("%d dead letters, this version counts %+v", all, l)
	}

	at, offset, _ := strings.Cut(bad[2], "@")
	var n int64
	if _, err := fmt.Sscan(offset, &n); err != nil {
		t.Fatal(err)
	}
	g.good["orders"][at] = insert(g.good["orders"][at], n)
	for topic, rows := range g.good {
		g.Has(topic, rows)
	}
}

// TestDowngrade_Configuration expects the earlier version to name each key and value of a configuration that it does not know,
// with its line, and to start nothing.
func TestDowngrade_Configuration(t *testing.T) {
	g := newGroup(t, "")
	g.configs[before] = g.configs[now]
	got := g.run(before, 2, "run")
	want := "config.yaml:5: ops: comes in a later version: remove it"
	if !strings.Contains(got, want) {
		t.Errorf("got %q, want %q in it", got, want)
	}
	text, err := os.ReadFile(g.Config)
	if err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]string{
		`schema: "price decimal(9,2)"`:                                                  "decimal",
		`tombstones: row, schema: "n int"`:                                              "tombstones: row",
		`unknown_fields: rescue, schema: "n int"`:                                       "rescue",
		`metadata_columns: [topic, partition, offset, timestamp, key], schema: "n int"`: "key",
		`column_options: {n: raw}, schema: "n string"`:                                  "column_options",
		`partition_by: [n], schema: "n string"`:                                         "partition_by",
		`table_properties: {a: b}, schema: "n string"`:                                  "table_properties",
	} {
		lines := strings.Split(string(text), "\n")
		lines[4], lines[5] = "", "defaults: {"+key+"}"
		if err := os.WriteFile(g.Config, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := g.run(before, 2, "validate"); !strings.Contains(got, "config.yaml:6: ") || !strings.Contains(got, want) {
			t.Errorf("%s: got %q", key, got)
		}
		g.run(now, 0, "validate")
	}
}

// took notes that a record becomes a row.
func (g *group) took(topic string, r *kgo.Record) {
	g.mu.Lock()
	defer g.mu.Unlock()
	at := fmt.Sprintf("%s:%d", topic, r.Partition)
	g.good[topic][at] = append(g.good[topic][at], r.Offset)
	g.next[topic][r.Partition] = r.Offset + 1
}

// snapshot appends entries to the operations log until it has a snapshot that an entry names. It does so on a copy in memory,
// which is faster than any disk. No process may use the log meanwhile.
func (g *group) snapshot() {
	g.T.Helper()
	ctx, mem := g.T.Context(), objstore.NewMem()
	for e, err := range g.Store.List(ctx, "_sluice/p/ops/", "") {
		if err != nil {
			g.T.Fatal(err)
		}
		body, err := os.ReadFile(filepath.Join(g.Dir, "lake", e.Key))
		if err != nil {
			g.T.Fatal(err)
		}
		if err := mem.Put(ctx, e.Key, bytes.NewReader(body), objstore.IfAbsent); err != nil {
			g.T.Fatal(err)
		}
	}
	guard := reliability.NewGuard("store", laketest.Load(g.T, g.Config).Guard(), g.Logger, nil, objstore.ErrNotFound, objstore.ErrExists)
	log := opslog.Open(mem, "p", opslog.Options{Guard: guard})
	for range opslog.SnapshotEvery + 10 {
		op := opslog.Operation{Operator: "operator", Reason: "test", Body: opslog.Recheck{Targets: []opslog.Target{{Topic: "users", Partition: -1}}}}
		if _, err := log.Append(ctx, op, nil); err != nil {
			g.T.Fatal(err)
		}
	}
	for e, err := range mem.List(ctx, "_sluice/p/ops/", "") {
		if err != nil {
			g.T.Fatal(err)
		}
		r, err := mem.Get(ctx, e.Key, 0, -1)
		if err != nil {
			g.T.Fatal(err)
		}
		body, err := io.ReadAll(r)
		if err != nil {
			g.T.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(g.Dir, "lake", e.Key), body, 0o600); err != nil {
			g.T.Fatal(err)
		}
	}
	if text := g.run(now, 0, "audit", "list"); !strings.Contains(text, "snapshot") {
		g.T.Errorf("no snapshot:\n%.3000s", text)
	}
}

// insert returns sorted offsets with one more.
func insert(offsets []int64, more int64) []int64 {
	var all []int64
	for _, o := range offsets {
		if more >= 0 && more < o {
			all, more = append(all, more), -1
		}
		all = append(all, o)
	}
	if more >= 0 {
		all = append(all, more)
	}
	return all
}
