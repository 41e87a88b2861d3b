//go:build lab

package e2e

import (
	"io/fs"
	"path/filepath"
	"strings"
	"testing"

	"sluice/test/lab"
)

// TestDemo expects the demo to fill a local table without further input, and to refuse a folder that already has a
// table.
func TestDemo(t *testing.T) {
	s := newScene(t, 1)
	dir := filepath.Join(s.dir, "demo")
	code, text := s.command("demo", "--records", "20000", "--dir", dir)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, tail([]byte(text)))
	}
	t.Log(text)
	table := ""
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && d.Name() == "_delta_log" {
			table = filepath.Dir(path)
		}
		return err
	})
	if err != nil || table == "" {
		t.Fatalf("no table in %s: %v", dir, err)
	}
	if !strings.Contains(text, "20000") && !strings.Contains(text, "20,000") && !strings.Contains(text, "20 000") {
		t.Error("the demo does not print the number of rows")
	}
	out, err := lab.Python(s.ctx, "oracle/count.py", table, "20000")
	t.Logf("%s", out)
	if err != nil {
		t.Errorf("readers disagree with the demo: %v", err)
	}
	if code, text := s.command("demo", "--records", "10", "--dir", dir); code != 4 {
		t.Errorf("a second demo in the same folder: exit code %d, want 4: %s", code, tail([]byte(text)))
	}
}
