package app

import (
	"context"
	"errors"
	"testing"

	"sluice/internal/laketest"
)

// TestMember_AwaitsOperations: if ctx has ended before the operations log was read, awaitOperations always returns the
// error of ctx, so the member does not begin.
func TestMember_AwaitsOperations(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}")
	m, err := New(t.Context(), laketest.Load(t, l.Config), Options{}, l.Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for range 64 { // tried often, because a select with two ready cases would choose one at random
		if err := m.awaitOperations(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("it would begin: %v", err)
		}
	}
}
