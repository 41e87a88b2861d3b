package main

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRepeat_Continues expects a search that was interrupted to make only the missing runs, and to count all runs.
func TestRepeat_Continues(t *testing.T) {
	folder := t.TempDir()
	var made []int
	interrupted := errors.New("interrupted")
	run := func(until int) func(int) (flakeRun, error) {
		return func(n int) (flakeRun, error) {
			if n > until {
				return flakeRun{}, interrupted
			}
			made = append(made, n)
			r := flakeRun{Passed: 10, Failed: map[string]string{}, Seconds: 2}
			if n != 2 {
				r.Failed["p TestB"] = "log"
			}
			if n == 3 {
				r.Failed["p TestA"] = "log"
			}
			return r, nil
		}
	}
	var out strings.Builder
	if good, err := repeat(folder, 4, &out, run(2)); good || !errors.Is(err, interrupted) {
		t.Errorf("%v, %v", good, err)
	}
	out.Reset()
	if good, err := repeat(folder, 4, &out, run(4)); good || err != nil {
		t.Errorf("%v, %v", good, err)
	}
	if d := cmp.Diff([]int{1, 2, 3, 4}, made); d != "" {
		t.Errorf("runs (-want +got):\n%s", d)
	}
	want := `run 1 of 4: 10 passed, 1 failed (2 s, earlier)
run 2 of 4: 10 passed, 0 failed (2 s, earlier)
run 3 of 4: 10 passed, 2 failed (2 s)
run 4 of 4: 10 passed, 1 failed (2 s)
FAIL p TestB: 3 of 4 runs, log log
FAIL p TestA: 1 of 4 runs, log log
4 runs, 3 with failures, 2 failing tests
`
	if d := cmp.Diff(want, out.String()); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
}

func TestRepeat_AllPass(t *testing.T) {
	var out strings.Builder
	good, err := repeat(t.TempDir(), 2, &out, func(int) (flakeRun, error) { return flakeRun{Passed: 1}, nil })
	if !good || err != nil || !strings.HasSuffix(out.String(), "2 runs, 0 with failures, 0 failing tests\n") {
		t.Errorf("%v, %v: %s", good, err, &out)
	}
}

func TestRank(t *testing.T) {
	pkgs := []string{"sluice/classify", "sluice/sink/delta", "sluice/sink/delta/scan", "sluice/test/story", "sluice/cmd/connector"}
	slices.SortStableFunc(pkgs, func(a, b string) int { return rank(a) - rank(b) })
	if want := []string{"sluice/cmd/connector", "sluice/test/story", "sluice/sink/delta", "sluice/classify", "sluice/sink/delta/scan"}; !slices.Equal(pkgs, want) {
		t.Errorf("%v, want %v", pkgs, want)
	}
}
