package main

import (
	"strings"
	"testing"
)

// TestDocsMaintenance: each line of the script in docs/maintenance.md is in test/oracle/maintain.py, which a test runs
// beside a member.
func TestDocsMaintenance(t *testing.T) {
	t.Parallel()
	script := read(t, "../../test/oracle/maintain.py")
	_, block, _ := strings.Cut(read(t, "../../docs/maintenance.md"), "```python\n")
	block, _, found := strings.Cut(block, "```")
	if !found {
		t.Fatal("no block of Python")
	}
	for line := range strings.Lines(block) {
		if line = strings.TrimSpace(line); line != "" && !strings.Contains(script, line+"\n") {
			t.Errorf("test/oracle/maintain.py has no line %q", line)
		}
	}
}
