//go:build linux

package lab

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// growEnv is the environment variable with which the test binary is a child process. The child takes growBytes of
// memory, prints grown, and waits to be killed.
const (
	growEnv   = "LAB_TEST_GROW"
	growBytes = 32 << 20
	grown     = "grown"
)

func TestMain(m *testing.M) {
	if os.Getenv(growEnv) != "" {
		resident(growBytes)
		_, _ = os.Stdout.WriteString(grown)
		for {
			time.Sleep(time.Hour)
		}
	}
	os.Exit(m.Run())
}

// resident returns n bytes and writes to each page, so that they are resident.
func resident(n int) []byte {
	b := make([]byte, n)
	for i := 0; i < n; i += os.Getpagesize() {
		b[i] = 1
	}
	return b
}

// TestProcess_PeakRSS expects PeakRSS to be the peak of the process itself, not the resident memory of its parent.
func TestProcess_PeakRSS(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	mine := resident(256 << 20)
	const small = 128 << 20 // the child stays below it, even with the race detector
	t.Run("a small child of a large parent", func(t *testing.T) {
		p, err := StartProcess("small", filepath.Join(t.TempDir(), "log"), nil, "sleep", "3600")
		if err != nil {
			t.Fatal(err)
		}
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if peak := p.PeakRSS(); peak <= 0 || peak > small {
			t.Errorf("peak %d bytes, want at most %d; the parent has more than %d", peak, small, len(mine))
		}
	})
	t.Run("a child that grows", func(t *testing.T) {
		p, err := StartProcess("grows", filepath.Join(t.TempDir(), "log"), []string{growEnv + "=1"}, self)
		if err != nil {
			t.Fatal(err)
		}
		for !strings.Contains(p.Tail(), grown) {
			if !p.Running() {
				t.Fatalf("the child ended: %s", p.Tail())
			}
			time.Sleep(time.Millisecond)
		}
		if err := p.Signal(syscall.SIGKILL); err != nil {
			t.Fatal(err)
		}
		if peak := p.PeakRSS(); peak < growBytes || peak > growBytes+small {
			t.Errorf("peak %d bytes, want between %d and %d", peak, growBytes, growBytes+small)
		}
	})
	mine[0] = 1
}
