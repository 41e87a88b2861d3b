package lane

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// TestReject_OnlyPoisonHasLetter: a record becomes a dead letter only for an error of class Poison. It does not for an
// error of a dependency or an error without a known class.
func TestReject_OnlyPoisonHasLetter(t *testing.T) {
	guard := reliability.NewGuard("registry", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Millisecond, Max: time.Millisecond}, Failures: 1, OpenFor: time.Hour, Successes: 1,
	}, slog.New(slog.DiscardHandler), nil)
	lookup := func(context.Context) error { return answered(503) }
	down := guard.Try(t.Context(), lookup)
	open := guard.Try(t.Context(), lookup)
	if open == nil || strings.HasPrefix(open.Error(), down.Error()) || !guard.Status().Open {
		t.Fatalf("the breaker is not open: %v", open)
	}
	syntax := classify.Mark(errors.New("json: syntax"), classify.Poison)
	r := &connector.Record{Offset: 3, Value: []byte("x")}
	for name, c := range map[string]struct {
		err    error
		letter bool
	}{
		"poison":               {syntax, true},
		"poison, wrapped":      {fmt.Errorf("row: %w", syntax), true},
		"unknown":              {errors.New("what is this"), false},
		"a 503":                {down, false},
		"an open breaker":      {open, false},
		"a 403":                {answered(403), false},
		"a hold":               {hold.New(hold.SchemaConflict, "no", nil), false},
		"a hold by poison":     {hold.New(hold.SchemaConflict, "no", syntax), false},
		"canceled":             {context.Canceled, false},
		"a position moved":     {classify.Mark(errors.New("moved"), classify.Fenced), false},
		"a chunk that is full": {connector.ErrChunkFull, false},
	} {
		got, pass := NewCandidate(&Block{Partition: connectortest.Partition(0), Session: 4, Letters: true}, r, c.err)
		if (got.Record != nil) != c.letter || pass != c.letter || (got.Allocated > 0) != c.letter {
			t.Errorf("%s: record %v, %d bytes, pass %v", name, got.Record, got.Allocated, pass)
		}
		if got, pass := NewCandidate(&Block{Partition: connectortest.Partition(0), Session: 4}, r, c.err); got.Record != nil || pass || got.Allocated != 0 {
			t.Errorf("%s, of a topic without dead letters: record %v, %d bytes, pass %v", name, got.Record, got.Allocated, pass)
		}
	}
}

func TestClone(t *testing.T) {
	fetched := []byte("keyvalueheader")
	r := &connector.Record{
		Offset: 9, Timestamp: 8, Key: fetched[:3], Value: fetched[3:8],
		Headers: []connector.Header{{Key: "a", Value: fetched[8:]}, {Key: "b", Value: nil}, {Key: "c", Value: []byte{}}},
	}
	c := clone(r)
	if diff := cmp.Diff(r, c); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	for i := range fetched {
		fetched[i] = 'x'
	}
	if string(c.Key) != "key" || string(c.Value) != "value" || string(c.Headers[0].Value) != "header" {
		t.Errorf("it shares memory: %q %q %q", c.Key, c.Value, c.Headers[0].Value)
	}
	if c.Headers[1].Value != nil || c.Headers[2].Value == nil {
		t.Error("null and empty header values are confused")
	}
	_ = append(c.Key, "overwritten"...)
	if string(c.Value) != "value" {
		t.Error("the key can grow into the value")
	}
	if empty := clone(&connector.Record{}); empty.Key != nil || empty.Value != nil {
		t.Error("null became empty")
	}
	if n := Weight(r); n < 14+int64(candidateBytes) {
		t.Errorf("weighs %d", n)
	}
}

// answered is the error of an HTTP response; its value is the status.
type answered int

func (a answered) Error() string { return fmt.Sprintf("HTTP status %d", int(a)) }

func (a answered) HTTPStatusCode() int { return int(a) }
