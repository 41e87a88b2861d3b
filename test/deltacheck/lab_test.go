//go:build lab

package deltacheck_test

import (
	"flag"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"sluice/test/lab"
)

var (
	cases = flag.Int("conformance.cases", shortCases, "the number of random tables")
	seed  = flag.Uint64("conformance.seed", 1, "the seed of the random tables")
	page  = flag.Bool("conformance.write", false, "write docs/conformance.md")
)

// TestValidator: the validator accepts a right table, and of each broken one it reports exactly the check in question.
func TestValidator(t *testing.T) {
	out, err := lab.Python(t.Context(), "deltacheck/selftest.py", t.TempDir())
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// TestConformance: the validator has no finding in tables of random schemas and rows, and each reader returns the expected
// rows, with and without predicates.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	args := []string{"run", "./gen", "-dir", dir, "-cases", strconv.Itoa(*cases), "-seed", strconv.FormatUint(*seed, 10)}
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput() //nolint:gosec // arguments are numbers and a folder
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	t.Run("validator", func(t *testing.T) {
		tables, err := filepath.Glob(filepath.Join(dir, "*", "_delta_log"))
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"--json", filepath.Join(dir, "validator.json")}
		for _, log := range tables {
			args = append(args, filepath.Dir(log))
		}
		out, err := lab.Python(t.Context(), "deltacheck/deltacheck.py", args...)
		if err != nil {
			t.Errorf("%v: %s", err, out)
		}
		t.Logf("%s", out)
	})
	for _, reader := range readers() {
		t.Run(reader, func(t *testing.T) { read(t, dir, reader) })
	}
	if !*page || t.Failed() {
		return
	}
	root, err := lab.Root()
	if err != nil {
		t.Fatal(err)
	}
	args = []string{"--run", dir, "--out", filepath.Join(root, "docs", "conformance.md")}
	if out, err := lab.Python(t.Context(), "deltacheck/page.py", args...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// read lets one reader read all tables.
func read(t *testing.T, dir, reader string) {
	t.Helper()
	run, args := lab.Python, []string{"--cases", dir, "--reader", reader, "--out", filepath.Join(dir, reader+".jsonl")}
	switch reader {
	case "spark": // a job of Spark takes as long as a hundred queries of the others
		run, args = lab.Spark, append(args, "--predicates", "3")
	case "kernel":
		program, err := lab.Install(t.Context(), "kernel")
		if err != nil {
			t.Fatal(err)
		}
		t.Setenv("LAB_KERNEL", strings.TrimSpace(program))
	}
	out, err := run(t.Context(), "deltacheck/matrix.py", args...)
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}
