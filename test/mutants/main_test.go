package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestPlacesExist expects each mutant's code exactly once in its file, and its test in its package. Without it only
// `make mutants`, which takes long, would show that the code has changed.
func TestPlacesExist(t *testing.T) {
	for _, m := range list {
		body, err := os.ReadFile(filepath.Join("..", "..", m.file))
		if err != nil {
			t.Error(err)
			continue
		}
		if n := strings.Count(string(body), m.old); n != 1 {
			t.Errorf("%s: the place to change stands %d times in %s", m.name, n, m.file)
		}
		if m.old == m.new {
			t.Errorf("%s changes nothing", m.name)
		}
		if !hasTest(t, m) {
			t.Errorf("%s: %s has no test %s", m.name, m.pkg, m.test)
		}
	}
}

var testFunc = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Example)\w*)\(`)

// hasTest reports whether a package has the test that catches a mutant. It ignores subtests.
func hasTest(t *testing.T, m mutant) bool {
	t.Helper()
	name, _, _ := strings.Cut(m.test, "/")
	files, err := filepath.Glob(filepath.Join("..", "..", m.pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range testFunc.FindAllStringSubmatch(string(body), -1) {
			if regexp.MustCompile(name).MatchString(f[1]) {
				return true
			}
		}
	}
	return false
}
