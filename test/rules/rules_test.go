//go:build lab

// Package rules tests the alerts in deploy/ with promtool.
package rules

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v3"

	"sluice/test/lab"
)

// promtool runs promtool in deploy/ and returns its output. ok is false for an exit code other than 0.
func promtool(t *testing.T, args ...string) (out string, ok bool) {
	t.Helper()
	program, err := lab.Install(t.Context(), "promtool")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), program, args...)
	cmd.Dir = folder(t)
	text, err := cmd.CombinedOutput()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return string(text), err == nil
}

func folder(t *testing.T) string {
	t.Helper()
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(root, "deploy")
}

func TestCheckRules(t *testing.T) {
	if out, ok := promtool(t, "check", "rules", "--lint=all", "--lint-fatal", "alerts.yaml"); !ok {
		t.Error(out)
	}
}

// TestRules runs `promtool test rules` once and reports each test of the file as a subtest.
func TestRules(t *testing.T) {
	text, err := os.ReadFile(filepath.Join(folder(t), "alerts_test.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	var file struct{ Tests []struct{ Name string } }
	if err := yaml.Unmarshal(text, &file); err != nil {
		t.Fatal(err)
	}
	out, ok := promtool(t, "test", "rules", "alerts_test.yaml")
	failed := map[string]bool{}
	for _, m := range regexp.MustCompile(`(?m)^ +name: (.*),$`).FindAllStringSubmatch(out, -1) {
		failed[m[1]] = true
	}
	for _, test := range file.Tests {
		t.Run(test.Name, func(t *testing.T) {
			if failed[test.Name] {
				t.Error("failed: see the test above it for what promtool says")
			}
		})
	}
	if known := func(name string) bool {
		return slices.ContainsFunc(file.Tests, func(test struct{ Name string }) bool { return test.Name == name })
	}; !ok {
		for name := range failed {
			if !known(name) {
				t.Errorf("promtool speaks of %q, which is no test", name)
			}
		}
		t.Error(out)
	}
}
