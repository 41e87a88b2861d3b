package config

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/decode"
)

// TestColumnOptions: a topic's decoder reads its columns as column_options says, and what config print prints has the
// same options when it is loaded.
func TestColumnOptions(t *testing.T) {
	text := strings.ReplaceAll(`
pipeline: p
kafka: {brokers: [a:1]}
storage: {url: file:///data}
topics:
  orders:
    schema: "sold_at timestamp, shipping struct<label: string>, times array<timestamp>, digest binary, ~shipping.label~ timestamp"
    column_options:
      sold_at: epoch_ms round
      shipping.label: ${WORD}
      times: utc
      "~digest~": hex
      "~shipping.label~": utc
`, "~", "`")
	c := mustLoad(t, write(t, text), map[string]string{"WORD": "raw"})
	_, topic := onlyTopic(t, c)
	want := decode.ColumnOptions{
		"sold_at": {Epoch: "ms", Fraction: decode.RoundFraction}, "shipping.label": {Raw: true}, "times": {UTC: true}, "digest": {Encoding: decode.Hex},
		"`shipping.label`": {UTC: true},
	}
	if d := cmp.Diff(want, topic.ColumnOptions); d != "" {
		t.Errorf("options (-want +got):\n%s", d)
	}
	columns, err := topic.Columns()
	if err != nil {
		t.Fatal(err)
	}
	b, err := topic.Decoder(nil).Builder(columns.WithKafkaColumns())
	if err != nil {
		t.Fatal(err)
	}
	const record = `{"sold_at":1769846400000.0004,"shipping":{"label":{"a": 1}},"times":["2026-01-31T08:00:00"],"digest":"00ff","shipping.label":"2026-01-31T09:00:00"}`
	if err := b.Add(connector.Partition{Topic: "orders"}, &connector.Record{Value: []byte(record)}); err != nil {
		t.Fatal(err)
	}
	rows := b.Seal()
	defer rows.Release()
	var got []string
	for _, name := range []string{"sold_at", "shipping", "times", "digest", "shipping.label"} {
		got = append(got, rows.Column(rows.Schema().FieldIndices(name)[0]).ValueStr(0))
	}
	if d := cmp.Diff([]string{"2026-01-31T08:00:00Z", `{"label":"{\"a\": 1}"}`, `["2026-01-31T08:00:00Z"]`, "AP8=", "2026-01-31T09:00:00Z"}, got); d != "" {
		t.Errorf("row (-want +got):\n%s", d)
	}
	var printed strings.Builder
	if err := c.PrintYAML(&printed); err != nil {
		t.Fatal(err)
	}
	_, again := onlyTopic(t, mustLoad(t, write(t, printed.String()), nil))
	if d := cmp.Diff(want, again.ColumnOptions); d != "" {
		t.Errorf("options as printed (-want +got):\n%s", d)
	}
}
