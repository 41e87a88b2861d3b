//go:build lab

package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
)

// TestMetadataColumns expects independent readers to find the keys, headers and timestamp types of records in the table
// as they were produced, rows of tombstones, and the values of a field whose column has another name.
func TestMetadataColumns(t *testing.T) {
	t.Parallel()
	s := newScene(t, 1)
	byLog := s.name + "-log"
	if err := shared.kafka.CreateTopic(s.ctx, byLog, 1, map[string]string{"message.timestamp.type": "LogAppendTime"}); err != nil {
		t.Fatal(err)
	}
	client, err := kgo.NewClient(kgo.SeedBrokers(s.addrs...))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	h := func(key string, value []byte) kgo.RecordHeader { return kgo.RecordHeader{Key: key, Value: value} }
	for _, topic := range []string{s.name, byLog} {
		for _, r := range []*kgo.Record{
			{Topic: topic, Value: []byte(`{"unit price":1.5}`)},
			{Topic: topic, Key: []byte{0, 0xff}, Value: []byte(`{}`), Headers: []kgo.RecordHeader{h("b", []byte("x")), h("a", nil), h("b", []byte{0xfe})}},
			{Topic: topic, Key: []byte{}, Headers: []kgo.RecordHeader{h("ü", []byte{})}},
		} {
			if err := client.ProduceSync(s.ctx, r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	const own = "schema: \"`unit price` double\", tombstones: row, metadata_columns: [topic, partition, offset, timestamp, topic_id, key, headers, timestamp_type, ingested_at]"
	s.untilCurrent(func(c *settings) { c.own = own }, alsoReads(byLog+": {table: "+s.name+", "+own+"}"))

	out, err := lab.Python(s.ctx, "oracle/records.py", "--table", s.tableURL(s.name), "--endpoint", s.minio.Endpoint, "--columns", "unit_price")
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	var want [][]any
	for _, topic := range [][2]string{{s.name, "CreateTime"}, {byLog, "LogAppendTime"}} { // in the order of their names
		want = append(
			want,
			[]any{topic[0], 0.0, nil, []any{}, topic[1], true, 1.5},
			[]any{topic[0], 1.0, "00ff", []any{[]any{"b", "78"}, []any{"a", nil}, []any{"b", "fe"}}, topic[1], true, nil},
			[]any{topic[0], 2.0, "", []any{[]any{"ü", ""}}, topic[1], true, nil},
		)
	}
	readers := 0
	for line := range strings.Lines(string(out)) {
		var found struct {
			Reader string
			Rows   [][]any
		}
		if err := json.Unmarshal([]byte(line), &found); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		if d := cmp.Diff(want, found.Rows); d != "" {
			t.Errorf("%s (-want +got):\n%s", found.Reader, d)
		}
		readers++
	}
	if readers != 2 {
		t.Errorf("%d readers, want 2: %s", readers, out)
	}
}
