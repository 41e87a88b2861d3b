// Package deltacheck_test runs the validator, the generator and the readers, and checks the page that a run writes.
package deltacheck_test

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// checkCount is the number of checks that the list must have.
const checkCount = 89

type check struct {
	ID      int      `json:"id"`
	Section string   `json:"section"`
	Says    string   `json:"says"`
	Tests   []string `json:"tests"`
	Absent  string   `json:"absent"`
}

func checks(t *testing.T) []check {
	t.Helper()
	text, err := os.ReadFile("checks.json")
	if err != nil {
		t.Fatal(err)
	}
	var list []check
	if err := json.Unmarshal(text, &list); err != nil {
		t.Fatal(err)
	}
	return list
}

// TestChecks: the list has each check once, and names only tests that exist.
func TestChecks(t *testing.T) {
	list := checks(t)
	if len(list) != checkCount {
		t.Errorf("%d checks, want %d", len(list), checkCount)
	}
	exists := testNames(t)
	named := regexp.MustCompile(`\bTest\w+`)
	for i, c := range list {
		if c.ID != i+1 || c.Section == "" || !strings.HasSuffix(c.Says, ".") {
			t.Errorf("check %d has the number %d, the section %q and the sentence %q", i+1, c.ID, c.Section, c.Says)
		}
		for _, name := range append(named.FindAllString(c.Absent, -1), c.Tests...) {
			if !exists[name] {
				t.Errorf("check %d names %s, which is no test", c.ID, name)
			}
		}
	}
}

// testNames returns the names of the tests of all packages.
func testNames(t *testing.T) map[string]bool {
	t.Helper()
	names, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	err := filepath.WalkDir(filepath.Join("..", ".."), func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, found := range declared.FindAllSubmatch(text, -1) {
			names[string(found[1])] = true
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPage: docs/conformance.md has a row for each check, and each row says what shows the check or why it does not apply.
func TestPage(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("..", "..", "docs", "conformance.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	for _, c := range checks(t) {
		begin := strings.Index(page, fmt.Sprintf("\n| %d | %s |", c.ID, c.Says))
		if begin < 0 {
			t.Errorf("the page lacks check %d; write it again with make conformance WRITE=1", c.ID)
			continue
		}
		row, _, _ := strings.Cut(page[begin+1:], "\n")
		cells := strings.Split(strings.Trim(row, "|"), "|")
		if strings.TrimSpace(strings.Join(cells[2:], "")) == "" {
			t.Errorf("nothing shows check %d: %s", c.ID, row)
		}
		if strings.Contains(row, "wrong") || strings.Contains(row, "findings") {
			t.Errorf("check %d is not green: %s", c.ID, row)
		}
	}
	for _, part := range []string{"make conformance CASES=", "\nSeed ", "\n## Readers\n", "\n## Refused by reader\n", "| Spark |", "| delta-kernel, Java |"} {
		if !strings.Contains(page, part) {
			t.Errorf("the page lacks %q", part)
		}
	}
}
