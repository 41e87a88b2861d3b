package decode

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// rowsOf decodes records and returns the rows as JSON, one a line.
func rowsOf(t *testing.T, d *jsonDecoder, records ...connector.Record) string {
	t.Helper()
	for i := range records {
		if err := d.Add(connector.Partition{Topic: "orders", ID: 1}, &records[i]); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	rows := d.Seal()
	defer rows.Release()
	var text bytes.Buffer
	if err := array.RecordToJSON(rows, &text); err != nil {
		t.Fatal(err)
	}
	return text.String()
}

// columnOf decodes records and returns the values of one column.
func columnOf(t *testing.T, d *jsonDecoder, name string, records ...connector.Record) (values []string) {
	t.Helper()
	for i := range records {
		if err := d.Add(connector.Partition{Topic: "orders", ID: 1}, &records[i]); err != nil {
			t.Fatalf("record %d: %v", i, err)
		}
	}
	rows := d.Seal()
	defer rows.Release()
	at := rows.Schema().FieldIndices(name)
	if len(at) != 1 {
		t.Fatalf("%d columns %s", len(at), name)
	}
	for row := range int(rows.NumRows()) {
		values = append(values, rows.Column(at[0]).ValueStr(row))
	}
	return values
}

func withMetadata(t *testing.T, ddl string, words ...string) *schema.Schema {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range words {
		s = s.WithMetadata(word)
	}
	return s.WithKafkaColumns()
}

// TestTimestampType: the column has Kafka's name of the type in runs of any length, null if it is unknown, in every
// chunk.
func TestTimestampType(t *testing.T) {
	d := open(t, withMetadata(t, "a int", "timestamp_type"), JSON{}, maxDistinct)
	of := func(all ...connector.TimestampType) (records []connector.Record) {
		for i, by := range all {
			records = append(records, connector.Record{Offset: int64(i), SetBy: by, Value: []byte("{}")})
		}
		return records
	}
	const unknown = "(null)"
	for _, c := range []struct {
		by   []connector.TimestampType
		want []string
	}{
		{[]connector.TimestampType{connector.CreateTime, connector.CreateTime, connector.LogAppendTime}, []string{"CreateTime", "CreateTime", "LogAppendTime"}},
		{[]connector.TimestampType{connector.LogAppendTime, connector.TimestampUnknown, connector.TimestampUnknown, connector.CreateTime}, []string{"LogAppendTime", unknown, unknown, "CreateTime"}},
		{[]connector.TimestampType{connector.TimestampUnknown}, []string{unknown}},
		{[]connector.TimestampType{connector.CreateTime}, []string{"CreateTime"}},
	} {
		if diff := cmp.Diff(c.want, columnOf(t, d, schema.KafkaTimestampType, of(c.by...)...)); diff != "" {
			t.Errorf("%v (-want +got):\n%s", c.by, diff)
		}
	}
}

// TestIngestedAt: the column has the time of decoding to the millisecond. A refused record takes no row of it.
func TestIngestedAt(t *testing.T) {
	now := time.Date(2026, 1, 31, 8, 0, 0, 123_456_789, time.UTC)
	d := open(t, withMetadata(t, "a int", "ingested_at"), JSON{Now: func() time.Time { now = now.Add(time.Second); return now }}, maxDistinct)
	checkError(t, d.addValue([]byte(`{"a":"x"}`)), TypeMismatch, "a")
	got := columnOf(t, d, schema.KafkaIngestedAt, connector.Record{Value: []byte("{}")}, connector.Record{Offset: 1, Value: nil})
	if diff := cmp.Diff([]string{"2026-01-31T08:00:01.123Z", "2026-01-31T08:00:02.123Z"}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestTombstone: a record with a null value becomes a row that has only Kafka columns, also between other rows. With a
// NOT NULL column it is refused and leaves nothing.
func TestTombstone(t *testing.T) {
	d := open(t, withMetadata(t, "a int, s struct<b: string not null>"), JSON{}, maxDistinct)
	value := func(offset int64, text string) connector.Record {
		return connector.Record{Offset: offset, Value: []byte(text)}
	}
	got := rowsOf(t, d, value(0, `{"a":1,"s":{"b":"x"}}`), connector.Record{Offset: 1}, value(2, `{"a":2}`), connector.Record{Offset: 3})
	const kafka = `{"_kafka_offset":%,"_kafka_partition":1,"_kafka_timestamp":"1970-01-01T00:00:00Z","_kafka_topic":"orders",`
	var want strings.Builder
	for i, rest := range []string{`"a":1,"s":{"b":"x"}}`, `"a":null,"s":null}`, `"a":2,"s":null}`, `"a":null,"s":null}`} {
		want.WriteString(strings.Replace(kafka, "%", string(rune('0'+i)), 1) + rest + "\n")
	}
	if diff := cmp.Diff(want.String(), got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}

	d = open(t, withMetadata(t, "a int, b int not null"), JSON{}, maxDistinct)
	if err := d.addValue([]byte(`{"b":1}`)); err != nil {
		t.Fatal(err)
	}
	checkError(t, d.addValue(nil), RequiredMissing, "b")
	if d.Rows() != 1 {
		t.Errorf("%d rows after a refused tombstone, want 1", d.Rows())
	}
}

// TestTombstone_Identity: a tombstone has no field, so it has no identity by a field; its headers and its content
// identify it.
func TestTombstone_Identity(t *testing.T) {
	records := []connector.Record{{Key: []byte("k"), Headers: []connector.Header{{Key: "id", Value: []byte("7")}}}}
	for identity, want := range map[string]bool{"field:a": false, "header:id": true, "header:other": false, "content": true} {
		d, _, err := identified(t, identity, "a int, b struct<c: int>")
		if err != nil {
			t.Fatal(err)
		}
		entries, _ := sealed(t, d, records...)
		if len(entries) != 1 || entries[0].Fingerprint != (idempotency.Fingerprint{}) != want {
			t.Errorf("%s: entries %v, want an identity: %t", identity, entries, want)
		}
	}
}

// TestRenamedFields: a renamed column is filled from the field in its metadata, at any depth, and not from a field of
// its own name. Errors name the column.
func TestRenamedFields(t *testing.T) {
	d := open(t, withMetadata(t, "`a b` int, a_B int, Id int, id int, `_kafka_offset` bigint, s struct<`x\ty`: int>, l array<struct<`p=q`: string>>"), JSON{}, maxDistinct)
	got := rowsOf(t, d, connector.Record{Offset: 9, Value: []byte(`{"a b":1,"a_B":2,"Id":3,"id":4,"_kafka_offset":5,"s":{"x\ty":6},"l":[{"p=q":"z"}]}`)},
		connector.Record{Offset: 10, Value: []byte(`{"a_b":7,"s":{"x_y":8}}`)})
	for _, want := range []string{`"_kafka_offset":9`, `"a_B":2`, `"Id":3`, `"__kafka_offset":5`, `"s":{"x_y":6}`, `"l":[{"p_q":"z"}]`, `"_kafka_offset":10`, `"s":{"x_y":null}`} {
		if !strings.Contains(got, want) {
			t.Errorf("no %s in\n%s", want, got)
		}
	}
	if n := strings.Count(got, `:1,`); n < 1 || strings.Contains(got, ":7") {
		t.Errorf("the field \"a b\" is not in its column, or another field is:\n%s", got)
	}
	if ignored := d.Ignored(); ignored.Fields != 2 {
		t.Errorf("ignored %+v, want a_b and x_y", ignored)
	}
	checkError(t, d.addValue([]byte(`{"s":{"x\ty":"no"}}`)), TypeMismatch, "s.x_y")
}

// TestRenamedFields_Twice: a table in which two columns claim one field is refused.
func TestRenamedFields_Twice(t *testing.T) {
	s, err := schema.FromDelta([]byte(`{"type":"struct","fields":[{"name":"a","type":"string","nullable":true,"metadata":{"sluice.field":"x"}},{"name":"b","type":"string","nullable":true,"metadata":{"sluice.field":"x"}}]}`))
	if err != nil {
		t.Fatal(err)
	}
	_, err = JSON{}.Builder(s.WithKafkaColumns())
	if held, ok := errors.AsType[*hold.Error](err); !ok || held.Reason != hold.SchemaConflict || !strings.Contains(err.Error(), `columns a and b are filled from the same field "x"`) {
		t.Errorf("got %v", err)
	}
}

// TestKeyAndHeaders: the columns have the bytes of the record, in their order, and tell null from empty.
func TestKeyAndHeaders(t *testing.T) {
	h := func(key string, value []byte) connector.Header { return connector.Header{Key: key, Value: value} }
	long := strings.Repeat("0123456789", 500) // longer than any text that a dictionary takes
	records := []connector.Record{
		{Offset: 0, Value: []byte("{}")},
		{Offset: 1, Value: []byte("{}"), Key: []byte{}, Headers: []connector.Header{h("", nil), h("a", []byte{}), h("a", []byte{0, 0xff}), h("ü", []byte("x"))}},
		{Offset: 2, Value: []byte("{}"), Key: []byte("\x00\xff"), Headers: []connector.Header{h("a", nil)}},
		{Offset: 3, Key: []byte(long), Headers: []connector.Header{h(long, []byte(long)), h("b", []byte("y"))}},
	}
	for _, distinct := range []int{0, maxDistinct} {
		d := open(t, withMetadata(t, "n int", "headers", "key"), JSON{}, distinct)
		for chunk := range 2 {
			for i := range records {
				if err := d.Add(connector.Partition{Topic: "orders"}, &records[i]); err != nil {
					t.Fatal(err)
				}
				// A refused record leaves nothing.
				checkError(t, d.Add(connector.Partition{}, &connector.Record{Key: []byte("no"), Headers: records[1].Headers, Value: []byte(`{"n":"x"}`)}), TypeMismatch, "n")
			}
			rows := d.Seal()
			for i, r := range records {
				key, headers := storedRecord(t, rows, i)
				if d := cmp.Diff(r.Key, key); d != "" {
					t.Errorf("chunk %d, row %d: key (-want +got):\n%s", chunk, i, d)
				}
				want := r.Headers
				if want == nil {
					want = []connector.Header{}
				}
				if d := cmp.Diff(want, headers); d != "" {
					t.Errorf("chunk %d, row %d: headers (-want +got):\n%s", chunk, i, d)
				}
			}
			rows.Release()
		}
	}
}

// storedRecord returns the key and the headers of a row; headers is nil if the column is null.
func storedRecord(t *testing.T, rows arrow.RecordBatch, row int) (key []byte, headers []connector.Header) {
	t.Helper()
	column := func(name string) arrow.Array { return rows.Column(rows.Schema().FieldIndices(name)[0]) }
	key = storedBytes(t, column(schema.KafkaKey), row)
	list := column(schema.KafkaHeaders).(*array.List)
	if list.IsNull(row) {
		return key, nil
	}
	headers = []connector.Header{}
	element := list.ListValues().(*array.Struct)
	from, to := list.ValueOffsets(row)
	for i := int(from); i < int(to); i++ {
		name := storedBytes(t, element.Field(0), i)
		if element.IsNull(i) || name == nil {
			t.Errorf("row %d has a null header", row)
		}
		headers = append(headers, connector.Header{Key: string(name), Value: storedBytes(t, element.Field(1), i)})
	}
	return key, headers
}

func storedBytes(t *testing.T, from arrow.Array, row int) []byte {
	t.Helper()
	if d, ok := from.(*array.Dictionary); ok {
		if d.IsNull(row) {
			return nil
		}
		from, row = d.Dictionary(), d.GetValueIndex(row)
	}
	switch v := from.(type) {
	case *array.Binary:
		if v.IsValid(row) {
			return append([]byte{}, v.Value(row)...)
		}
	case *array.String:
		if v.IsValid(row) {
			return append([]byte{}, v.Value(row)...)
		}
	default:
		t.Fatalf("a column of %s", from.DataType())
	}
	return nil
}

// TestKeyAndHeaders_Refused: what the columns cannot have exactly makes a bad record.
func TestKeyAndHeaders_Refused(t *testing.T) {
	text := withMetadata(t, "n int", "key:text", "headers")
	d := open(t, text, JSON{}, maxDistinct)
	add := func(r connector.Record) error { r.Value = []byte("{}"); return d.Add(connector.Partition{}, &r) }
	checkError(t, add(connector.Record{Key: []byte("\xff")}), InvalidUTF8, schema.KafkaKey)
	checkError(t, add(connector.Record{Headers: []connector.Header{{Key: "a"}, {Key: "\xff"}}}), InvalidUTF8, schema.KafkaHeaders)
	if err := add(connector.Record{Key: []byte("ü"), Headers: []connector.Header{{Key: "ü", Value: []byte("\xff")}}}); err != nil || d.Rows() != 1 {
		t.Errorf("%d rows, %v", d.Rows(), err)
	}
	required, err := schema.FromDelta([]byte(strings.NewReplacer(`"_kafka_key","type":"string","nullable":true`, `"_kafka_key","type":"string","nullable":false`).Replace(text.DeltaJSON())))
	if err != nil {
		t.Fatal(err)
	}
	d = open(t, required, JSON{}, maxDistinct)
	checkError(t, add(connector.Record{}), RequiredMissing, schema.KafkaKey)
}
