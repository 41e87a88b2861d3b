package decode_test

import (
	"testing"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/decode/decodetest"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// TestFormats runs the conformance suite on every format. A format without samples fails.
func TestFormats(t *testing.T) {
	for _, f := range decode.Formats() {
		t.Run(f.Name, func(t *testing.T) {
			s, ok := samples(t)[f.Name]
			if !ok {
				t.Fatalf("format %s has no samples: add them below", f.Name)
			}
			decodetest.Run(t, f.New(decode.Options{}), s)
		})
	}
}

func value(text string) connector.Record {
	return connector.Record{Key: []byte("k"), Value: []byte(text)}
}

func samples(t *testing.T) map[string]decodetest.Samples {
	t.Helper()
	return map[string]decodetest.Samples{
		decode.FormatJSON: {
			DDL:  "id string not null, amount int, tags array<string>",
			Good: []connector.Record{value(`{"id":"a","amount":1,"tags":["x","y"]}`), value(`{"id":"b"}`)},
			Bad: map[string]connector.Record{
				"type_mismatch":    value(`{"id":"c","amount":"1"}`),
				"required_missing": value(`{"amount":17}`),
				"truncated":        value(`{"id":"c"`),
				"no_value":         value(""),
			},
		},
		decode.FormatDeadLetters: {
			DDL:  decode.DeadLetterDDL,
			Good: []connector.Record{letter(t, 7), letter(t, 8)},
			Bad:  map[string]connector.Record{string(decode.NotALetter): value("no dead letter at all")},
		},
	}
}

// letter returns the record of a dead letter about the record at an offset.
func letter(t *testing.T, offset int64) connector.Record {
	t.Helper()
	encoded := deadletter.Form{}.Encode(deadletter.Letter{
		Source: idempotency.Coordinates{Partition: idempotency.Partition{Cluster: "c", Topic: "orders", ID: 1}, Offset: offset},
		Key:    []byte("k"), Value: []byte("{"), Class: classify.Poison, Reason: "syntax", Detail: "syntax at byte 1",
		FirstFailure: time.UnixMilli(1_700_000_000_000), LastFailure: time.UnixMilli(1_700_000_000_000), Written: time.UnixMilli(1_700_000_000_000),
		Member: "m", Correlation: "correlation", Batch: "m-1",
	})
	r := connector.Record{Key: encoded.Key, Value: encoded.Value}
	for _, h := range encoded.Headers {
		r.Headers = append(r.Headers, connector.Header(h))
	}
	return r
}
