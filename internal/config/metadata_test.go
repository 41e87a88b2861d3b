package config

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
)

func topicWith(t *testing.T, settings string) (Topic, []string) {
	t.Helper()
	c, problems := Load(write(t, "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}\ntopics: {orders: "+settings+"}\n"), noEnv)
	if c == nil {
		t.Fatalf("%s: %v", settings, problems)
	}
	texts := make([]string, len(problems))
	for i, p := range problems {
		texts[i] = p.What()
	}
	_, topic := onlyTopic(t, c)
	return topic, texts
}

// TestMetadataColumns: a new table has the optional columns that metadata_columns names, in the order of the table.
func TestMetadataColumns(t *testing.T) {
	for words, want := range map[string]string{
		"":         "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp, a int",
		"topic_id": "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp, _kafka_topic_id string, a int",
		"key":      "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp, a int, _kafka_key binary",
		"timestamp_type, headers, key:text": "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp, a int, _kafka_key string, " +
			"_kafka_headers array<struct<key:string, value:binary>>, _kafka_timestamp_type string",
		"timestamp_type, ingested_at": "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp, _kafka_ingested_at timestamp, " +
			"a int, _kafka_timestamp_type string",
	} {
		topic, _ := topicWith(t, "{schema: a int, metadata_columns: ["+strings.TrimSuffix("offset, topic, timestamp, partition, "+words, ", ")+"]}")
		columns, err := topic.Columns()
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, f := range columns.WithKafkaColumns().Fields() {
			got = append(got, f.Name+" "+f.Type.String())
			if strings.HasPrefix(f.Name, "_kafka_") && (f.Comment() == "" || !f.Nullable) {
				t.Errorf("column %s has no comment or is not nullable", f.Name)
			}
		}
		if d := cmp.Diff(want, strings.Join(got, ", ")); d != "" {
			t.Errorf("%s (-want +got):\n%s", words, d)
		}
	}
}

// TestTombstonePolicies: each value of the key is its policy, dead letters of tombstones always become rows, and rows
// without the key of their record cause a warning.
func TestTombstonePolicies(t *testing.T) {
	const useless = "tombstones: row without the column key: the rows do not say what was deleted: add key or key:text to metadata_columns"
	for settings, want := range map[string]connector.Tombstones{
		"{schema: a int, tombstones: row, metadata_columns: [topic, partition, offset, timestamp, key]}":          connector.TombstoneRows,
		"{schema: a int, tombstones: row, metadata_columns: [\"key:text\", topic, partition, offset, timestamp]}": connector.TombstoneRows,
		"{schema: a int}":                           connector.TombstonesSkipped,
		"{schema: a int, tombstones: skip}":         connector.TombstonesSkipped,
		"{schema: a int, tombstones: dead_letter}":  connector.TombstonesRefused,
		"{schema: a int, tombstones: row}":          connector.TombstoneRows,
		"{format: dead_letter, table: all_letters}": connector.TombstoneRows,
	} {
		topic, problems := topicWith(t, settings)
		warned := slices.ContainsFunc(problems, func(p string) bool { return strings.HasSuffix(p, useless) })
		if want := strings.HasSuffix(settings, "tombstones: row}"); warned != want {
			t.Errorf("%s: %q, want a warning: %t", settings, problems, want)
		}
		if got := topic.Refusals(); got != (connector.Refusals{Tombstones: want}) {
			t.Errorf("%s: %+v, want policy %d", settings, got, want)
		}
	}
}

// TestReservedNames: an entry of schema with the name of a Kafka column causes a warning, since an operator may mean
// the column and not a field of the value.
func TestReservedNames(t *testing.T) {
	const want = "topics.orders.schema: column _kafka_offset is added by itself; this entry means a field of that name in the value, which gets the column ___kafka_offset: "
	_, problems := topicWith(t, "{schema: \"a int, `_KAFKA_offset` bigint, s struct<_kafka_offset: int>\"}")
	if len(problems) != 1 || !strings.HasPrefix(problems[0], strings.Replace(want, "___kafka", "__KAFKA", 1)) {
		t.Errorf("got %q", problems)
	}
	if _, problems := topicWith(t, "{schema: \"a int, _kafka_other int, __kafka_offset int\"}"); len(problems) > 0 {
		t.Errorf("got %q", problems)
	}
}

// TestTableProperties: the properties of a topic replace those of defaults, and config print shows them so that they
// can be loaded again.
func TestTableProperties(t *testing.T) {
	text := "pipeline: p\nkafka: {brokers: [a:1]}\nstorage: {url: file:///data}\n" +
		"defaults: {schema: a int, table_comment: 'all: orders', table_properties: {delta.appendOnly: \"true\", delta.checkpointInterval: 20, owner: \"${OWNER}\"}}\n" +
		"topics: {orders: {}, users: {table_properties: {}}, items: {table_properties: {note: 'a: b'}}}\n"
	c := mustLoad(t, write(t, text), map[string]string{"OWNER": "sales: eu"})
	for name, want := range map[string]map[string]string{
		"orders": {"delta.appendOnly": "true", "delta.checkpointInterval": "20", "owner": "sales: eu"},
		"users":  {},
		"items":  {"note": "a: b"},
	} {
		if d := cmp.Diff(want, c.Topics[name].TableProperties); d != "" || c.Topics[name].TableComment != "all: orders" {
			t.Errorf("%s: comment %q, properties (-want +got):\n%s", name, c.Topics[name].TableComment, d)
		}
	}
	var out strings.Builder
	if err := c.PrintYAML(&out); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(c, mustLoad(t, write(t, out.String()), nil), withoutOrigins); d != "" {
		t.Errorf("(-first +second):\n%s\n%s", d, out.String())
	}
}
