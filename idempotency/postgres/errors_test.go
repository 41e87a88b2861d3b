package postgres

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"sluice/classify"
	"sluice/classify/classtest"
	"sluice/idempotency"
	"sluice/reliability"
)

func TestClasses(t *testing.T) {
	known := map[string]error{}
	for _, row := range classtest.Rows("postgres") {
		code, _, _ := strings.Cut(row.Key, " ")
		if classes[code] != 0 || len(code) == 5 || len(code) == 2 && code != "no" {
			known[row.Key] = classified(fmt.Errorf("ask: %w", &pgconn.PgError{Code: (code + "000")[:5], Message: "connection refused"}))
		}
	}
	known["any other"] = classified(&pgconn.PgError{Code: "0A000"})
	known["no answer"] = classified(errors.New("unexpected message"))
	known["the window moved"] = classified(fmt.Errorf("remember: %w", idempotency.ErrMoved))
	classtest.Check(t, "postgres", known)
	for code := range classes {
		found := false
		for _, row := range classtest.Rows("postgres") {
			found = found || strings.HasPrefix(row.Key, code+" ")
		}
		if !found {
			t.Errorf("SQLSTATE %s does not stand in classes.txt", code)
		}
	}
	if classified(nil) != nil {
		t.Error("success has a class")
	}
}

func TestOpen(t *testing.T) {
	const secret = "hunter2"
	for _, url := range []string{"postgres://u:" + secret + "@h:port/db", "postgres://u:" + secret + "@h/db?sslrootcert=/nowhere&sslmode=verify-full", "host=" + secret + " port"} {
		if _, err := Open(t.Context(), Options{URL: url}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
	var log bytes.Buffer // read behind the last use of the guard
	guard := reliability.NewGuard("fingerprints", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Millisecond, Max: time.Millisecond}, Failures: 2, OpenFor: time.Millisecond,
	}, slog.New(slog.NewTextHandler(&log, nil)), nil)
	s, err := Open(t.Context(), Options{URL: "postgres://u:" + secret + "@127.0.0.1:1/db", Guard: guard, Logger: discard()})
	if err != nil {
		t.Fatalf("nothing is connected at the start: %v", err)
	}
	defer s.Close()
	ctx, cancel := contextUntil(t, func() bool { return guard.Status().Open })
	defer cancel()
	_, err = s.For("b-1").Through(ctx, scope)
	if err == nil || classify.Of(err) != classify.Canceled || strings.Contains(err.Error(), secret) {
		t.Errorf("nobody answers: %v", err)
	}
	if st := guard.Status(); st.Err == nil || strings.Contains(st.Err.Error(), secret) {
		t.Errorf("the guard says %v", st.Err)
	}
	if !strings.Contains(log.String(), "msg=retry") || !strings.Contains(log.String(), "batch_id=b-1") {
		t.Errorf("retries do not name their batch:\n%s", log.String())
	}
}

// TestStore_Panic: a panic is a failure of the database, tried again behind the guard, and logged once, with its stack and
// without its value.
func TestStore_Panic(t *testing.T) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	guard := reliability.NewGuard("fingerprints", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Millisecond, Max: time.Millisecond}, Failures: 2, OpenFor: time.Millisecond,
	}, discard(), nil)
	s, err := Open(t.Context(), Options{URL: "postgres://u@127.0.0.1:1/db", Guard: guard, Logger: logger})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	s.ready.Store(true)
	tries := 0
	err = s.do(t.Context(), "look up", func(context.Context) error {
		if tries++; tries < 5 {
			panic("a value of the server")
		}
		return nil
	})
	if err != nil || tries != 5 {
		t.Errorf("%d tries: %v", tries, err)
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "TestStore_Panic") || strings.Contains(text, "a value") {
		t.Errorf("the log has\n%s", text)
	}
}
