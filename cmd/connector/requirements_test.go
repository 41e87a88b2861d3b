package main

import (
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// TestRequirementsPage expects docs/requirements.md to have the rows 1 to 44 in their order, each with what fulfils it and
// at least one test. Each test must be declared in the folder that the page names.
func TestRequirementsPage(t *testing.T) {
	t.Parallel()
	named := regexp.MustCompile("`(Test\\w+)` \\(`([a-z0-9/]+)`\\)")
	rows := 0
	for line := range strings.Lines(read(t, "../../docs/requirements.md")) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 2 {
			continue
		}
		row, err := strconv.Atoi(strings.TrimSpace(cells[1]))
		if err != nil {
			continue // a head of a table
		}
		if rows++; row != rows {
			t.Errorf("row %d follows row %d", row, rows-1)
		}
		if len(cells) != 6 || strings.TrimSpace(cells[2]) == "" || strings.TrimSpace(cells[3]) == "" {
			t.Errorf("row %d does not say what is asked for, what fulfils it, and what shows it: %q", row, line)
			continue
		}
		tests := named.FindAllStringSubmatch(cells[4], -1)
		if len(tests) == 0 || strings.Count(cells[4], "`Test") != len(tests) {
			t.Errorf("row %d: a test without its folder, or none: %s", row, cells[4])
		}
		for _, m := range tests {
			if !declaredIn(t, filepath.Join("..", "..", m[2]), m[1]) {
				t.Errorf("row %d: %s has no test %s", row, m[2], m[1])
			}
		}
	}
	if rows != 44 {
		t.Errorf("%d rows, not 44", rows)
	}
	if declaredIn(t, ".", "TestThatDoesNotExist") {
		t.Error("a test that does not exist is found")
	}
}

// declaredIn reports whether a test file of a folder declares a function.
func declaredIn(t *testing.T, folder, name string) bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(folder, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if strings.Contains(read(t, file), "func "+name+"(") && declares(t, file, name) {
			return true
		}
	}
	return false
}
