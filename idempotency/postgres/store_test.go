package postgres

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"

	"sluice/classify"
	"sluice/idempotency"
)

// TestOpen: Open does not connect. Without a server, each attempt fails with an error that has a class, names its
// request and its batch, and does not contain the password.
func TestOpen(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{"postgres://u:" + secret + "@h:port/db", "postgres://u:" + secret + "@h/db?sslrootcert=/nowhere&sslmode=verify-full", "host=" + secret + " port"} {
		if _, err := Open(t.Context(), Options{URL: url}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
	var told []any
	retry := func(ctx context.Context, op func(context.Context) error, about ...any) error {
		told = about
		return errors.Join(op(ctx), op(ctx))
	}
	s, err := Open(t.Context(), Options{URL: "postgres://u:" + secret + "@127.0.0.1:1/db", Retry: retry})
	if err != nil {
		t.Fatalf("nothing is connected at the start: %v", err)
	}
	defer s.Close()
	_, err = s.For("b-1").Through(t.Context(), scope)
	if err == nil || classify.Of(err) != classify.Transient || strings.Contains(err.Error(), secret) || strings.Count(err.Error(), "read the position") != 2 {
		t.Errorf("nobody answers: %v", err)
	}
	if !slices.Equal(told, []any{"batch_id", "b-1"}) {
		t.Errorf("retries name %v", told)
	}
}

// TestStore_Moved: ErrMoved is Fenced, because a retry would not change it.
func TestStore_Moved(t *testing.T) {
	s, err := Open(t.Context(), Options{URL: "postgres://u@127.0.0.1:1/db", Retry: once})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.ready.Store(true)
	err = s.do(t.Context(), "remember", func(context.Context) error { return idempotency.ErrMoved })
	if !errors.Is(err, idempotency.ErrMoved) || classify.Of(err) != classify.Fenced {
		t.Errorf("%v", err)
	}
}

// once is a retry policy with a single attempt.
func once(ctx context.Context, op func(context.Context) error, _ ...any) error { return op(ctx) }
