package open

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// retrying returns a retry for calls of the fingerprint store, and the log that it writes to.
func retrying() (*fingerprintRetry, *bytes.Buffer) {
	var log bytes.Buffer
	logger := slog.New(slog.NewTextHandler(&log, nil))
	guard := reliability.NewGuard("postgres", reliability.Config{
		Backoff: reliability.Backoff{Initial: time.Millisecond, Max: time.Millisecond}, Failures: 2, OpenFor: time.Millisecond,
	}, logger, nil)
	return &fingerprintRetry{guard: guard, logger: logger}, &log
}

// TestFingerprintRetry_Panic: a panic counts as a failure of the database, so the guard retries the call. The panic is
// logged once, with the stack and without its value.
func TestFingerprintRetry_Panic(t *testing.T) {
	r, log := retrying()
	tries := 0
	err := r.do(t.Context(), func(context.Context) error {
		if tries++; tries < 5 {
			panic("a value of the server")
		}
		return nil
	})
	if err != nil || tries != 5 {
		t.Errorf("%d tries: %v", tries, err)
	}
	if text := log.String(); strings.Count(text, "level=ERROR") != 1 || !strings.Contains(text, "TestFingerprintRetry_Panic") || strings.Contains(text, "a value") {
		t.Errorf("the log has\n%s", text)
	}
}

// TestFingerprintRetry_Refused: if the server refuses a call, the result is a hold at once. Log lines about retries
// have the attributes that the caller passed.
func TestFingerprintRetry_Refused(t *testing.T) {
	r, log := retrying()
	tries := 0
	err := r.do(t.Context(), func(context.Context) error {
		tries++
		return classify.Mark(errors.New("permission denied"), classify.Fatal)
	})
	var held *hold.Error
	if !errors.As(err, &held) || held.Reason != hold.FingerprintsUnavailable || !strings.HasSuffix(held.Why(), "its tables: permission denied") || tries != 1 {
		t.Errorf("%d tries: %v", tries, err)
	}
	err = r.do(t.Context(), func(context.Context) error { return classify.Mark(idempotency.ErrMoved, classify.Fenced) })
	if !errors.Is(err, idempotency.ErrMoved) || errors.As(err, &held) {
		t.Errorf("an answer: %v", err)
	}
	tries = 0
	err = r.do(t.Context(), func(context.Context) error {
		if tries++; tries == 1 {
			return classify.Mark(errors.New("no answer"), classify.Transient)
		}
		return nil
	}, "batch_id", "b-1")
	if text := log.String(); err != nil || tries != 2 || !strings.Contains(text, "msg=retry batch_id=b-1") {
		t.Errorf("%d tries, %v:\n%s", tries, err, text)
	}
}

// TestFingerprints: the URL is read from its file, and no error contains the password in it.
func TestFingerprints(t *testing.T) {
	c, file := &config.Config{}, filepath.Join(t.TempDir(), "url")
	c.Fingerprints.URLFile = file
	r, _ := retrying()
	if _, err := Fingerprints(t.Context(), c, r.guard, r.logger); err == nil {
		t.Error("opened without a file")
	}
	for url, good := range map[string]bool{"postgres://u:hunter2@h:port/db": false, "postgres://u:hunter2@127.0.0.1:1/db": true} {
		if err := os.WriteFile(file, []byte(url), 0o600); err != nil {
			t.Fatal(err)
		}
		s, err := Fingerprints(t.Context(), c, r.guard, r.logger)
		if (err == nil) != good || err != nil && strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%v", err)
		}
		if err == nil {
			s.Close()
		}
	}
}
