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

// silent takes connections and never answers.
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

// TestUnavailable: nobody answers. Each call says so within its own time, or ends with its context, and no error has the
// password.
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

// TestForeign: a table is ours if it has what the migrations made that were applied.
func TestForeign(t *testing.T) {
	both := []string{registrations, lastSeen}
	for name, c := range map[string]struct {
		found   found
		foreign string
		lost    bool
	}{
		"nothing":                     {found{}, "", false},
		"whole":                       {found{tables: both, columns: columns, cleanup: true, version: latest}, "", false},
		"whole, versions not for us":  {found{tables: both, columns: columns, cleanup: true, version: -1}, "", false},
		"whole, no versions":          {found{tables: both, columns: columns, cleanup: true}, "", false},
		"first version":               {found{tables: both[:1], columns: first, cleanup: true, version: 1}, "", false},
		"first version without ours":  {found{tables: both[:1], columns: first, cleanup: true}, "has no column status", false},
		"another table":               {found{tables: both[:1], columns: []string{registrations + ".id"}}, "has no column stream_name", false},
		"another in place of ours":    {found{tables: both, columns: append(columns[5:], registrations+".id"), cleanup: true, version: 2}, "has no column stream_name", true},
		"another as the index":        {found{tables: both[1:], columns: []string{lastSeen + ".id"}}, "table consumer_last_seen", false},
		"dropped":                     {found{cleanup: true, version: latest}, "", true},
		"dropped after the first":     {found{version: 1}, "", true},
		"function dropped":            {found{tables: both, columns: columns, version: latest}, "", true},
		"dropped, of a later version": {found{tables: both[1:], columns: columns[9:], cleanup: true, version: latest + 1}, "", true},
		"column dropped":              {found{tables: both, columns: append(first[:5:5], columns[6:]...), cleanup: true, version: latest}, "", true},
		"whole, of a later version":   {found{tables: both, columns: columns, cleanup: true, version: latest + 1}, "", false},
	} {
		err := c.found.foreign()
		if (err != nil) != (c.foreign != "") || err != nil && !strings.Contains(err.Error(), c.foreign) {
			t.Errorf("%s: %v, want %q", name, err, c.foreign)
		}
		if c.found.lost() != c.lost {
			t.Errorf("%s: lost %v", name, !c.lost)
		}
	}
}

// TestPrepare_Panic: a panic while the tables are looked for is an error of the call, and the next call looks again.
func TestPrepare_Panic(t *testing.T) {
	s := &Store{lasting: t.Context()} // without a pool
	for range 2 {
		_, err := s.Members(t.Context())
		if !errors.Is(err, membership.ErrUnavailable) || !errors.As(err, new(*panics.Error)) {
			t.Errorf("got %v", err)
		}
	}
	s.working.Wait()
}
