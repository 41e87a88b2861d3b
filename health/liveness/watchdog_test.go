package liveness_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"sluice/health/liveness"
	"sluice/reliability/pulse"
)

// said collects what the watchdog writes: log lines and dumps.
type said struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// take returns the text since its last call.
func (s *said) take() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	defer s.text.Reset()
	return s.text.String()
}

// lines returns the log lines in a text, without their times.
func lines(text string) (all []string) {
	for line := range strings.Lines(text) {
		if _, rest, ok := strings.Cut(line, "level="); ok {
			all = append(all, strings.TrimSpace(rest))
		}
	}
	return all
}

func exists(path string) bool {
	_, err := os.Lstat(path)
	return err == nil
}

// TestTheLifeOfALoop: when a loop is stalled, the log reports it once, with the stacks of all goroutines. Until the
// loop turns again, Live returns an error and the file is absent.
func TestTheLifeOfALoop(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	synctest.Test(t, func(t *testing.T) {
		var out said
		var loops pulse.Loops
		w := liveness.NewWatchdog(&loops, liveness.NewFile(path), &out, slog.New(slog.NewTextHandler(&out, nil)))
		if err := w.Live(); err != nil {
			t.Error("dead before it began:", err)
		}
		if err := w.Begin(); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		alive := func() {
			t.Helper()
			synctest.Wait()
			if err := w.Live(); err != nil {
				t.Error(err)
			}
			if err := liveness.Fresh(path, time.Now()); err != nil {
				t.Error(err)
			}
		}
		lane := loops.Begin("lane 0")
		alive()
		time.Sleep(time.Hour) // a loop without work does not stall
		alive()
		lane.Work()
		time.Sleep(59 * time.Second)
		alive()
		if text := out.take(); text != "" {
			t.Errorf("said while it was alive: %s", text)
		}

		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantError(t, w.Live(), "loop lane 0 has work and has not turned for 1m0s")
		if exists(path) {
			t.Error("the file of a process that is not alive is there")
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		wantError(t, w.Live(), "loop lane 0 has work and has not turned for 1h1m")
		text := out.take()
		if got := lines(text); len(got) != 1 || got[0] != `ERROR msg="Liveness check FAILED" reason="loop lane 0 has work and has not turned for 1m0s"` {
			t.Errorf("%q", got)
		}
		if !strings.Contains(text, "\ngoroutine ") || !strings.Contains(text, "TestTheLifeOfALoop") {
			t.Errorf("no goroutines: %s", text)
		}
		if exists(path) {
			t.Error("the file of a process that is not alive came back")
		}

		lane.Turn()
		time.Sleep(time.Second)
		alive()
		if got := lines(out.take()); len(got) != 1 || got[0] != `INFO msg="Liveness check passed again" after=1h0m1s` {
			t.Errorf("%q", got)
		}
		time.Sleep(time.Hour) // after the loop has turned again, the next stall is reported
		synctest.Wait()
		if got := lines(out.take()); len(got) != 1 {
			t.Errorf("%q", got)
		}
		lane.End()
		time.Sleep(time.Second)
		alive()
		stop()
		running.Wait()
		if exists(path) {
			t.Error("the file of a process that has ended is there")
		}
	})
}

// TestAFileThatCannotBeWritten: while the file cannot be written, the process stays alive and logs the failure again
// and again, but not each time. Once the file can be written, the log says so.
func TestAFileThatCannotBeWritten(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "mount")
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		var out said
		w := liveness.NewWatchdog(&pulse.Loops{}, liveness.NewFile(filepath.Join(dir, "alive")), &out, slog.New(slog.NewTextHandler(&out, nil)))
		if err := w.Begin(); err != nil {
			t.Fatal(err)
		}
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := os.RemoveAll(dir); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if err := w.Live(); err != nil {
			t.Error(err)
		}
		// The failure is logged at once, after a minute, and then every five minutes.
		if got := lines(out.take()); len(got) != 13 || !strings.HasPrefix(got[0], `WARN msg="the liveness file cannot be written: a probe that looks at it will fail"`) {
			t.Errorf("%q", got)
		}
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		time.Sleep(liveness.Touched)
		synctest.Wait()
		if got := lines(out.take()); len(got) != 1 || !strings.HasPrefix(got[0], `INFO msg="the liveness file is written again" after=1h0m0s`) {
			t.Errorf("%q", got)
		}
		stop()
		running.Wait()
	})
}

// blocked is a writer of which every Write waits, as a standard error without a reader.
type blocked struct{ until chan struct{} }

func (b blocked) Write(p []byte) (int, error) {
	<-b.until
	return len(p), nil
}

// TestABlockedLog: the liveness probe has the right result even while writes to the log block.
func TestABlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := blocked{make(chan struct{})}
		var loops pulse.Loops
		w := liveness.NewWatchdog(&loops, nil, pipe, slog.New(slog.NewTextHandler(pipe, nil)))
		ctx, stop := context.WithCancel(t.Context())
		var running sync.WaitGroup
		running.Go(func() { w.Run(ctx) })
		lane := loops.Begin("lane 0")
		lane.Work()
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		wantError(t, w.Live(), "loop lane 0")
		lane.Turn()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		wantError(t, w.Live())
		close(pipe.until)
		stop()
		running.Wait()
	})
}

// TestEnforce: a process that got the signal to stop ends in time, by itself or because Enforce ends it.
func TestEnforce(t *testing.T) {
	path := filepath.Join(t.TempDir(), "alive")
	for _, c := range []struct {
		name   string
		told   bool
		ends   time.Duration // the time from the signal to the end of the process by itself; 0 if it does not end
		exited bool
	}{
		{"ends in time", true, 27 * time.Second, false},
		{"does not end", true, 0, true},
		{"ends without being told", false, time.Hour, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out said
				w := liveness.NewWatchdog(&pulse.Loops{}, liveness.NewFile(path), &out, slog.New(slog.NewTextHandler(&out, nil)))
				if err := w.Begin(); err != nil {
					t.Fatal(err)
				}
				ctx, tell := context.WithCancel(t.Context())
				defer tell()
				ended, exited := make(chan struct{}), time.Duration(0)
				var enforcing sync.WaitGroup
				began := time.Now()
				enforcing.Go(func() {
					w.Enforce(ctx, 28*time.Second, ended, func() { exited = time.Since(began) })
				})
				if c.told {
					tell()
				}
				if c.ends > 0 {
					time.Sleep(c.ends)
					close(ended)
				}
				enforcing.Wait()
				text := out.take()
				if !c.exited {
					if exited != 0 || text != "" {
						t.Errorf("ended after %v: %s", exited, text)
					}
					return
				}
				if exited != 28*time.Second || exists(path) {
					t.Errorf("ended after %v; the file is there: %v", exited, exists(path))
				}
				if got := lines(text); len(got) != 1 || got[0] != `ERROR msg="shutdown timed out; exiting" after=28s` {
					t.Errorf("%q", got)
				}
				if !strings.Contains(text, "TestEnforce") {
					t.Errorf("no goroutines: %s", text)
				}
			})
		})
	}
}

// TestEnforceABlockedLog: a process whose log has no reader still ends in time.
func TestEnforceABlockedLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		pipe := blocked{make(chan struct{})}
		w := liveness.NewWatchdog(&pulse.Loops{}, nil, pipe, slog.New(slog.NewTextHandler(pipe, nil)))
		ctx, tell := context.WithCancel(t.Context())
		tell()
		began, exited := time.Now(), time.Duration(0)
		w.Enforce(ctx, 28*time.Second, nil, func() { exited = time.Since(began) })
		if exited < 28*time.Second || exited > 30*time.Second {
			t.Errorf("ended after %v", exited)
		}
		close(pipe.until)
	})
}

type full struct{}

func (full) Write([]byte) (int, error) { return 0, errors.New("no space left on device") }

func TestGoroutinesThatCannotBeWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out said
		w := liveness.NewWatchdog(&pulse.Loops{}, nil, full{}, slog.New(slog.NewTextHandler(&out, nil)))
		ctx, tell := context.WithCancel(t.Context())
		tell()
		exited := false
		w.Enforce(ctx, time.Second, nil, func() { exited = true })
		if got := lines(out.take()); !exited || len(got) != 2 || !strings.Contains(got[1], "the goroutines cannot be written down") {
			t.Errorf("%v %q", exited, got)
		}
	})
}
