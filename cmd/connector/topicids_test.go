package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// topicIDsOf returns how many rows of a table have each topic id.
func (l *lake) topicIDsOf(table string) map[string]int {
	l.T.Helper()
	rows := map[string]int{}
	if err := l.EachRow(table, func(row delta.Row) { rows[row.TopicID]++ }); err != nil {
		l.T.Fatal(err)
	}
	return rows
}

// TestRun_TableWithoutTopicIDs: a table from before the column for topic ids continues without it. Once another program
// has added the column, members fill it.
func TestRun_TableWithoutTopicIDs(t *testing.T) {
	const without = "{metadata_columns: [topic, partition, offset, timestamp]}"
	l := newLake(t, "topics: {orders: "+without+"}")
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	l.runs(0, "run", "--until-current")
	l = l.as(without, "{}")
	l.Produce("orders", 3, 0)
	l.runs(0, "run", "--until-current")
	if d := cmp.Diff(map[string]int{"": 6}, l.topicIDsOf("orders")); d != "" {
		t.Errorf("an old table (-want +got):\n%s", d)
	}
	if out, _ := l.runs(0, "offsets", "set", "orders:0", "0", "--dry-run"); !strings.Contains(out, "WHERE _kafka_topic = 'orders' AND _kafka_partition = 0 AND") {
		t.Errorf("an old table: %s", out)
	}
	store := objstore.Sub(l.Store, "orders")
	state, err := deltalog.Load(t.Context(), store)
	if err != nil {
		t.Fatal(err)
	}
	m := state.Metadata
	if strings.Contains(m.SchemaString, "topic_id") {
		t.Errorf("schema %s", m.SchemaString)
	}
	m.SchemaString = strings.TrimSuffix(m.SchemaString, "]}") + `,{"name":"_kafka_topic_id","type":"string","nullable":true,"metadata":{}}]}`
	body, err := deltalog.Encode([]deltalog.Action{m})
	if err != nil {
		t.Fatal(err)
	}
	l.Append("orders", strings.TrimSpace(string(body)))
	l.Produce("orders", 3, 0)
	l.runs(0, "run", "--until-current")
	id := l.LetterAbout(0, 0, nil).Source.TopicID.String()
	if d := cmp.Diff(map[string]int{"": 6, id: 3}, l.topicIDsOf("orders")); d != "" {
		t.Errorf("with the column (-want +got):\n%s", d)
	}
	l.runs(0, "verify")
}

// TestVerify_TopicIDs: a topic was deleted and created again. verify must count the rows of the two topics separately,
// and compare only those of the new one with Kafka.
func TestVerify_TopicIDs(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	l.Produce("orders", 5, 0)
	l.runs(0, "run", "--until-current")
	l.CreateAgain("orders")
	l.Produce("orders", 3, 0)
	l.runs(0, "offsets", "start", "orders", "--yes", "--reason", "created again")
	l.runs(0, "run", "--until-current")
	out, _ := l.runs(0, "verify", "--kafka", "-o", "json")
	var v struct {
		Partitions []struct {
			Rows     int64          `json:"rows"`
			Compared map[string]any `json:"compared"`
		} `json:"partitions"`
		Findings []any `json:"findings"`
	}
	if err := json.Unmarshal([]byte(out), &v); err != nil {
		t.Fatal(err)
	}
	rows, compared := map[int64]int{}, 0
	for _, p := range v.Partitions {
		if rows[p.Rows]++; p.Compared != nil {
			compared++
		}
	}
	if d := cmp.Diff(map[int64]int{5: 1, 3: 1}, rows); d != "" || compared != 1 || len(v.Findings) > 0 {
		t.Errorf("%d partitions compared, rows (-want +got):\n%s\n%s", compared, d, out)
	}
}
