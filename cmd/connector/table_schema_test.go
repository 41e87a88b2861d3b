package main

import (
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/internal/admin"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// TestTableSchema compares the schemas of configuration and table in each case that docs/schema.md names, and adds the
// columns. The table has the schema "n int", and no topic ids.
func TestTableSchema(t *testing.T) {
	b := newBroker(t)
	w := newTable(t, b.topic, b.addresses...).create()
	w.append(0, 0, 3, 3, 0, 1, 2)
	ddl := "n int"
	is := func(now string) {
		rewrite(t, w.config, `schema: "`+ddl+`"`, `schema: "`+now+`"`)
		ddl = now
	}
	head := "table file://" + filepath.ToSlash(w.dir) + ", version 2\n"
	const topicID = "only table schema apply changes:\n  _kafka_topic_id string\n"
	for now, want := range map[string]string{
		"n int": head + topicID,
		"n int, channel string, s struct<x:array<int>>": head + "the next commit with rows changes:\n  channel string\n  s struct<x:array<int>>\n" + topicID,
		"n int not null":                   head + topicID + "not null in schema, nullable in the table:\n  n\n",
		"other date":                       head + "the next commit with rows changes:\n  other date\n" + topicID + "in the table only, written all the same:\n  n int\n",
		"n bigint":                         head + "does not fit: column n is int in the table and bigint in schema: widening a column needs",
		"n int, channel string not null":   head + "does not fit: column channel is not null in schema and not in the table",
		"N int":                            head + "in the table only, written all the same:\n  n int\ndoes not fit: column N and the table's column n differ in case only",
		"n int comment 'kept', more float": head + "the next commit with rows changes:\n  more float\n" + topicID,
		"n int, `unit price` double, s struct<`a,b`:int>": head + "the next commit with rows changes:\n  unit_price double\n  s struct<a_b:int>\n" + topicID +
			"filled from a field of another name:\n  unit_price from \"unit price\"\n  s.a_b from \"a,b\"\n",
	} {
		is(now)
		code := 0
		if strings.Contains(want, "does not fit") {
			code = 1
			expect(t, 4, "", "nothing was changed: column ", "table", "schema", "apply", "orders", "--reason", "r", "--yes", "--config", w.config)
		}
		expect(t, code, want, "", "table", "schema", "diff", "--config", w.config)
	}
	is("n int, channel string")
	expect(t, 2, "", "the reason is missing", "table", "schema", "apply", "orders", "--yes", "--config", w.config)
	expect(t, 2, "", "there is no terminal", "table", "schema", "apply", "orders", "--reason", "r", "--config", w.config)
	expect(t, 2, "", "is not in topics", "table", "schema", "apply", "users", "--reason", "r", "--yes", "--config", w.config)
	expect(t, 0, "  channel string\n", "dry run: nothing was changed", "table", "schema", "apply", "orders", "--dry-run", "--config", w.config)
	if lines, _ := checkFound(t, 0, w.config); !strings.Contains(strings.Join(lines, "\n"), "version 2, can be written; the next commit with rows adds channel string") {
		t.Errorf("%q", lines)
	}
	expect(t, 0, "done: version 3 of the table, operation 1; members follow with their next commit\n", "",
		"table", "schema", "apply", "orders", "--reason", "the shop needs it", "--operator", "ann", "--yes", "--config", w.config)
	expect(t, 0, head[:len(head)-2]+"3\nthe schemas are the same\n", "", "table", "schema", "diff", "--config", w.config)
	expect(t, 0, "", "nothing to do", "table", "schema", "apply", "orders", "--reason", "r", "--yes", "--config", w.config)

	_, out, _ := connectorRun(t, "audit", "list", "--config", w.config, "--output", "json")
	var r admin.AuditReport
	if err := json.Unmarshal([]byte(out), &r); err != nil || len(r.Entries) != 2 {
		t.Fatalf("%v: %s", err, out)
	}
	var done opslog.SchemaDone
	if err := json.Unmarshal(r.Entries[1].Body, &done); err != nil {
		t.Fatal(err)
	}
	changes := []string{"channel string", "_kafka_topic_id string"}
	if d := cmp.Diff(opslog.SchemaDone{Intent: 1, Table: "orders", Changes: changes, Version: 3, Outcome: opslog.Committed}, done); d != "" || r.Entries[0].Operator != "ann" {
		t.Errorf("(-want +got):\n%s", d)
	}
	expect(t, 0, "table schema apply of table orders: channel string, _kafka_topic_id string: version 3 (operation 1)", "", "audit", "list", "--config", w.config)
	for e, err := range delta.Recent(t.Context(), objstore.Sub(w.store, "orders"), 3) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Moved == nil || e.Moved.Operator != "ann" || e.Moved.Reason != "the shop needs it" || e.Operation != "ADD COLUMNS" || !e.Metadata || e.Files+len(e.Txns) != 0 {
			t.Errorf("%+v", e)
		}
		if d := cmp.Diff(changes, []string{e.Added[0] + " string", e.Added[1] + " string"}); d != "" {
			t.Error(d)
		}
		break
	}
	expect(t, 0, "ok: no gap", "", "verify", "--config", w.config)
}

// TestTableSchema_Partitioned: the table decides how it is partitioned if the configuration does not say it. Its computed
// column is no difference, and an addition keeps the partitions.
func TestTableSchema_Partitioned(t *testing.T) {
	w := newTable(t, connector.Topic{Cluster: "c", ID: idempotency.TopicID{1}}).create("bucket(4, n)")
	w.append(0, 0, 3, 3, 0, 1, 2)
	is := `schema: "n int"`
	for _, c := range []struct {
		now  string
		code int
		want string
	}{
		{`schema: "n int, channel string"`, 0, "the next commit with rows changes:\n  channel string\n"},
		{`schema: "n int, channel string", partition_by: ["bucket(4, n)"]`, 0, "the next commit with rows changes:\n  channel string\n"},
		{`schema: "n int", partition_by: [n]`, 1, "does not fit: the table is partitioned by (bucket(4, n) AS n_bucket), the rows were built for (n)"},
		{`schema: "n int, n_bucket int"`, 1, "does not fit: column n_bucket is computed by the table, bucket(4, n), and declared in schema"},
		{`schema: "n int, channel string"`, 0, "the next commit with rows changes:\n  channel string\n"},
	} {
		rewrite(t, w.config, is, c.now)
		is = c.now
		expect(t, c.code, c.want, "", "table", "schema", "diff", "--config", w.config)
		_, out, _ := connectorRun(t, "table", "schema", "diff", "--config", w.config)
		if c.code == 0 && strings.Contains(out, "in the table only") {
			t.Errorf("%s:\n%s", c.now, out)
		}
	}
	expect(t, 0, "done: version 3 of the table", "", "table", "schema", "apply", "orders", "--reason", "r", "--yes", "--config", w.config)
	i, err := delta.Inspect(t.Context(), w.store)
	if err != nil || i.Refusal != nil || i.Schema.DDL() != w.columns.WithKafkaColumns().DDL()+", _kafka_topic_id string comment 'id of the Kafka record\\'s topic', channel string" {
		t.Errorf("%v, %v: %s", err, i.Refusal, i.Schema.DDL())
	}
	if d := cmp.Diff([]string{"n_bucket"}, i.PartitionColumns); d != "" {
		t.Error(d)
	}
}
