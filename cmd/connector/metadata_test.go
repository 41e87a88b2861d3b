package main

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"
)

// TestTombstoneRows: with tombstones: row, a record without a value becomes a row of nulls, also in a table that
// another topic feeds whose tombstones are skipped. verify finds nothing wrong with either.
func TestTombstoneRows(t *testing.T) {
	t.Parallel()
	l := newLake(t, "defaults: {schema: \"n int\", table: all, metadata_columns: [topic, partition, offset, timestamp, topic_id, timestamp_type, \"key:text\", headers]}\n"+
		"topics: {deleted: {tombstones: row}, kept: {}}")
	for _, topic := range []string{"deleted", "kept"} {
		l.Create(topic, 1)
		for _, value := range [][]byte{[]byte(`{"n":1}`), nil, []byte(`{"n":3}`)} {
			if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Key: []byte("k"), Value: value}).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	l.runs(exitOK, "run", "--until-current")
	got := map[string]bool{}
	for _, row := range l.values(filepath.Join(l.Dir, "lake", "all"), []string{"_kafka_topic", "_kafka_offset", "n", "_kafka_timestamp_type", "_kafka_key"}) {
		got[strings.Join(row, " ")] = true
	}
	want := map[string]bool{
		"deleted 0 1 CreateTime k": true, "deleted 1 null CreateTime k": true, "deleted 2 3 CreateTime k": true,
		"kept 0 1 CreateTime k": true, "kept 2 3 CreateTime k": true,
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("rows (-want +got):\n%s", d)
	}
	l.runs(exitOK, "verify", "--kafka")
}

// TestPropertiesOfNewTables: a member creates a table with the configured comment and properties, and check warns once
// they differ.
func TestPropertiesOfNewTables(t *testing.T) {
	t.Parallel()
	l := newLake(t, "topics: {orders: {schema: \"n int\", table_comment: \"of the shop\", table_properties: {delta.appendOnly: \"true\", owner: sales}}}")
	l.Create("orders", 1)
	if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: []byte(`{"n":1}`)}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	l.runs(exitOK, "run", "--until-current")
	out, _ := l.runs(exitOK, "table", "inspect", "--topic", "orders")
	for _, want := range []string{"delta.appendOnly = true", "owner = sales"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %s in\n%s", want, out)
		}
	}
	lines, _ := checkFound(t, exitOK, l.Config)
	for _, line := range lines {
		if strings.Contains(line, "properties differ") {
			t.Errorf("they do not differ: %s", line)
		}
	}
	lines, _ = checkFound(t, exitOK, l.as("owner: sales", "owner: shop").Config)
	hasLine(t, lines, "warning table ", `properties differ: owner is "sales", "shop" in table_properties`)
}
