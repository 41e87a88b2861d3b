package deadletter_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"sluice/reliability/deadletter"
)

// TestSize: Size returns at least the bytes that a dead letter takes in Kafka's encoding, and at most 20 more.
func TestSize(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := forms().Draw(t, "form").Encode(letters(500).Draw(t, "letter"))
		k := kmsg.Record{Key: r.Key, Value: r.Value}
		for _, h := range r.Headers {
			k.Headers = append(k.Headers, kmsg.Header{Key: h.Key, Value: h.Value})
		}
		body := k.AppendTo(nil)
		k.Length = int32(len(body) - 1)
		if n := len(k.AppendTo(nil)); r.Size() < n || r.Size() > n+20 {
			t.Errorf("Size is %d, Kafka's encoding takes %d", r.Size(), n)
		}
	})
}

// TestFitLosesNothing: with any limit, the whole record is in the dead letter and the object that it links together.
func TestFitLosesNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l, f := letters(4000).Draw(t, "letter"), forms().Draw(t, "form")
		limit := rapid.IntRange(1500, 9000).Draw(t, "limit")
		r, o, err := f.Fit(l, limit)
		if errors.Is(err, deadletter.ErrNoRoom) {
			if limit > 3200 {
				t.Fatal(err)
			}
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		if deadletter.BatchOverhead+r.Size() > limit {
			t.Fatalf("%d bytes, limit %d", deadletter.BatchOverhead+r.Size(), limit)
		}
		got, err := deadletter.Parse(r)
		if err != nil {
			t.Fatal(err)
		}
		if o == nil != (got.Link.Key == "") {
			t.Fatalf("object %v, link %v", o, got.Link)
		}
		if o != nil {
			if o.Key != got.Link.Key || o.Key != deadletter.LinkKey(f.Pipeline, l.Source) || got.Link.Bytes != int64(len(o.Bytes)) {
				t.Fatalf("object %s, link %v", o.Key, got.Link)
			}
			if got, err = deadletter.Whole(got, o.Bytes); err != nil {
				t.Fatal(err)
			}
		}
		if !strings.HasPrefix(l.Detail, got.Detail) || !strings.HasPrefix(l.Trace, got.Trace) {
			t.Fatal("the texts are others")
		}
		got.Detail, got.Trace = l.Detail, l.Trace
		same(t, l, got)
	})
}

// TestFitOrder: the smaller the limit is, the more of a dead letter is cut or moved into the object, in the order that
// Fit documents.
func TestFitOrder(t *testing.T) {
	l := some()
	l.Value, l.Detail, l.Trace = bytes.Repeat([]byte("v"), 10_000), strings.Repeat("d", 1000), strings.Repeat("t", 500)
	f := deadletter.Form{Pipeline: "orders"}
	whole := f.Encode(l)
	full := deadletter.BatchOverhead + whole.Size()
	for _, tt := range []struct {
		limit                 int
		trace, detail, inside int
	}{
		{full, 500, 1000, 10_000},
		{full - 1, 250, 1000, 10_000},
		{full - 300, 0, 1000, 10_000},
		{full - 600, 0, 250, 10_000},
		{full - 1300, 0, 0, 10_000},
		{full - 1600, 500, 1000, 0}, // from here on the value is in the object, which makes room for the texts
		{3000, 500, 1000, 0},
		{1700, 0, 250, 0},
		{1400, 0, 0, 0},
	} {
		r, o, err := f.Fit(l, tt.limit)
		if err != nil {
			t.Fatalf("limit %d: %v", tt.limit, err)
		}
		got := mustParse(t, r)
		if len(got.Trace) != tt.trace || len(got.Detail) != tt.detail || len(got.Value) != tt.inside || (o != nil) != (tt.inside == 0) {
			t.Errorf("limit %d: trace %d, detail %d, value %d, object %v", tt.limit, len(got.Trace), len(got.Detail), len(got.Value), o != nil)
		}
	}
	if _, _, err := f.Fit(l, 500); !errors.Is(err, deadletter.ErrNoRoom) || !strings.Contains(err.Error(), "at most 500 bytes") {
		t.Errorf("500 bytes: %v", err)
	}
}

// TestFitTakesKeyAndHeadersAlong: a key or headers that do not fit are moved into the object, after the value.
func TestFitTakesKeyAndHeadersAlong(t *testing.T) {
	for name, change := range map[string]func(*deadletter.Letter){
		"key": func(l *deadletter.Letter) { l.Key = bytes.Repeat([]byte("k"), 5000) },
		"headers": func(l *deadletter.Letter) {
			l.Headers = append(l.Headers, deadletter.Header{Key: strings.Repeat("h", 5000)})
		},
	} {
		l := some()
		change(&l)
		r, o, err := deadletter.Form{Pipeline: "orders"}.Fit(l, 4000)
		if err != nil || o == nil {
			t.Fatalf("%s: %v", name, err)
		}
		got := mustParse(t, r)
		if !got.Link.Record || got.Key != nil || got.Headers != nil || got.Value != nil {
			t.Errorf("%s: %+v", name, got)
		}
		if got, err = deadletter.Whole(got, o.Bytes); err != nil {
			t.Fatal(err)
		}
		same(t, l, got)
	}
}

// TestObject: the object has the form that docs/dead-letters.md shows.
func TestObject(t *testing.T) {
	l := some()
	l.Key, l.Value, l.Headers = []byte("k"), bytes.Repeat([]byte("v"), 3000), []deadletter.Header{{Key: "h"}}
	_, o, err := deadletter.Form{Pipeline: "orders"}.Fit(l, 2500)
	if err != nil {
		t.Fatal(err)
	}
	same(t, "_sluice/orders/letters/c1/user.events.v1/AQIDAAAAAAAAAAAAAAAAAA/3/12345", o.Key)
	same(t, `{"version":"1.0","key":"aw==","headers":[{"key":"aA==","value":null}],"value_bytes":3000}`+"\n"+string(l.Value), string(o.Bytes))
	for limit := 2400; limit > 1800; limit -= 100 {
		if _, again, err := (deadletter.Form{Pipeline: "orders"}).Fit(l, limit); err != nil || !bytes.Equal(o.Bytes, again.Bytes) || o.Key != again.Key {
			t.Errorf("limit %d: the object depends on the limit: %v", limit, err)
		}
	}
}

func TestWholeRefusesAnotherObject(t *testing.T) {
	l := some()
	l.Value = bytes.Repeat([]byte("v"), 3000)
	r, o, err := deadletter.Form{}.Fit(l, 2500)
	if err != nil {
		t.Fatal(err)
	}
	got := mustParse(t, r)
	for _, b := range [][]byte{nil, o.Bytes[:len(o.Bytes)-1], append(bytes.Clone(o.Bytes), 'x')} {
		if _, err := deadletter.Whole(got, b); !errors.Is(err, deadletter.ErrMalformed) {
			t.Errorf("%d bytes: %v", len(b), err)
		}
	}
	plain, err := deadletter.Whole(some(), nil)
	if err != nil {
		t.Fatal(err)
	}
	same(t, some(), plain)
}

func TestTopicName(t *testing.T) {
	for _, tt := range []struct{ template, topic, want string }{
		{"{topic}-dlq", "user.events.v1", "user.events.v1-dlq"},
		{"{topic}.dlq", "escrow.commands", "escrow.commands.dlq"},
		{"dead", "orders", "dead"},
		{"{topic}", "orders", ""},
		{"orders", "orders", ""},
		{"{topic}/dlq", "orders", ""},
		{"", "orders", ""},
		{"..", "orders", ""},
		{"{topic}-dlq", strings.Repeat("a", 245), strings.Repeat("a", 245) + "-dlq"},
		{"{topic}-dlq", strings.Repeat("a", 246), ""},
	} {
		got, err := deadletter.TopicName(tt.template, tt.topic)
		if got != tt.want || (err == nil) != (tt.want != "") {
			t.Errorf("%s of %s: %q, %v", tt.template, tt.topic, got, err)
		}
	}
}
