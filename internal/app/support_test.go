package app

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"sluice/internal/laketest"
)

// lake is a lake with members at it.
type lake struct{ laketest.Lake }

func newLake(t *testing.T, sections string) *lake {
	t.Helper()
	return &lake{*laketest.New(t, sections)}
}

// as returns the lake with another configuration.
func (l *lake) as(was, is string) *lake { return &lake{*l.As(was, is)} }

// start runs a member until the test ends. It looks at topics all the time.
func (l *lake) start() *Member {
	l.T.Helper()
	m, err := New(l.T.Context(), laketest.Load(l.T, l.Config), Options{WatchEvery: 200 * time.Millisecond}, l.Logger)
	if err != nil {
		l.T.Fatal(err)
	}
	ctx, stop := context.WithCancel(l.T.Context())
	ended := make(chan error)
	go func() { ended <- m.Run(ctx) }()
	l.T.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			l.T.Error(err)
		}
		m.Close()
	})
	return m
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func read(t *testing.T, path string) string {
	t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
