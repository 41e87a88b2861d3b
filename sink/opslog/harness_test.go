package opslog_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"log/slog"
	"testing"
	"time"

	"sluice/reliability"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

const folder = "_sluice/p/ops/"

func key(seq int64) string { return fmt.Sprintf("%s%020d.json", folder, seq) }

// guard returns a guard with the retries and the breaker of the default configuration.
func guard() *reliability.Guard {
	return reliability.NewGuard("operations log", reliability.Config{
		Backoff:  reliability.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .25},
		Failures: 5, OpenFor: time.Minute, Successes: 3,
	}, slog.New(slog.DiscardHandler), nil)
}

// open returns a new Log that shares no state with others, as if it were in another process.
func open(store objstore.Store) *opslog.Log {
	return opslog.Open(store, "p", opslog.Options{Guard: guard()})
}

func pause(reason string, targets ...opslog.Target) opslog.Operation {
	return opslog.Operation{Operator: "ada", Host: "desk", Reason: reason, Body: opslog.Pause{Targets: targets}}
}

func resume(reason string, targets ...opslog.Target) opslog.Operation {
	return opslog.Operation{Operator: "ada", Reason: reason, Body: opslog.Resume{Targets: targets}}
}

func add(t *testing.T, l *opslog.Log, op opslog.Operation) opslog.Entry {
	t.Helper()
	e, err := l.Append(t.Context(), op, nil)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// entries returns all entries, read with a separate Log.
func entries(t *testing.T, store objstore.Store) (all []opslog.Entry) {
	t.Helper()
	for e, err := range open(store).Entries(context.WithoutCancel(t.Context()), 1) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, e)
	}
	return all
}

func verify(t *testing.T, store objstore.Store, pinned opslog.Head) opslog.Report {
	t.Helper()
	r, err := open(store).Verify(context.WithoutCancel(t.Context()), pinned)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func get(t *testing.T, store objstore.Store, key string) []byte {
	t.Helper()
	r, err := store.Get(t.Context(), key, 0, -1)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	b, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// put writes an object. It replaces an existing one, which the rules of the log forbid.
func put(t *testing.T, store objstore.Store, key string, b []byte) {
	t.Helper()
	if err := store.Delete(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if err := store.Put(t.Context(), key, bytes.NewReader(b), objstore.Replace); err != nil {
		t.Fatal(err)
	}
}
