package postgres

import (
	"context"
	"errors"
	"net"
	"strings"
	"testing"
	"time"

	"sluice/health/membership"
	"sluice/reliability/panics"
)

var scope = membership.Scope{Pipeline: "orders", Group: "sluice"}

const secret = "hunter2"

func TestOpenRefusesBadURLs(t *testing.T) {
	for _, url := range []string{
		"postgres://u:" + secret + "@h:port/db", "postgres://u:" + secret + "@h/db?sslrootcert=/nowhere&sslmode=verify-full", "host=" + secret + " port",
	} {
		if _, err := Open(t.Context(), Options{URL: url, Scope: scope}); err == nil || strings.Contains(err.Error(), secret) {
			t.Errorf("%v", err)
		}
	}
}

// silent starts a server that accepts connections and never answers, and returns its address.
func silent(t *testing.T) (addr string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			t.Cleanup(func() { _ = conn.Close() })
		}
	}()
	return l.Addr().String()
}

// TestUnavailable: without a server, each call fails within its time limit or when its context ends, and no error
// contains the password.
func TestUnavailable(t *testing.T) {
	t.Parallel()
	for what, addr := range map[string]string{"refused": "127.0.0.1:1", "silent": silent(t)} {
		s, err := Open(t.Context(), Options{URL: "postgres://u:" + secret + "@" + addr + "/db?sslmode=disable", Scope: scope})
		if err != nil {
			t.Fatalf("nothing is connected at the start: %v", err)
		}
		if _, err := s.Members(t.Context()); !errors.Is(err, membership.ErrUnavailable) || strings.Contains(err.Error(), secret) {
			t.Errorf("%s: %v", what, err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Beat(ctx, membership.Beat{ID: "a", TTL: time.Minute}); !errors.Is(err, membership.ErrUnavailable) || !errors.Is(err, context.Canceled) {
			t.Errorf("%s, canceled: %v", what, err)
		}
		if err := s.Close(); err != nil {
			t.Error(err)
		}
		if err := s.Leave(t.Context(), "a"); !errors.Is(err, membership.ErrUnavailable) {
			t.Errorf("%s, closed: %v", what, err)
		}
	}
}

// TestPrepare_Panic: if the migration panics, the call returns an error, and the next call migrates again.
func TestPrepare_Panic(t *testing.T) {
	s := &Store{lasting: t.Context()} // without a pool, the migration panics
	for range 2 {
		_, err := s.Members(t.Context())
		if !errors.Is(err, membership.ErrUnavailable) || !errors.As(err, new(*panics.Error)) {
			t.Errorf("got %v", err)
		}
	}
	s.working.Wait()
}
