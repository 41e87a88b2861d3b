package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"sluice/reliability/hold"
)

// TestDocsHolds expects docs/guarantees.md to name for each hold reason the tests that show it. Each of these tests
// must exist, and its file must name the reason by its constant or its code.
func TestDocsHolds(t *testing.T) {
	t.Chdir(filepath.Join("..", ".."))
	const begin, end = "\n| hold | shown by |\n|---|---|\n", "\n\n"
	_, rest, ok := strings.Cut(read(t, "docs/guarantees.md"), begin)
	table, _, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatal("docs/guarantees.md has no table of holds")
	}
	constants := map[string]string{}
	for _, m := range regexp.MustCompile(`(?m)^\t(\w+) +Reason = "(\w+)"$`).FindAllStringSubmatch(read(t, "reliability/hold/hold.go"), -1) {
		constants[m[2]] = m[1]
	}
	shown := map[string]int{}
	row, test := regexp.MustCompile("^\\| `(\\w+)` \\|(.+)\\|$"), regexp.MustCompile("`(Test\\w+)` \\(`([a-z_/0-9]+_test\\.go)`\\)")
	for line := range strings.SplitSeq(table, "\n") {
		m := row.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("not a row of a reason and its tests: %s", line)
			continue
		}
		reason := m[1]
		names := regexp.MustCompile(`\b(` + reason + `|hold\.` + constants[reason] + `)\b`)
		if _, again := shown[reason]; again {
			t.Errorf("%s has two rows", reason)
		}
		shown[reason] = 0
		for _, m := range test.FindAllStringSubmatch(m[2], -1) {
			shown[reason]++
			name, file := m[1], m[2]
			if text, err := os.ReadFile(file); err != nil {
				t.Errorf("%s: %v", reason, err)
			} else if !declares(t, file, name) {
				t.Errorf("%s: %s does not declare %s", reason, file, name)
			} else if !names.Match(text) {
				t.Errorf("%s: %s does not name it", reason, file)
			}
		}
	}
	for _, reason := range hold.Reasons() {
		if shown[string(reason)] == 0 {
			t.Errorf("docs/guarantees.md names no test that shows the hold %s", reason)
		}
		delete(shown, string(reason))
	}
	for reason := range shown {
		t.Errorf("docs/guarantees.md has a row for %s, which is no reason", reason)
	}
}
