//go:build lab

package e2e

import (
	"errors"
	"io"
	"os/exec"
	"strings"

	"sluice/test/lab"
)

// lints passes the member's /metrics to promtool. A warning fails the test.
func (m *member) lints() {
	m.s.t.Helper()
	resp, err := m.get("/metrics")
	if err != nil {
		m.s.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		m.s.t.Fatal(err)
	}
	promtool, err := lab.Install(m.s.ctx, "promtool")
	if err != nil {
		m.s.t.Fatal(err)
	}
	cmd := exec.CommandContext(m.s.ctx, promtool, "check", "metrics")
	cmd.Stdin = strings.NewReader(string(text))
	out, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		m.s.t.Fatal(err)
	}
	if err != nil || len(out) > 0 {
		m.s.t.Errorf("promtool check metrics: %v\n%s", err, out)
	}
	if !strings.Contains(string(text), "kafka_consumer_lag{") {
		m.s.t.Errorf("the scrape has no kafka_consumer_lag:\n%s", text)
	}
}
