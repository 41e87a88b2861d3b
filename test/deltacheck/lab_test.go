//go:build lab

package deltacheck_test

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"sluice/test/lab"
)

var (
	cases = flag.Int("conformance.cases", shortCases, "the number of random tables")
	seed  = flag.Uint64("conformance.seed", 1, "the seed of the random tables")
	page  = flag.Bool("conformance.write", false, "write docs/conformance.md")
	kept  = flag.String("conformance.dir", "", "the folder of tables and results, which a later run continues; a temporary one if empty")
)

// TestValidator: the validator accepts a right table, and of each broken one it reports exactly the check in question.
func TestValidator(t *testing.T) {
	out, err := lab.Python(t.Context(), "deltacheck/selftest.py", t.TempDir())
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// TestRefusals: the readers answer wrongly for tables of other programs, too, where the page says that a reader is wrong.
func TestRefusals(t *testing.T) {
	if slices.Contains(readers(), "kernel") {
		setKernel(t)
	}
	out, err := lab.Python(t.Context(), "deltacheck/proofs.py", t.TempDir())
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// TestConformance: the validator has no finding in tables of random schemas and rows, and each reader returns the expected
// rows, with and without predicates.
func TestConformance(t *testing.T) {
	dir := tables(t)
	t.Run("validator", func(t *testing.T) {
		// Each table has its rows beside it. The damaged copies that readers make have not.
		rows, err := filepath.Glob(filepath.Join(dir, "*", "_delta_log"))
		if err != nil {
			t.Fatal(err)
		}
		args := []string{"--json", filepath.Join(dir, "validator.json")}
		for _, log := range rows {
			table := filepath.Dir(log)
			if _, err := os.Stat(table + ".json"); err == nil {
				args = append(args, table)
			}
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
	args := []string{"--run", dir, "--out", filepath.Join(root, "docs", "conformance.md")}
	if out, err := lab.Python(t.Context(), "deltacheck/page.py", args...); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
}

// tables writes the tables and returns their folder. A folder with tables of the same cases and seed stays as it is, so
// that a run that was stopped continues.
func tables(t *testing.T) string {
	t.Helper()
	dir := *kept
	if dir == "" {
		dir = t.TempDir()
	}
	if text, err := os.ReadFile(filepath.Join(dir, "cases.json")); err == nil {
		var made struct {
			Seed   uint64 `json:"seed"`
			Random int    `json:"random"`
		}
		if err := json.Unmarshal(text, &made); err != nil {
			t.Fatal(err)
		}
		if made.Seed != *seed || made.Random != *cases {
			t.Fatalf("%s has %d cases of seed %d: name another folder, or delete it", dir, made.Random, made.Seed)
		}
		return dir
	}
	args := []string{"run", "./gen", "-dir", dir, "-cases", strconv.Itoa(*cases), "-seed", strconv.FormatUint(*seed, 10)}
	out, err := exec.CommandContext(t.Context(), "go", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	t.Logf("%s", out)
	return dir
}

// read lets one reader read all tables.
func read(t *testing.T, dir, reader string) {
	t.Helper()
	run, args := lab.Python, []string{"--cases", dir, "--reader", reader, "--out", filepath.Join(dir, reader+".jsonl")}
	switch reader {
	case "spark": // each of its predicates takes as long as a hundred queries of the others
		run, args = lab.Spark, append(args, "--predicates", "2")
	case "kernel":
		setKernel(t)
	}
	out, err := run(t.Context(), "deltacheck/matrix.py", args...)
	if err != nil {
		t.Errorf("%v: %s", err, out)
	}
	t.Logf("%s", out)
}

// setKernel tells scripts where the program with delta-kernel is.
func setKernel(t *testing.T) {
	t.Helper()
	program, err := lab.Install(t.Context(), "kernel")
	if err != nil {
		t.Fatal(err)
	}
	t.Setenv("LAB_KERNEL", strings.TrimSpace(program))
}
