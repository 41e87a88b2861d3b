package app

import (
	"context"
	"errors"
	"testing"

	"sluice/internal/laketest"
)

// TestMember_AwaitsOperations: a member does not begin before it knows the pauses, and ends when its context ends.
func TestMember_AwaitsOperations(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}")
	m, err := New(t.Context(), laketest.Load(t, l.Config), Options{}, l.Logger)
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	ctx, stop := context.WithCancel(t.Context())
	stop()
	for range 64 { // if two cases were ready, select would choose at random
		if err := m.awaitOperations(ctx); !errors.Is(err, context.Canceled) {
			t.Fatalf("it would begin: %v", err)
		}
	}
}
