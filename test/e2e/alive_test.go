//go:build lab && linux

package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
	"unsafe"
)

// livenessFile returns the path of a liveness file in the scene's folder, and the setting that makes a member write it.
func (s *scene) livenessFile() (path string, with setting) {
	path = filepath.Join(s.dir, "alive")
	return path, func(c *settings) { c.health = fmt.Sprintf(", liveness_file: %q", path) }
}

// awaitProbe waits until `connector probe --file path` ends with exit code code and its output contains says.
func (s *scene) awaitProbe(path string, code int, says string) {
	s.t.Helper()
	s.await(fmt.Sprintf("a probe of %s has exit code %d", path, code), func() (bool, error) {
		got, text := s.command("probe", "--file", path)
		return got == code && strings.Contains(text, says), nil
	})
}

// keepsAlive probes a member over HTTP and through its liveness file until the caller calls end. end fails the test if
// any of these probes failed.
func (m *member) keepsAlive(path string) (end func()) {
	stop, done := make(chan struct{}), make(chan string, 1)
	go func() {
		looks := 0
		turn := time.NewTicker(500 * time.Millisecond)
		defer turn.Stop()
		for {
			select {
			case <-stop:
				if looks == 0 {
					done <- "the member was never probed"
				}
				close(done)
				return
			case <-turn.C:
			}
			resp, err := m.get("/health/live")
			if err != nil {
				done <- err.Error()
				return
			}
			_ = resp.Body.Close()
			if resp.StatusCode != http.StatusOK {
				done <- "/health/live: " + resp.Status
				return
			}
			if out, err := exec.CommandContext(m.s.ctx, shared.binary, "probe", "--file", path).CombinedOutput(); err != nil {
				done <- fmt.Sprintf("probe: %v: %s", err, out)
				return
			}
			looks++
		}
	}()
	return func() {
		m.s.t.Helper()
		close(stop)
		if failed := <-done; failed != "" {
			m.s.t.Errorf("%s is not alive: %s", m.Name, failed)
		}
	}
}

// TestMember_Frozen freezes a member with SIGSTOP. It cannot touch its liveness file, so the probe must fail. After it
// thaws, the member must be alive at once, and the watchdog must not count the frozen time against a loop.
func TestMember_Frozen(t *testing.T) {
	t.Parallel()
	frozen(t, 0)
}

// frozen freezes a member, waits until the probe of its liveness file fails, and keeps the member frozen for as long as
// more says. Then it thaws the member, and checks that the member is alive and moves new records into the table.
func frozen(t *testing.T, more time.Duration) {
	t.Helper()
	s := newScene(t, 4)
	path, with := s.livenessFile()
	s.awaitProbe(path, 1, "no file")
	m := s.start(with)
	m.awaitReady()
	s.awaitProbe(path, 0, "ok")
	s.produce(2000)
	s.awaitRows(2000)

	m.freeze()
	s.awaitProbe(path, 1, "is old")
	select {
	case <-time.After(more):
	case <-s.ctx.Done():
	}
	m.thaw()
	s.awaitProbe(path, 0, "ok")
	for range 20 { // 20 probes take 2 s, in which the watchdog makes its first checks after the thaw
		resp, err := m.get("/health/live")
		if err != nil {
			t.Fatal(err)
		}
		_ = resp.Body.Close()
		if resp.StatusCode != http.StatusOK {
			t.Errorf("the member runs again, but is not alive: %s", resp.Status)
		}
		time.Sleep(100 * time.Millisecond)
	}
	s.produce(2000)
	s.awaitRows(4000)
	m.drain()
	s.awaitProbe(path, 1, "no file")
	log, err := os.ReadFile(m.Log)
	if err != nil {
		t.Fatal(err)
	}
	if bytes.Contains(log, []byte("Liveness check FAILED")) {
		t.Errorf("the watchdog counted the frozen time: %s", m.Tail())
	}
	s.checkSets("--readers", "deltalake")
}

// TestAWedgedMemberEnds blocks every goroutine of a member that logs, so that it cannot drain. After SIGTERM the member
// must end by itself with exit code 1, and the next member must continue.
func TestAWedgedMemberEnds(t *testing.T) {
	t.Parallel()
	wedged(t, func(*scene, string, string) {})
}

// wedged starts a member that logs to a pipe without a reader. Once the pipe is full and the member blocks, it calls
// look with the member's URL and the path of its liveness file. Then it sends SIGTERM: the watchdog must end the member
// with exit code 1, and a new member must read the rest of the topic.
func wedged(t *testing.T, look func(s *scene, url, path string)) {
	t.Helper()
	s := newScene(t, 4)
	path, with := s.livenessFile()
	config, listen := s.config(with)
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = read.Close() }()
	// The pipe is as small as possible, so that a few log lines fill it.
	const setPipeSize, bytesThere = 1031, 0x541b // F_SETPIPE_SZ, FIONREAD
	if _, _, failed := syscall.Syscall(syscall.SYS_FCNTL, write.Fd(), setPipeSize, 4096); failed != 0 {
		t.Fatal(failed)
	}
	cmd := exec.CommandContext(s.ctx, shared.binary, "run", "--config", config)
	cmd.Env = append(append(os.Environ(), environment()...), "LOG_LEVEL=debug")
	cmd.Stderr = write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	_ = write.Close()
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	s.awaitProbe(path, 0, "ok")
	s.produce(2000)
	s.await("the pipe is full", func() (bool, error) {
		var n int32
		if _, _, failed := syscall.Syscall(syscall.SYS_IOCTL, read.Fd(), bytesThere, uintptr(unsafe.Pointer(&n))); failed != 0 {
			return false, failed
		}
		return n > 3000, nil
	})
	look(s, "http://"+listen, path)

	told := time.Now()
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	var exit *exec.ExitError
	select {
	case err = <-ended:
	case <-time.After(patience):
		t.Fatal("the member does not end")
	}
	if !errors.As(err, &exit) || exit.ExitCode() != 1 {
		t.Errorf("the member ended with %v, want exit code 1", err)
	}
	if took := time.Since(told); took < 18*time.Second { // shutdown.drain is 10 s, and the watchdog ends the process 8 s later
		t.Errorf("the member ended after %v: it was not blocked", took)
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("the liveness file still exists")
	}
	if text, err := io.ReadAll(read); err != nil || len(text) == 0 {
		t.Errorf("it logged %q: %v", text, err)
	}
	s.untilCurrent()
	s.checkSets("--readers", "deltalake")
}
