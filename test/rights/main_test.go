//go:build lab

// Package rights applies the files of deploy/rights to real servers. With all of a file the connector must work. Without
// any one of its statements something must fail, and what no statement allows must be denied.
package rights

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/test/lab"
)

// patience is how long a test waits for an expected event. It does not measure speed.
const patience = 2 * time.Minute

// file returns a file of deploy/rights.
func file(t *testing.T, name string) string {
	t.Helper()
	b, err := os.ReadFile(path(t, name))
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func path(t *testing.T, name string) string {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy", "rights", name)
}

// connector is the binary under test. TestMain compiles it.
var connector string

func TestMain(m *testing.M) {
	code, err := buildAndRun(m)
	if err != nil {
		fmt.Fprintln(os.Stderr, "rights:", err)
		code = 1
	}
	os.Exit(code)
}

// buildAndRun compiles the connector, runs all tests and deletes the binary.
func buildAndRun(m *testing.M) (code int, err error) {
	root, err := lab.Root()
	if err != nil {
		return 0, err
	}
	dir, err := os.MkdirTemp("", "sluice-rights-")
	if err != nil {
		return 0, err
	}
	defer func() { _ = os.RemoveAll(dir) }() // a temporary folder
	connector = filepath.Join(dir, "connector")
	cmd := exec.Command("go", "build", "-o", connector, "./cmd/connector")
	cmd.Dir = root
	if out, err := cmd.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build the connector: %w: %s", err, out)
	}
	return m.Run(), nil
}

// pipeline is a configuration with the environment of its commands.
type pipeline struct {
	binary, config, listen string
	env                    []string
}

// configured writes a configuration. Its topic is orders, with dead letters and their table. more are further sections;
// text in storage and kafka are keys of these sections.
func configured(t *testing.T, storage, kafka, more string, env ...string) *pipeline {
	t.Helper()
	listen, err := lab.FreeAddr()
	if err != nil {
		t.Fatal(err)
	}
	p := &pipeline{binary: connector, config: filepath.Join(t.TempDir(), "config.yaml"), listen: listen, env: env}
	text := fmt.Sprintf(`
pipeline: orders
log: {format: json}
kafka: {session: 6s, %s}
storage: {%s}
retry: {initial: 100ms, max: 1s}
breaker: {open_for: 1s, successes: 1}
defaults: {schema: "id long not null", identity: {by: "field:id"}, commit: {every: 200ms}}
topics: {orders: {}}
health: {listen: %q, canary: {topic: orders-canary, every: 1s}}
ops: {listen: ""%s
shutdown: {drain: 5s}
`, kafka, storage, listen, more)
	if err := os.WriteFile(p.config, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

// runs runs a command of the binary and returns its exit code and output.
func (p *pipeline) runs(t *testing.T, args ...string) (code int, text string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, p.binary, append(args, "--config", p.config)...)
	cmd.Env = append(os.Environ(), p.env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) || ctx.Err() != nil {
		t.Fatalf("%s: %v: %s", strings.Join(args, " "), err, out)
	}
	return cmd.ProcessState.ExitCode(), string(out)
}

// report is what a test reads of /health.
type report struct {
	Holds      []struct{ Reason, Detail string }
	Partitions []struct{ Position int64 }
	Components struct {
		Canary struct {
			Details struct {
				Seen    *time.Time
				Failing *time.Time `json:"failing_since"`
				Error   string
			}
		}
		Members struct{ Status, Reason string }
	}
	text string
}

func (r *report) held(reason string) bool {
	for _, h := range r.Holds {
		if h.Reason == reason {
			return true
		}
	}
	return false
}

// canarySeen reports whether the last canary record was found in its table.
func (r *report) canarySeen() bool {
	c := r.Components.Canary.Details
	return c.Seen != nil && c.Failing == nil
}

// position returns the sum of the positions.
func (r *report) position() (sum int64) {
	for _, p := range r.Partitions {
		sum += max(p.Position, 0)
	}
	return sum
}

// member runs a member until the report of /health is as expected. The test fails if it never is; then it shows the last
// report.
func (p *pipeline) member(t *testing.T, what string, expected func(*report) bool) {
	t.Helper()
	m, err := lab.StartProcess("connector", filepath.Join(t.TempDir(), "log"), p.env, p.binary, "run", "--config", p.config)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = m.Kill() }()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	var last report
	err = lab.Until(ctx, func() (bool, error) {
		if !m.Running() {
			return false, fmt.Errorf("the connector has ended: %s", m.Tail())
		}
		resp, err := http.Get("http://" + p.listen + "/health")
		if err != nil {
			return false, nil // the health server does not listen yet
		}
		defer func() { _ = resp.Body.Close() }()
		var raw json.RawMessage
		if err := json.NewDecoder(resp.Body).Decode(&raw); err != nil {
			return false, err
		}
		last = report{text: string(raw)}
		return json.Unmarshal(raw, &last) == nil && expected(&last), nil
	})
	if err != nil {
		t.Errorf("%s: %v: %s\n%s", what, err, last.text, m.Tail())
		return
	}
	if err := m.Stop(30 * time.Second); err != nil {
		t.Errorf("%s: %v", what, err)
	}
}

// produce writes a record and a bad record to each partition of the topic orders.
func produce(t *testing.T, brokers string, from int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	good := &kgo.Record{Topic: "orders", Value: fmt.Appendf(nil, `{"id": %d}`, from)}
	bad := &kgo.Record{Topic: "orders", Value: []byte(`{"id": "bad`)}
	if err := client.ProduceSync(t.Context(), good, bad).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// without returns a copy of list that lacks the element at i.
func without[T any](list []T, i int) []T {
	return append(append([]T(nil), list[:i]...), list[i+1:]...)
}
