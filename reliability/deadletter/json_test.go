package deadletter_test

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"testing"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// Two documents as other programs write them. In one the partition is a text, in the other a number; the value is a
// text or an object.
const (
	documentOne = `{
  "original_topic": "user.events.v1",
  "original_partition": "0",
  "original_offset": 12345,
  "original_key": "user-123",
  "original_value": "{...}",
  "original_timestamp": "2024-01-15T10:30:00",
  "error_reason": "Schema validation failed",
  "error_message": "Required field 'user_id' is missing",
  "error_class": "NonRetriableException",
  "error_stack_trace": "...",
  "dlq_timestamp": "2024-01-15T10:30:01",
  "dlq_version": "1.0"
}`
	documentTwo = `{
  "original_topic": "escrow.commands",
  "original_partition": 3,
  "original_offset": 12345,
  "original_key": "deal_550e8400",
  "original_value": { "amount":  1.50 },
  "error_details": {
    "exception_class": "TonApiTimeoutException",
    "message": "TON Center API timeout after 30s",
    "stack_trace": "at line 1"
  },
  "retry_count": 5,
  "worker_instance": "payout-executor-1",
  "first_failure_at": "2025-01-15T10:30:00Z",
  "last_failure_at": "2025-01-15T11:45:00Z"
}`
)

func TestDocumentsOfOthers(t *testing.T) {
	same(t, deadletter.Letter{
		Source:    idempotency.Coordinates{Partition: idempotency.Partition{Topic: "user.events.v1"}, Offset: 12345},
		Timestamp: time.Date(2024, 1, 15, 10, 30, 0, 0, time.UTC).UnixMilli(), Key: []byte("user-123"), Value: []byte("{...}"),
		Class: classify.Poison, Reason: deadletter.Unspecified,
		Detail: "Schema validation failed: Required field 'user_id' is missing", Trace: "...",
		LastFailure: time.Date(2024, 1, 15, 10, 30, 1, 0, time.UTC), Written: time.Date(2024, 1, 15, 10, 30, 1, 0, time.UTC),
	}, mustParse(t, deadletter.Record{Timestamp: 7, Value: []byte(documentOne)}))
	same(t, deadletter.Letter{
		Source:    idempotency.Coordinates{Partition: idempotency.Partition{Topic: "escrow.commands", ID: 3}, Offset: 12345},
		Timestamp: 7, Key: []byte("deal_550e8400"), Value: []byte(`{ "amount":  1.50 }`),
		Class: classify.Poison, Reason: deadletter.Unspecified,
		Detail: "TonApiTimeoutException: TON Center API timeout after 30s", Trace: "at line 1", Retries: 5,
		FirstFailure: time.Date(2025, 1, 15, 10, 30, 0, 0, time.UTC), LastFailure: time.Date(2025, 1, 15, 11, 45, 0, 0, time.UTC),
		Written: time.Date(2025, 1, 15, 11, 45, 0, 0, time.UTC),
		Member:  "payout-executor-1",
	}, mustParse(t, deadletter.Record{Timestamp: 7, Value: []byte(documentTwo)}))
}

// TestFields: the JSON of a dead letter has exactly these fields, and each field of the two documents of other programs
// is among them.
func TestFields(t *testing.T) {
	l := some()
	want := map[string]any{
		"original_topic": "user.events.v1", "original_partition": "3", "original_offset": 12345.0, "original_key": "user-123",
		"original_value": `{"id":`, "original_timestamp": "2024-01-15T10:30:00.123Z", "original_timestamp_ms": 1705314600123.0,
		"original_headers": []any{
			map[string]any{"key": "trace", "value": "abc"}, map[string]any{"key": "empty", "value": ""}, map[string]any{"key": "null", "value": nil},
		},
		"error_reason": "required missing", "error_message": "field user_id is missing", "error_class": "NonRetriableException",
		"error_stack_trace": "decode: user_id",
		"error_details": map[string]any{
			"exception_class": "sluice.poison.required_missing", "message": "field user_id is missing", "stack_trace": "decode: user_id",
		},
		"dlq_timestamp": "2024-01-15T10:30:02.250Z", "dlq_version": "1.0",
		"retry_count": 2.0, "worker_instance": "m-1",
		"first_failure_at": "2024-01-15T10:30:00Z", "last_failure_at": "2024-01-15T10:30:01.0000005Z",
		"class": "poison", "reason": "required_missing", "cluster": "c1", "topic_id": "AQIDAAAAAAAAAAAAAAAAAA",
		"correlation_id": "corr-1", "batch_id": "batch-1",
	}
	var got map[string]any
	if err := json.Unmarshal(l.JSON(), &got); err != nil {
		t.Fatal(err)
	}
	same(t, want, got)
	for _, document := range []string{documentOne, documentTwo} {
		var theirs map[string]any
		if err := json.Unmarshal([]byte(document), &theirs); err != nil {
			t.Fatal(err)
		}
		for _, name := range slices.Sorted(maps.Keys(theirs)) {
			if _, ok := got[name]; !ok {
				t.Errorf("no field %s", name)
			}
		}
	}
}

func TestBinaryIsBase64(t *testing.T) {
	l := some()
	l.Key, l.Value, l.Class = []byte{0xff}, []byte{0xfe, 0}, classify.Transient
	l.Headers = []deadletter.Header{{Key: "\xff", Value: []byte{0x80}}}
	var got map[string]any
	if err := json.Unmarshal(l.JSON(), &got); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]any{
		"original_key": "/w==", "original_key_encoding": "base64", "original_value": "/gA=", "original_value_encoding": "base64",
		"original_headers": []any{map[string]any{"key": "/w==", "key_encoding": "base64", "value": "gA==", "value_encoding": "base64"}},
		"error_class":      "RetriableException",
	} {
		same(t, want, got[name])
	}
}

// TestNoEscapesForHTML: characters such as < are not escaped.
func TestNoEscapesForHTML(t *testing.T) {
	l := some()
	l.Value = []byte("<a&b>")
	if b := l.JSON(); !bytes.Contains(b, l.Value) || bytes.HasSuffix(b, []byte("\n")) {
		t.Errorf("%s", b)
	}
}
