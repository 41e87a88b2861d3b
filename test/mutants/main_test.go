package main

import (
	"os"
	"path/filepath"
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
	}
}
