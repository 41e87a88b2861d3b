//go:build lab

package pods

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// kubelet runs one pod as Kubernetes does: it runs the probes of the manifest, and restarts the container when it ends
// or when a startup or liveness probe has failed too often.
type kubelet struct {
	t         *testing.T
	name      string
	manifest  manifest
	container string // the name that podman gives the container

	mu       sync.Mutex
	pid      int
	ready    bool
	restarts []restart
	stopping bool

	end  context.CancelFunc
	done chan struct{}
}

// restart is why the kubelet restarted a container.
type restart struct {
	why    string
	exit   int
	killed bool // the kubelet ended the container, because a probe failed
}

// state is what podman knows of a container.
type state struct {
	Running       bool
	Pid, ExitCode int
}

// play starts a pod and its kubelet. The pod is removed at the end of the test.
func play(t *testing.T, name string, m manifest) *kubelet {
	t.Helper()
	file := filepath.Join(t.TempDir(), name+".yaml")
	if err := os.WriteFile(file, []byte(m.play), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := shared.podman.Run(t.Context(), "kube", "play", file); err != nil {
		t.Fatal(err)
	}
	k := &kubelet{t: t, name: name, manifest: m, container: name + "-connector", done: make(chan struct{})}
	s, err := k.inspect(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	k.pid = s.Pid
	ctx, end := context.WithCancel(context.WithoutCancel(t.Context()))
	k.end = end
	k.note("started")
	go func() {
		defer close(k.done)
		if err := k.run(ctx); err != nil && ctx.Err() == nil {
			t.Errorf("kubelet of %s: %v", name, err)
		}
	}()
	t.Cleanup(func() {
		k.end()
		<-k.done
		if t.Failed() {
			t.Logf("the log of %s:\n%s", name, k.log())
		}
		if _, err := shared.podman.Run(context.WithoutCancel(t.Context()), "kube", "down", file); err != nil {
			t.Error(err)
		}
	})
	return k
}

// note writes a line of the transcript.
func (k *kubelet) note(format string, args ...any) {
	k.t.Logf("%s  %s: %s", time.Now().Format("15:04:05.0"), k.name, fmt.Sprintf(format, args...))
}

// log returns the end of what the container wrote.
func (k *kubelet) log() string {
	text, err := shared.podman.Logs(context.WithoutCancel(k.t.Context()), k.container)
	if err != nil {
		return err.Error()
	}
	return text
}

func (k *kubelet) inspect(ctx context.Context) (s state, err error) {
	text, err := shared.podman.Run(ctx, "inspect", "--format", "{{json .State}}", k.container)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal([]byte(text), &s)
}

// run watches containers of the pod, one after the other, until ctx ends.
func (k *kubelet) run(ctx context.Context) error {
	for {
		why, err := k.watch(ctx)
		if err != nil || ctx.Err() != nil {
			return err
		}
		k.mu.Lock()
		k.ready = false
		stopping := k.stopping
		k.mu.Unlock()
		if stopping {
			return nil
		}
		r := restart{why: why, killed: why != ended}
		if r.killed {
			// SIGTERM, and SIGKILL after the grace period: a process that is suspended does not end before.
			if _, err := k.stop(ctx); err != nil {
				return err
			}
		}
		s, err := k.awaitEnd(ctx)
		if err != nil {
			return err
		}
		r.exit = s.ExitCode
		if s, err = k.start(ctx); err != nil {
			return err
		}
		k.note("restarted: %s (exit code %d)", why, r.exit)
		k.mu.Lock()
		k.pid = s.Pid
		k.restarts = append(k.restarts, r)
		k.mu.Unlock()
	}
}

// start starts the container again. podman stops the pod's own container after the last other one has ended, and a start
// at that moment fails; the kubelet repeats it, too.
func (k *kubelet) start(ctx context.Context) (s state, err error) {
	var failed error
	err = until(ctx, func() (bool, error) {
		if _, failed = shared.podman.Run(ctx, "start", k.container); failed == nil {
			s, failed = k.inspect(ctx)
		}
		return failed == nil && s.Running, nil
	})
	return s, errors.Join(err, failed)
}

// stop ends the container as Kubernetes ends a pod.
func (k *kubelet) stop(ctx context.Context) (string, error) {
	grace := k.manifest.Spec.Template.Spec.TerminationGracePeriodSeconds
	return shared.podman.Run(ctx, "stop", "--time", fmt.Sprint(grace), k.container)
}

// awaitEnd waits until podman knows that the container has ended.
func (k *kubelet) awaitEnd(ctx context.Context) (s state, err error) {
	err = until(ctx, func() (bool, error) {
		s, err = k.inspect(ctx)
		return !s.Running, err
	})
	return s, err
}

// ended is the reason of a restart after the process has ended by itself.
const ended = "the process ended"

// watch runs the probes of a container. It returns why the container must be started again.
func (k *kubelet) watch(ctx context.Context) (why string, err error) {
	c := k.manifest.Spec.Template.Spec.Containers[0]
	began := time.Now()
	if why, err := k.repeat(ctx, "startup", c.StartupProbe, func(ok bool) bool { return ok }); why != "" || err != nil || ctx.Err() != nil {
		return why, err
	}
	k.note("startup probe succeeded after %.1f s", time.Since(began).Seconds())
	both, cancel := context.WithCancel(ctx)
	defer cancel()
	readiness := make(chan error, 1)
	go func() {
		misses := 0
		_, err := k.repeat(both, "readiness", c.ReadinessProbe, func(ok bool) bool {
			misses++
			if ok {
				misses = 0
			}
			k.mu.Lock()
			defer k.mu.Unlock()
			if was := k.ready; ok != was && (ok || misses >= c.ReadinessProbe.FailureThreshold) {
				k.ready = ok
				k.note("ready: %t", ok)
			}
			return false
		})
		readiness <- err
	}()
	why, err = k.repeat(ctx, "liveness", c.LivenessProbe, func(bool) bool { return false })
	cancel()
	return why, errors.Join(err, <-readiness)
}

// repeat runs a probe until its result is enough. It returns a reason if the process ends or, unless the probe is that
// of readiness, if the probe fails too often.
func (k *kubelet) repeat(ctx context.Context, kind string, p probe, enough func(ok bool) bool) (why string, err error) {
	port, err := k.manifest.Spec.Template.Spec.port(p)
	if err != nil {
		return "", err
	}
	client := &http.Client{Timeout: time.Duration(max(1, p.TimeoutSeconds)) * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	url := fmt.Sprintf("http://127.0.0.1:%d%s", port, p.HTTPGet.Path)
	turn := time.NewTicker(time.Duration(max(1, p.PeriodSeconds)) * time.Second)
	defer turn.Stop()
	gone := time.NewTicker(100 * time.Millisecond)
	defer gone.Stop()
	for failures := 0; ; {
		failure := get(ctx, client, url)
		if ctx.Err() != nil {
			return "", nil
		}
		if !k.alive() {
			return ended, nil
		}
		if enough(failure == "") {
			return "", nil
		}
		failures++
		if failure == "" {
			failures = 0
		} else if kind == "liveness" {
			k.note("liveness probe failed %d of %d: %s", failures, p.FailureThreshold, failure)
		}
		if failures >= p.FailureThreshold && kind != "readiness" {
			return fmt.Sprintf("the %s probe failed %d times: %s", kind, failures, failure), nil
		}
		for waiting := true; waiting; {
			select {
			case <-ctx.Done():
				return "", nil
			case <-turn.C:
				waiting = false
			case <-gone.C:
				if !k.alive() {
					return ended, nil
				}
			}
		}
	}
}

// get returns why a probe failed, "" if it succeeded. As for the kubelet, each status from 200 to 399 is a success.
func get(ctx context.Context, client *http.Client, url string) (failure string) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err.Error()
	}
	resp, err := client.Do(req)
	if err != nil {
		return err.Error()
	}
	_ = resp.Body.Close() // only the status counts
	if resp.StatusCode < 200 || resp.StatusCode >= 400 {
		return resp.Status
	}
	return ""
}

// alive reports whether the container's process exists. A zombie has ended.
func (k *kubelet) alive() bool {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", k.process()))
	if err != nil {
		return false
	}
	_, fields, _ := strings.Cut(string(text), ") ")
	return !strings.HasPrefix(fields, "Z") && !strings.HasPrefix(fields, "X")
}

// process returns the id of the container's process, in the namespace of this machine.
func (k *kubelet) process() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.pid
}

func (k *kubelet) signal(sig syscall.Signal) {
	k.t.Helper()
	if err := syscall.Kill(k.process(), sig); err != nil {
		k.t.Fatal(err)
	}
	k.note("the test sends %v", sig)
}

// terminate ends the pod for good, and expects that the member drains within the grace period.
func (k *kubelet) terminate() {
	k.t.Helper()
	k.mu.Lock()
	k.stopping = true
	k.mu.Unlock()
	began := time.Now()
	if _, err := k.stop(k.t.Context()); err != nil {
		k.t.Fatal(err)
	}
	<-k.done
	s, err := k.awaitEnd(k.t.Context())
	if err != nil || s.ExitCode != 0 {
		k.t.Errorf("%s drained with exit code %d (%v):\n%s", k.name, s.ExitCode, err, k.log())
	}
	k.note("terminated: exit code %d after %.1f s", s.ExitCode, time.Since(began).Seconds())
}

// running returns an error if the kubelet has given up.
func (k *kubelet) running() error {
	select {
	case <-k.done:
		return errors.New("its kubelet has ended")
	default:
		return nil
	}
}

// isReady reports whether the readiness probe succeeds.
func (k *kubelet) isReady() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ready
}

// awaitReady waits until the readiness probe succeeds.
func (k *kubelet) awaitReady() {
	k.t.Helper()
	await(k.t, k.name+" is ready", func() (bool, error) { return k.isReady(), k.running() })
}

// awaitRestart waits until the kubelet has restarted the container n times in all, and returns the last reason.
func (k *kubelet) awaitRestart(n int) (r restart) {
	k.t.Helper()
	await(k.t, fmt.Sprintf("%s has restarted %d times", k.name, n), func() (bool, error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if len(k.restarts) < n {
			return false, k.running()
		}
		r = k.restarts[n-1]
		return true, nil
	})
	return r
}
