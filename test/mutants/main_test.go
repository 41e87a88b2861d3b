package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// The list must fit the code: a place that has moved makes `make mutants` fail much later.
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
		if tests := testsOf(t, m.pkg); !slices.ContainsFunc(tests, regexp.MustCompile(m.test).MatchString) {
			t.Errorf("%s: %s has no test %s", m.name, m.pkg, m.test)
		}
	}
}

// testsOf returns the names of a package's tests.
func testsOf(t *testing.T, pkg string) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join("..", "..", pkg, "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		body, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range regexp.MustCompile(`(?m)^func (Test\w+)\(`).FindAllSubmatch(body, -1) {
			names = append(names, string(m[1]))
		}
	}
	return names
}
