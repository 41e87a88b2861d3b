package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

type fataler interface {
	Helper()
	Fatal(...any)
	Fatalf(string, ...any)
}

func letterTable(t fataler, ddl string) *schema.Schema {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	return s.WithKafkaColumns()
}

func letterBuilderOf(t fataler, s *schema.Schema) connector.Builder {
	t.Helper()
	b, err := DeadLetters{}.Builder(s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cells returns a row of a batch by column, with values as in Arrow's JSON. Null columns are missing.
func cells(t fataler, batch arrow.RecordBatch, row int) map[string]any {
	t.Helper()
	var all []map[string]any
	var b bytes.Buffer
	if err := array.RecordToJSON(batch, &b); err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(&b)
	d.UseNumber()
	for d.More() {
		var m map[string]any
		if err := d.Decode(&m); err != nil {
			t.Fatal(err)
		}
		for name, v := range m {
			if v == nil {
				delete(m, name)
			}
		}
		all = append(all, m)
	}
	return all[row]
}

// original returns the bytes of a key, value or header. It decodes its text column as its encoding column says.
func original(t fataler, of map[string]any, name string) []byte {
	t.Helper()
	text, ok := of[name].(string)
	if !ok {
		return nil
	}
	switch encoding := of[name+"_encoding"]; encoding {
	case nil:
		return []byte(text)
	case "base64":
		b, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			t.Fatal(err)
		}
		return b
	default:
		t.Fatalf("%s is encoded as %v", name, encoding)
	}
	return nil
}

var someBytes = rapid.OneOf(
	rapid.Just([]byte(nil)), rapid.Just([]byte{}), rapid.SliceOfN(rapid.Byte(), 1, 40),
	rapid.Map(rapid.String(), func(s string) []byte { return []byte(s) }),
	rapid.Just([]byte(`{"dlq_version":"1.0","original_topic":"other"}`)), rapid.Just([]byte("base64")), rapid.Just([]byte("\x00\xff")),
)

var someLetter = rapid.Custom(func(t *rapid.T) deadletter.Letter {
	at := func(name string) time.Time {
		return time.UnixMicro(rapid.Int64Range(0, 4e15).Draw(t, name)).UTC()
	}
	text := rapid.StringN(0, 30, -1)
	l := deadletter.Letter{
		Source: idempotency.Coordinates{
			Partition: idempotency.Partition{
				Cluster: rapid.SampledFrom([]string{"", "4L6g3nShT-eMCtK--X86sw", "a/b"}).Draw(t, "cluster"), Topic: rapid.StringMatching(`[a-z._-]{3,9}`).Draw(t, "topic"),
				ID: rapid.Int32Min(0).Draw(t, "partition"),
			},
			Offset: rapid.Int64Min(0).Draw(t, "offset"),
		},
		Timestamp: rapid.OneOf(rapid.Int64Range(0, 4e12), rapid.SampledFrom([]int64{-1, 0, math.MaxInt64, math.MinInt64, -62135596800001, 253402300800000})).Draw(t, "timestamp"),
		Key:       someBytes.Draw(t, "key"), Value: someBytes.Draw(t, "value"),
		Class: rapid.SampledFrom([]classify.Class{classify.Poison, classify.Transient}).Draw(t, "class"), Reason: "out_of_range",
		Detail: text.Draw(t, "detail"), Trace: text.Draw(t, "trace"), Retries: rapid.IntRange(0, math.MaxInt32).Draw(t, "retries"),
		FirstFailure: at("first"), LastFailure: at("last"), Written: at("written").Truncate(time.Millisecond),
		Member: text.Draw(t, "member"), Correlation: text.Draw(t, "correlation"), Batch: text.Draw(t, "batch"),
	}
	copy(l.Source.TopicID[:], rapid.SliceOfN(rapid.Byte(), 0, 16).Draw(t, "topic id"))
	for range rapid.IntRange(0, 3).Draw(t, "headers") {
		l.Headers = append(l.Headers, deadletter.Header{
			Key: rapid.SampledFrom([]string{"", "a", "a", "sluice.version", "sluice.offset", "\xff\x00"}).Draw(t, "name"), Value: someBytes.Draw(t, "header"),
		})
	}
	return l
})

func recordOf(r deadletter.Record, offset int64) *connector.Record {
	out := &connector.Record{Offset: offset, Timestamp: r.Timestamp, Key: r.Key, Value: r.Value}
	for _, h := range r.Headers {
		out.Headers = append(out.Headers, connector.Header(h))
	}
	return out
}

// TestLetters_TopicID: the row of a dead letter has the id of the dead-letter topic, beside that of the record's topic.
func TestLetters_TopicID(t *testing.T) {
	b := letterBuilderOf(t, letterTable(t, DeadLetterDDL).WithTopicID())
	letter := deadletter.Letter{Class: classify.Poison, Reason: "syntax", Source: idempotency.Coordinates{Partition: idempotency.Partition{Topic: "orders", TopicID: idempotency.TopicID{1}}}}
	for i, id := range []idempotency.TopicID{{2}, {}} {
		if err := b.Add(connector.Partition{Topic: "orders-dlq", TopicID: id}, recordOf(deadletter.Form{}.Encode(letter), int64(i))); err != nil {
			t.Fatal(err)
		}
	}
	batch := b.Seal()
	defer batch.Release()
	for i, want := range []any{"AgAAAAAAAAAAAAAAAAAAAA", nil} {
		if got := cells(t, batch, i); got["_kafka_topic_id"] != want || got["topic_id"] != "AQAAAAAAAAAAAAAAAAAAAA" {
			t.Errorf("row %d: %v", i, got)
		}
	}
}

// TestLettersKeepEverything: the row of a dead letter has every byte of the record, and its columns agree with the
// JSON rendering.
func TestLettersKeepEverything(t *testing.T) {
	s := letterTable(t, DeadLetterDDL)
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SliceOfN(someLetter, 1, 4).Draw(t, "letters")
		form := deadletter.Form{Pipeline: "p", Envelope: rapid.SampledFrom([]deadletter.Envelope{deadletter.EnvelopeHeaders, deadletter.EnvelopeJSON}).Draw(t, "envelope")}
		b := letterBuilderOf(t, s)
		for i, l := range letters {
			if err := b.Add(connector.Partition{Topic: "orders-dlq", ID: 3}, recordOf(form.Encode(l), int64(i))); err != nil {
				t.Fatalf("%+v: %v", l, err)
			}
			if b.Rows() != i+1 || b.Allocated() == 0 {
				t.Fatalf("%d rows, %d bytes", b.Rows(), b.Allocated())
			}
		}
		batch := b.Seal()
		defer batch.Release()
		for i, l := range letters {
			got := cells(t, batch, i)
			var want map[string]any
			d := json.NewDecoder(bytes.NewReader(l.JSON()))
			d.UseNumber()
			if err := d.Decode(&want); err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{
				"original_topic", "cluster", "topic_id", "reason", "class", "error_reason", "error_message", "error_class", "error_stack_trace",
				"retry_count", "worker_instance", "dlq_version", "correlation_id", "batch_id", "original_offset", "original_timestamp_ms",
			} {
				if got[name] != want[name] {
					t.Errorf("%s is %v, the JSON says %v", name, got[name], want[name])
				}
			}
			if got["exception_class"] != want["error_details"].(map[string]any)["exception_class"] {
				t.Errorf("exception_class is %v", got["exception_class"])
			}
			for name, b := range map[string][]byte{"original_key": l.Key, "original_value": l.Value} {
				if d := cmp.Diff(b, original(t, got, name)); d != "" {
					t.Errorf("%s: %s", name, d)
				}
			}
			var headers []deadletter.Header
			for _, h := range got["original_headers"].([]any) {
				m := h.(map[string]any)
				headers = append(headers, deadletter.Header{Key: string(original(t, m, "key")), Value: original(t, m, "value")})
			}
			if d := cmp.Diff(l.Headers, headers); d != "" {
				t.Errorf("headers: %s", d)
			}
			checkTimes(t, l, got)
			if got["_kafka_topic"] != "orders-dlq" || got["_kafka_partition"] != json.Number("3") || got["_kafka_offset"] != json.Number(string(rune('0'+i))) {
				t.Errorf("the letter's own coordinates are %v-%v@%v", got["_kafka_topic"], got["_kafka_partition"], got["_kafka_offset"])
			}
			if _, linked := got["original_value_link"]; linked {
				t.Error("a link out of nothing")
			}
		}
	})
}

// TestReadLetters: a row of a letter table was made from a dead letter. ReadLetters returns that dead letter, with
// every byte of its record.
func TestReadLetters(t *testing.T) {
	s := letterTable(t, DeadLetterDDL).WithTopicID()
	rapid.Check(t, func(t *rapid.T) {
		letters := rapid.SliceOfN(someLetter, 1, 4).Draw(t, "letters")
		form := deadletter.Form{Pipeline: "p", Envelope: rapid.SampledFrom([]deadletter.Envelope{deadletter.EnvelopeHeaders, deadletter.EnvelopeJSON}).Draw(t, "envelope")}
		b := letterBuilderOf(t, s)
		var want []deadletter.Letter
		for i, l := range letters {
			record := recordOf(form.Encode(l), int64(i))
			if err := b.Add(connector.Partition{Topic: "orders-dlq", TopicID: idempotency.TopicID{1}, ID: 3}, record); err != nil {
				t.Fatal(err)
			}
			parsed, err := ParseLetter(record)
			if err != nil {
				t.Fatal(err)
			}
			want = append(want, parsed)
		}
		batch := b.Seal()
		defer batch.Release()
		got, err := ReadLetters(batch, func(topic string, partition int32, offset int64) bool {
			return topic == "orders-dlq" && partition == 3 && offset != 1
		})
		if err != nil {
			t.Fatal(err)
		}
		next := 0
		for i, l := range want {
			if i == 1 { // not wanted
				continue
			}
			g := got[next]
			next++
			if g.Topic != "orders-dlq" || g.TopicID != "AQAAAAAAAAAAAAAAAAAAAA" || g.Partition != 3 || g.Offset != int64(i) || g.Err != nil {
				t.Fatalf("%+v", g)
			}
			for _, at := range []*time.Time{&l.FirstFailure, &l.LastFailure, &l.Written} {
				*at = at.Truncate(time.Microsecond)
			}
			if d := cmp.Diff(l, g.Letter, cmpopts.EquateEmpty()); d != "" {
				t.Fatalf("(-want +got):\n%s", d)
			}
			if (l.Key == nil) != (g.Letter.Key == nil) || (l.Value == nil) != (g.Letter.Value == nil) {
				t.Fatal("null became empty, or the other way round")
			}
		}
		if next != len(got) {
			t.Fatalf("%d dead letters", len(got))
		}
	})
}

func checkTimes(t *rapid.T, l deadletter.Letter, got map[string]any) {
	const layout = time.RFC3339Nano
	want := map[string]any{}
	if y := time.UnixMilli(l.Timestamp).UTC().Year(); l.Timestamp != -1 && y >= 1 && y <= 9999 {
		want["original_timestamp"] = time.UnixMilli(l.Timestamp).UTC().Format(layout)
	}
	want["first_failure_at"], want["last_failure_at"] = l.FirstFailure.Format(layout), l.LastFailure.Format(layout)
	want["dlq_timestamp"] = l.Written.Format(layout)
	if l.Written.IsZero() {
		want["dlq_timestamp"] = l.LastFailure.Truncate(time.Millisecond).Format(layout)
	}
	for _, name := range []string{"original_timestamp", "first_failure_at", "last_failure_at", "dlq_timestamp"} {
		if got[name] != want[name] {
			t.Errorf("%s is %v, want %v", name, got[name], want[name])
		}
	}
}

// TestDeadLetters_LinkedRecord: if a value is in an object of the bucket, the row of the dead letter has the link to
// that object, and a null value.
func TestDeadLetters_LinkedRecord(t *testing.T) {
	l := deadletter.Letter{
		Source:    idempotency.Coordinates{Partition: idempotency.Partition{Cluster: "c", Topic: "orders", ID: 1}, Offset: 7},
		Timestamp: 1, Key: []byte("k"), Value: bytes.Repeat([]byte{0xff}, 100_000), Class: classify.Poison, Reason: "syntax", LastFailure: time.UnixMilli(5),
	}
	r, object, err := deadletter.Form{Pipeline: "p"}.Fit(l, 10_000)
	if err != nil || object == nil {
		t.Fatal(err, object)
	}
	b := letterBuilderOf(t, letterTable(t, DeadLetterDDL))
	if err := b.Add(connector.Partition{Topic: "orders-dlq"}, recordOf(r, 0)); err != nil {
		t.Fatal(err)
	}
	batch := b.Seal()
	defer batch.Release()
	got := cells(t, batch, 0)
	link, ok := got["original_value_link"].(map[string]any)
	if !ok || link["key"] != object.Key || link["holds"] != "value" || link["bytes"] != json.Number("100109") && link["bytes"] == nil || len(link["sha256"].(string)) != 64 {
		t.Errorf("%v, want %s", got["original_value_link"], object.Key)
	}
	if got["original_value"] != nil || got["original_key"] != "k" {
		t.Errorf("value %v, key %v", got["original_value"], got["original_key"])
	}
}

// notLetters returns records that a dead-letter topic can have and that are not dead letters.
func notLetters() map[string]*connector.Record {
	good := deadletter.Form{Pipeline: "p"}.Encode(deadletter.Letter{
		Source: idempotency.Coordinates{Partition: idempotency.Partition{Topic: "orders"}}, Class: classify.Poison, Reason: "syntax", Value: []byte("secret"),
	})
	with := func(name, value string) *connector.Record {
		r := recordOf(good, 0)
		for i := range r.Headers {
			if r.Headers[i].Key == name {
				r.Headers[i].Value = []byte(value)
			}
		}
		return r
	}
	return map[string]*connector.Record{
		"a tombstone":      {Key: []byte("k")},
		"an empty value":   {Value: []byte{}},
		"a row's value":    {Value: []byte(`{"secret":1}`)},
		"no JSON":          {Value: []byte("secret")},
		"a list":           {Value: []byte(`["secret"]`)},
		"cut JSON":         {Value: []byte(`{"dlq_version":"1.0","original_topic":"secret`)},
		"no offset":        {Value: []byte(`{"dlq_version":"1.0","original_topic":"orders","original_partition":0,"error_reason":"secret"}`)},
		"no topic":         {Value: []byte(`{"dlq_version":"1.0","original_partition":0,"original_offset":1}`)},
		"version 2":        with("sluice.version", "2.0"),
		"a bad offset":     with("sluice.offset", "secret"),
		"a negative one":   with("sluice.offset", "-1"),
		"a bad partition":  with("sluice.partition", "4294967296"),
		"a bad class":      with("sluice.class", "secret"),
		"a bad reason":     with("sluice.reason", "Secret!"),
		"a bad topic":      with("sluice.topic", "../secret"),
		"a bad topic id":   with("sluice.topic_id", "secret"),
		"deep JSON":        {Value: []byte(strings.Repeat(`{"a":`, 100_000))},
		"an unknown class": {Value: []byte(`{"original_topic":"orders","original_partition":0,"original_offset":1,"class":"secret"}`)},
	}
}

func TestDeadLetters_NotALetter(t *testing.T) {
	s := letterTable(t, DeadLetterDDL)
	good := recordOf(deadletter.Form{}.Encode(deadletter.Letter{
		Source: idempotency.Coordinates{Partition: idempotency.Partition{Topic: "orders"}, Offset: 4}, Class: classify.Poison, Reason: "syntax",
	}), 0)
	for name, r := range notLetters() {
		t.Run(name, func(t *testing.T) {
			b := letterBuilderOf(t, s)
			err := b.Add(connector.Partition{Topic: "orders-dlq"}, r)
			var e *LetterError
			if !errors.As(err, &e) || classify.Of(err) != classify.Poison || e.Code() != string(NotALetter) {
				t.Fatalf("%v", err)
			}
			if strings.Contains(strings.ToLower(err.Error()), "secret") {
				t.Errorf("it quotes the record: %v", err)
			}
			if b.Rows() != 0 || b.Seal() != nil || b.Allocated() != 0 {
				t.Error("it left something behind")
			}
			if err := b.Add(connector.Partition{Topic: "orders-dlq"}, good); err != nil || b.Rows() != 1 {
				t.Errorf("a letter behind it: %v", err)
			}
			b.Seal().Release()
		})
	}
}

// FuzzLetters: every record of a dead-letter topic becomes a row or a Poison error, and the row holds the unchanged
// record that became the dead letter.
func FuzzLetters(f *testing.F) {
	for _, r := range notLetters() {
		f.Add(r.Key, r.Value, "sluice.version", []byte("1.0"))
	}
	f.Add([]byte("k"), []byte(`{"dlq_version":"1.0","original_topic":"t","original_partition":"0","original_offset":1,"original_value":{"a":1}}`), "", []byte(nil))
	s := letterTable(f, DeadLetterDDL)
	f.Fuzz(func(t *testing.T, key, value []byte, name string, header []byte) {
		r := &connector.Record{Timestamp: 5, Key: key, Value: value, Headers: []connector.Header{{Key: name, Value: header}}}
		b := letterBuilderOf(t, s)
		err := b.Add(connector.Partition{Topic: "orders-dlq"}, r)
		if err != nil {
			if classify.Of(err) != classify.Poison || b.Rows() != 0 {
				t.Fatalf("%v, %d rows", err, b.Rows())
			}
			return
		}
		l, err := ParseLetter(r)
		if err != nil {
			t.Fatal(err)
		}
		batch := b.Seal()
		defer batch.Release()
		if got := cells(t, batch, 0); !bytes.Equal(original(t, got, "original_value"), l.Value) || !bytes.Equal(original(t, got, "original_key"), l.Key) {
			t.Fatalf("%q became %v", r.Value, got)
		}
	})
}

func TestLetterTablesOfOthers(t *testing.T) {
	record := recordOf(deadletter.Form{}.Encode(deadletter.Letter{
		Source: idempotency.Coordinates{Partition: idempotency.Partition{Topic: "orders"}, Offset: 4}, Class: classify.Poison, Reason: "syntax", Value: []byte("x"),
		Headers: []deadletter.Header{{Key: "h", Value: []byte("v")}},
	}), 0)
	t.Run("a column that was added", func(t *testing.T) {
		s := letterTable(t, "ticket string, resolved boolean, "+DeadLetterDDL+", handled struct<by: string>")
		b := letterBuilderOf(t, s)
		if err := b.Add(connector.Partition{Topic: "orders-dlq"}, record); err != nil {
			t.Fatal(err)
		}
		batch := b.Seal()
		defer batch.Release()
		got := cells(t, batch, 0)
		for _, name := range []string{"ticket", "resolved", "handled"} {
			if _, there := got[name]; there {
				t.Errorf("%s is %v", name, got[name])
			}
		}
		if got["original_value"] != "x" || got["original_offset"] != json.Number("4") {
			t.Errorf("%v", got)
		}
		if !batch.Schema().Equal(s.Arrow()) {
			t.Errorf("schema %v", batch.Schema())
		}
	})
	for name, ddl := range map[string]string{
		"a column is missing": strings.Replace(DeadLetterDDL, "original_value string", "other_value string", 1),
		"another type":        strings.Replace(DeadLetterDDL, "original_offset bigint", "original_offset string", 1),
		"one that is needed":  "ticket string not null, " + DeadLetterDDL,
	} {
		t.Run(name, func(t *testing.T) {
			_, err := DeadLetters{}.Builder(letterTable(t, ddl))
			var held *hold.Error
			if !errors.As(err, &held) || held.Reason != hold.SchemaConflict {
				t.Errorf("%v", err)
			}
		})
	}
}

// TestLettersInMemory: a builder without rows holds no memory, and the memory of a chunk is reported until the chunk is
// released.
func TestLettersInMemory(t *testing.T) {
	b := letterBuilderOf(t, letterTable(t, DeadLetterDDL)).(*letterBuilder)
	if b.Allocated() != 0 || b.Rows() != 0 || b.Bytes() != 0 || b.Seal() != nil || b.Sealed() != 0 {
		t.Error("an idle builder holds something")
	}
	value := bytes.Repeat([]byte("v"), 100_000)
	for i := range 20 {
		r := recordOf(deadletter.Form{}.Encode(deadletter.Letter{
			Source: idempotency.Coordinates{Partition: idempotency.Partition{Topic: "orders"}, Offset: int64(i)}, Class: classify.Poison, Reason: "syntax", Value: value,
		}), int64(i))
		if err := b.Add(connector.Partition{Topic: "orders-dlq"}, r); err != nil {
			t.Fatal(err)
		}
	}
	if b.Allocated() < 2_000_000 || b.Bytes() < 2_000_000 {
		t.Errorf("held %d of 2 MB", b.Allocated())
	}
	counted := b.memory
	batch := b.Seal()
	if b.Sealed() < 2_000_000 || b.Allocated() != 0 || b.Rows() != 0 {
		t.Errorf("sealed %d, held %d", b.Sealed(), b.Allocated())
	}
	batch.Release()
	if left := counted.bytes.Load(); left != 0 {
		t.Errorf("%d bytes are not given back", left)
	}
	b.fed = maxLetters
	if err := b.Add(connector.Partition{}, recordOf(deadletter.Form{}.Encode(deadletter.Letter{
		Source: idempotency.Coordinates{Partition: idempotency.Partition{Topic: "orders"}}, Class: classify.Poison, Reason: "syntax",
	}), 0)); !errors.Is(err, connector.ErrChunkFull) {
		t.Errorf("%v", err)
	}
}

// TestLetterColumns: the columns have the names of the JSON rendering, so that one page of the documentation explains
// both.
func TestLetterColumns(t *testing.T) {
	l := deadletter.Letter{Source: idempotency.Coordinates{Partition: idempotency.Partition{Topic: "t"}}, Class: classify.Poison, Reason: "syntax"}
	var said map[string]any
	if err := json.Unmarshal(l.JSON(), &said); err != nil {
		t.Fatal(err)
	}
	var columns []string
	for _, f := range letterTable(t, DeadLetterDDL).Fields() {
		columns = append(columns, f.Name)
	}
	for name := range said {
		if name != "error_details" && !slices.Contains(columns, name) {
			t.Errorf("the JSON's %s has no column", name)
		}
	}
}
