package deadletter_test

import (
	"bytes"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/reliability/deadletter"
)

// TestHeaders: a dead letter has the headers that docs/dead-letters.md lists.
func TestHeaders(t *testing.T) {
	l := some()
	r := deadletter.Form{Pipeline: "orders"}.Encode(l)
	same(t, l.Key, r.Key)
	same(t, l.Value, r.Value)
	same(t, l.Timestamp, r.Timestamp)
	same(t, l.Headers, r.Headers[:len(l.Headers)])
	var got [][2]string
	for _, h := range r.Headers[len(l.Headers):] {
		got = append(got, [2]string{h.Key, string(h.Value)})
	}
	same(t, [][2]string{
		{"sluice.version", "1.0"},
		{"sluice.cluster", "c1"},
		{"sluice.topic", "user.events.v1"},
		{"sluice.topic_id", "AQIDAAAAAAAAAAAAAAAAAA"},
		{"sluice.partition", "3"},
		{"sluice.offset", "12345"},
		{"sluice.timestamp", "1705314600123"},
		{"sluice.class", "poison"},
		{"sluice.reason", "required_missing"},
		{"sluice.retries", "2"},
		{"sluice.first_failure", "2024-01-15T10:30:00Z"},
		{"sluice.last_failure", "2024-01-15T10:30:01.0000005Z"},
		{"sluice.written", "2024-01-15T10:30:02.250Z"},
		{"sluice.member", "m-1"},
		{"sluice.correlation", "corr-1"},
		{"sluice.batch", "batch-1"},
		{"__connect.errors.topic", "user.events.v1"},
		{"__connect.errors.partition", "3"},
		{"__connect.errors.offset", "12345"},
		{"__connect.errors.connector.name", "orders"},
		{"__connect.errors.task.id", "m-1"},
		{"__connect.errors.stage", "VALUE_CONVERTER"},
		{"__connect.errors.class.name", "sluice"},
		{"__connect.errors.exception.class.name", "sluice.poison.required_missing"},
		{"__connect.errors.exception.message", "field user_id is missing"},
		{"__connect.errors.exception.stacktrace", "decode: user_id"},
		{"_dlq.errors.disposition", "CLIENT_REJECTED"},
		{"_dlq.errors.original.topic", "user.events.v1"},
		{"_dlq.errors.original.partition", "3"},
		{"_dlq.errors.original.offset", "12345"},
	}, got)
}

func TestWordsOfOthers(t *testing.T) {
	for reason, want := range map[deadletter.Reason][2]string{ //nolint:exhaustive // one of each kind
		"syntax":                    {"VALUE_CONVERTER", "CLIENT_REJECTED"},
		deadletter.NullKey:          {"KEY_CONVERTER", "CLIENT_REJECTED"},
		deadletter.Isolated:         {"TASK_PUT", "CLIENT_REJECTED"},
		deadletter.RetriesExhausted: {"TRANSFORMATION", "MAX_DELIVERY_ATTEMPTS_REACHED"},
	} {
		l := some()
		l.Reason = reason
		for _, h := range (deadletter.Form{}).Encode(l).Headers {
			switch v := string(h.Value); {
			case h.Key == "__connect.errors.stage" && v != want[0], h.Key == "_dlq.errors.disposition" && v != want[1]:
				t.Errorf("%s: %s is %s", reason, h.Key, v)
			}
		}
	}
}

// TestParseUndoesEncode: for any record and both envelopes, Parse returns the letter that was passed to Encode.
func TestParseUndoesEncode(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, f := letters(200).Draw(t, "letter"), forms().Draw(t, "form")
		got, err := deadletter.Parse(f.Encode(l))
		if err != nil {
			t.Fatal(err)
		}
		same(t, l, got)
	})
}

// TestLetterOfALetter: a dead letter can itself become a dead letter. Parsing the second one returns the first one byte
// for byte, and parsing the first one returns the record.
func TestLetterOfALetter(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		inner, f := letters(60).Draw(t, "inner"), forms().Draw(t, "form")
		r := f.Encode(inner)
		outer := letters(10).Draw(t, "outer")
		outer.Timestamp, outer.Key, outer.Value, outer.Headers = r.Timestamp, r.Key, r.Value, r.Headers
		got, err := deadletter.Parse(f.Encode(outer))
		if err != nil {
			t.Fatal(err)
		}
		same(t, outer, got)
		back, err := deadletter.Parse(deadletter.Record{Timestamp: got.Timestamp, Key: got.Key, Value: got.Value, Headers: got.Headers})
		if err != nil {
			t.Fatal(err)
		}
		same(t, inner, back)
	})
}

// TestAppendedHeaders: if a program forwards a dead letter and appends headers, Parse returns the same letter.
func TestAppendedHeaders(t *testing.T) {
	l := some()
	r := deadletter.Form{}.Encode(l)
	r.Headers = append(r.Headers, deadletter.Header{Key: "mirror", Value: []byte("x")}, deadletter.Header{Key: "sluice.offset", Value: []byte("1")},
		deadletter.Header{Key: "__connect.errors.exception.message", Value: []byte("another")})
	same(t, l, mustParse(t, r))
}

// TestTimestampOfTheRecord: a dead letter keeps the timestamp of its record although the dead-letter topic sets another
// one.
func TestTimestampOfTheRecord(t *testing.T) {
	for _, e := range []deadletter.Envelope{deadletter.EnvelopeHeaders, deadletter.EnvelopeJSON} {
		r := deadletter.Form{Envelope: e}.Encode(some())
		r.Timestamp++
		same(t, some(), mustParse(t, r))
	}
}

func TestTextsAreCut(t *testing.T) {
	l := some()
	l.Detail, l.Trace = strings.Repeat("é", 2000), strings.Repeat("ü", 600)+"\xff"
	for _, e := range []deadletter.Envelope{deadletter.EnvelopeHeaders, deadletter.EnvelopeJSON} {
		got := mustParse(t, deadletter.Form{Envelope: e}.Encode(l))
		same(t, strings.Repeat("é", 1000), got.Detail)
		same(t, strings.Repeat("ü", 500), got.Trace)
	}
}

func TestMalformed(t *testing.T) {
	replaced := func(name, value string) deadletter.Record {
		r := deadletter.Form{}.Encode(some())
		for i := range r.Headers {
			if r.Headers[i].Key == name {
				r.Headers[i].Value = []byte(value)
			}
		}
		return r
	}
	linked := func(key string) deadletter.Record {
		l := some()
		l.Link = deadletter.Link{Key: key, Bytes: 1, SHA256: strings.Repeat("ab", 32)}
		return deadletter.Form{}.Encode(l)
	}
	good := deadletter.LinkKey("orders", some().Source)
	if _, err := deadletter.Parse(linked(good)); err != nil {
		t.Fatal(err)
	}
	value := func(s string) deadletter.Record { return deadletter.Record{Value: []byte(s)} }
	for name, r := range map[string]deadletter.Record{
		"nothing":             {},
		"a value":             value("secret"),
		"no object":           value(`["secret"]`),
		"broken JSON":         value(`{"original_topic":"secret`),
		"not UTF-8":           value("{\"original_topic\":\"t\xff\"}"),
		"another object":      value(`{"id":"secret"}`),
		"other types":         value(`{"original_topic":{"secret":1}}`),
		"JSON of version 2":   value(`{"original_topic":"t","original_partition":0,"original_offset":1,"dlq_version":"2.0"}`),
		"JSON partition":      value(`{"original_topic":"t","original_partition":"secret","original_offset":1}`),
		"JSON fraction":       value(`{"original_topic":"t","original_partition":0,"original_offset":1.5}`),
		"JSON offset":         value(`{"original_topic":"t","original_partition":0,"original_offset":-1}`),
		"JSON large":          value(`{"original_topic":"t","original_partition":4294967296,"original_offset":1}`),
		"JSON base64":         value(`{"original_topic":"t","original_partition":0,"original_offset":1,"original_value":"secret!","original_value_encoding":"base64"}`),
		"JSON encoding":       value(`{"original_topic":"t","original_partition":0,"original_offset":1,"original_value":"v","original_value_encoding":"secret"}`),
		"JSON time":           value(`{"original_topic":"t","original_partition":0,"original_offset":1,"first_failure_at":"secret"}`),
		"JSON timestamp":      value(`{"original_topic":"t","original_partition":0,"original_offset":1,"original_timestamp":1.5}`),
		"JSON class":          value(`{"original_topic":"t","original_partition":0,"original_offset":1,"class":"secret"}`),
		"JSON topic id":       value(`{"original_topic":"t","original_partition":0,"original_offset":1,"topic_id":"secret"}`),
		"JSON link":           value(`{"original_topic":"t","original_partition":0,"original_offset":1,"original_value_link":{"key":"secret"}}`),
		"version 2":           replaced("sluice.version", "2.0"),
		"no topic":            replaced("sluice.topic", ""),
		"topic":               replaced("sluice.topic", "secret/x"),
		"topic dots":          replaced("sluice.topic", ".."),
		"topic id":            replaced("sluice.topic_id", "secret"),
		"partition":           replaced("sluice.partition", "secret"),
		"negative partition":  replaced("sluice.partition", "-1"),
		"offset":              replaced("sluice.offset", "9223372036854775808"),
		"class":               replaced("sluice.class", "secret"),
		"reason":              replaced("sluice.reason", "Secret"),
		"long reason":         replaced("sluice.reason", strings.Repeat("a", 65)),
		"no reason":           replaced("sluice.reason", ""),
		"retries":             replaced("sluice.retries", "secret"),
		"time":                replaced("sluice.last_failure", "secret"),
		"envelope":            replaced("sluice.version", "1secret"),
		"link up":             linked("_sluice/../" + strings.TrimPrefix(good, "_sluice/orders/")),
		"link deep":           linked("_sluice/a/b/" + strings.TrimPrefix(good, "_sluice/orders/")),
		"link without":        linked("_sluice/" + strings.TrimPrefix(good, "_sluice/orders/")),
		"link elsewhere":      linked("orders/secret.parquet"),
		"link another record": linked(good + "6"),
		"link in a table":     linked("orders/_delta_log/" + good),
	} {
		l, err := deadletter.Parse(r)
		if !errors.Is(err, deadletter.ErrMalformed) || classify.Of(err) != classify.Poison {
			t.Errorf("%s: %v, %v", name, l, err)
		} else if strings.Contains(strings.ToLower(err.Error()), "secret") {
			t.Errorf("%s: the error quotes the record: %v", name, err)
		}
	}
}

func TestTimestampsOfAnyYear(t *testing.T) {
	for _, ms := range []int64{math.MinInt64, -1, 0, 253402300800000, math.MaxInt64} {
		l := some()
		l.Timestamp = ms
		same(t, ms, mustParse(t, deadletter.Form{Envelope: deadletter.EnvelopeJSON}.Encode(l)).Timestamp)
	}
}

// TestWritten: in both envelopes, a dead letter says when it was written, always in the same number of bytes. If it is
// of an earlier version, which did not write this time, the time of the last failure counts.
func TestWritten(t *testing.T) {
	for _, envelope := range []deadletter.Envelope{deadletter.EnvelopeHeaders, deadletter.EnvelopeJSON} {
		l, size := some(), 0
		for _, nanos := range []int{0, 1, 250e6, 999_999_999} {
			l.Written = time.Date(2024, 1, 15, 11, 0, 0, nanos, time.FixedZone("", 3600))
			r := deadletter.Form{Envelope: envelope}.Encode(l)
			if got, want := mustParse(t, r).Written, l.Written.UTC().Truncate(time.Millisecond); !got.Equal(want) {
				t.Errorf("%s: written %v, want %v", envelope, got, want)
			}
			if size > 0 && r.Size() != size {
				t.Errorf("%s: %d bytes, and %d at another time", envelope, r.Size(), size)
			}
			size = r.Size()
		}
	}
	earlier := deadletter.Form{}.Encode(some())
	earlier.Headers = slices.DeleteFunc(earlier.Headers, func(h deadletter.Header) bool { return h.Key == "sluice.written" })
	if got, want := mustParse(t, earlier).Written, some().LastFailure.Truncate(time.Millisecond); !got.Equal(want) {
		t.Errorf("an earlier letter was written %v, want %v", got, want)
	}
	l := mustParse(t, earlier)
	if text := l.JSON(); !bytes.Contains(text, []byte(`"dlq_timestamp":"2024-01-15T10:30:01.000Z"`)) {
		t.Errorf("%s", text)
	}
}

// FuzzParse: no record makes Parse panic. A letter that Parse accepts can be encoded and parsed again.
func FuzzParse(f *testing.F) {
	add := func(r deadletter.Record) {
		var flat []byte
		for _, h := range r.Headers {
			flat = append(append(append(append(flat, h.Key...), 0), h.Value...), 0)
		}
		f.Add(r.Value, flat)
	}
	add(deadletter.Form{Pipeline: "p"}.Encode(some()))
	add(deadletter.Form{Pipeline: "p", Envelope: deadletter.EnvelopeJSON}.Encode(some()))
	add(deadletter.Record{Value: []byte(documentOne)})
	add(deadletter.Record{Value: []byte(documentTwo)})
	f.Fuzz(func(t *testing.T, value, flat []byte) {
		r := deadletter.Record{Value: value}
		parts := strings.Split(string(flat), "\x00")
		for i := 0; i+1 < len(parts); i += 2 {
			r.Headers = append(r.Headers, deadletter.Header{Key: parts[i], Value: []byte(parts[i+1])})
		}
		l, err := deadletter.Parse(r)
		if err != nil {
			if !errors.Is(err, deadletter.ErrMalformed) || classify.Of(err) != classify.Poison {
				t.Fatalf("%v", err)
			}
			return
		}
		l = mustParse(t, deadletter.Form{Pipeline: "p"}.Encode(l)) // encoding cuts its texts to the limits of this version
		same(t, l, mustParse(t, deadletter.Form{Pipeline: "p"}.Encode(l)))
	})
}
