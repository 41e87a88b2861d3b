package deadletter_test

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// some returns a dead letter in which every field is set, except the link.
func some() deadletter.Letter {
	return deadletter.Letter{
		Source: idempotency.Coordinates{
			Partition: idempotency.Partition{Cluster: "c1", Topic: "user.events.v1", TopicID: idempotency.TopicID{1, 2, 3}, ID: 3},
			Offset:    12345,
		},
		Timestamp: 1705314600123, Key: []byte("user-123"), Value: []byte(`{"id":`),
		Headers: []deadletter.Header{{Key: "trace", Value: []byte("abc")}, {Key: "empty", Value: []byte{}}, {Key: "null"}},
		Class:   classify.Poison, Reason: "required_missing", Detail: "field user_id is missing", Trace: "decode: user_id",
		Retries:      2,
		FirstFailure: time.Date(2024, 1, 15, 10, 30, 0, 0, time.UTC), LastFailure: time.Date(2024, 1, 15, 10, 30, 1, 500, time.UTC),
		Written: time.Date(2024, 1, 15, 10, 30, 2, 250e6, time.UTC),
		Member:  "m-1", Correlation: "corr-1", Batch: "batch-1",
	}
}

// bytesOf draws nil, an empty slice, a text, or any bytes, of at most most bytes.
func bytesOf(most int) *rapid.Generator[[]byte] {
	return rapid.OneOf(
		rapid.Just([]byte(nil)), rapid.Just([]byte{}),
		rapid.Map(rapid.StringN(0, most/4, most), func(s string) []byte { return []byte(s) }),
		rapid.SliceOfN(rapid.Byte(), 1, most),
	)
}

// headerNames are names that a hostile producer would choose.
var headerNames = []string{
	"sluice.version", "sluice.offset", "sluice.link", "sluice.envelope", "__connect.errors.topic", "__connect.errors.exception.message",
	"_dlq.errors.disposition", "", "h", "\xff\xfe",
}

func headersOf() *rapid.Generator[[]deadletter.Header] {
	one := rapid.Custom(func(t *rapid.T) deadletter.Header {
		return deadletter.Header{
			Key:   rapid.OneOf(rapid.SampledFrom(headerNames), rapid.String()).Draw(t, "key"),
			Value: rapid.OneOf(bytesOf(40), rapid.Just([]byte("1.0")), rapid.Just([]byte("json"))).Draw(t, "value"),
		}
	})
	return rapid.SliceOfN(one, 0, 6)
}

func coordinates() *rapid.Generator[idempotency.Coordinates] {
	return rapid.Custom(func(t *rapid.T) idempotency.Coordinates {
		var id idempotency.TopicID
		copy(id[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic id"))
		return idempotency.Coordinates{
			Partition: idempotency.Partition{
				Cluster: rapid.SampledFrom([]string{"", "-", ".", "..", "a/b", "abc-DEF_1", "é"}).Draw(t, "cluster"),
				Topic:   rapid.StringMatching(`[a-zA-Z0-9_-][a-zA-Z0-9._-]{0,20}`).Draw(t, "topic"), TopicID: id,
				ID: rapid.Int32Min(0).Draw(t, "partition"),
			},
			Offset: rapid.Int64Min(0).Draw(t, "offset"),
		}
	})
}

func times() *rapid.Generator[time.Time] {
	return rapid.OneOf(rapid.Just(time.Time{}),
		rapid.Map(rapid.Int64Range(0, 1<<61), func(n int64) time.Time { return time.Unix(0, n).UTC() }))
}

// letters draws letters of this version, without links.
func letters(most int) *rapid.Generator[deadletter.Letter] {
	return rapid.Custom(func(t *rapid.T) deadletter.Letter {
		l := deadletter.Letter{
			Source: coordinates().Draw(t, "source"), Timestamp: rapid.Int64().Draw(t, "timestamp"),
			Key: bytesOf(most).Draw(t, "key"), Value: bytesOf(most).Draw(t, "value"), Headers: headersOf().Draw(t, "headers"),
			Class:  rapid.SampledFrom([]classify.Class{classify.Transient, classify.Poison, classify.Fatal}).Draw(t, "class"),
			Reason: rapid.SampledFrom([]deadletter.Reason{deadletter.Isolated, deadletter.NullKey, "syntax", deadletter.RetriesExhausted}).Draw(t, "reason"),
			Detail: rapid.StringN(0, 250, 1000).Draw(t, "detail"), Trace: rapid.StringN(0, 120, 500).Draw(t, "trace"),
			Retries:      rapid.IntRange(0, 1<<31-1).Draw(t, "retries"),
			FirstFailure: times().Draw(t, "first"), LastFailure: times().Draw(t, "last"),
			Member: rapid.String().Draw(t, "member"), Correlation: rapid.String().Draw(t, "correlation"), Batch: rapid.String().Draw(t, "batch"),
		}
		l.Written = time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, "written")).UTC()
		if len(l.Headers) == 0 {
			l.Headers = nil
		}
		return l
	})
}

func forms() *rapid.Generator[deadletter.Form] {
	return rapid.Custom(func(t *rapid.T) deadletter.Form {
		return deadletter.Form{
			Pipeline: rapid.SampledFrom([]string{"orders", "a.b", "p-1"}).Draw(t, "pipeline"),
			Envelope: rapid.SampledFrom([]deadletter.Envelope{"", deadletter.EnvelopeHeaders, deadletter.EnvelopeJSON}).Draw(t, "envelope"),
		}
	})
}

func same(t interface {
	Helper()
	Errorf(string, ...any)
}, want, got any,
) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("differs (-want +got):\n%s", d)
	}
}

func mustParse(t *testing.T, r deadletter.Record) deadletter.Letter {
	t.Helper()
	l, err := deadletter.Parse(r)
	if err != nil {
		t.Fatal(err)
	}
	return l
}
