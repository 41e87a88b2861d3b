package main

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"sluice/test/lab"
)

const (
	// busyLoops is how many processes compete for the cores while tests run.
	busyLoops = 4
	// sideBySide is how many packages run at a time. It is twice as many as with `go test` on two cores, so that tests
	// disturb each other, too, and get more CPU time beside the busy loops.
	sideBySide = 4
	// hung is the time after which a test binary counts as hanging and is ended.
	hung = "30m"
	// busyEnv is the environment variable with which this program is a busy loop.
	busyEnv = "SUITE_BUSY"
)

// slowest returns the ends of the paths of the packages whose tests take longest. These packages start first, so that
// none of them runs alone at the end.
func slowest() []string {
	return []string{"/cmd/connector", "/test/story", "/internal/app", "/sink/delta", "/test/model", "/sink/delta/deltalog"}
}

// A flakeRun is the outcome of one run of all packages, kept as a file so that an interrupted search continues.
type flakeRun struct {
	Passed  int               `json:"passed"`
	Failed  map[string]string `json:"failed"` // the failed tests, each with the path of its log
	Seconds float64           `json:"seconds"`
}

// flakes runs the tests of packages several times beside busy loops and returns whether every test passed each time.
func flakes(ctx context.Context, runs int, packages []string, out io.Writer) (bool, error) {
	folder, err := flakesFolder(ctx)
	if err != nil {
		return false, err
	}
	began := time.Now()
	binaries, err := buildTests(ctx, filepath.Join(folder, "bin"), packages)
	if err != nil {
		return false, err
	}
	fmt.Fprintf(out, "%d test binaries (%.0f s), state and logs in %s\n", len(binaries), time.Since(began).Seconds(), folder)
	stop, err := startBusyLoops(folder)
	if err != nil {
		return false, err
	}
	defer stop()
	return repeat(folder, runs, out, func(n int) (flakeRun, error) {
		return runBinaries(ctx, filepath.Join(folder, fmt.Sprintf("run-%03d", n)), binaries)
	})
}

// repeat makes the runs of which the folder has no outcome. It prints a line for each run and then each failing test,
// and returns whether every test passed each time.
func repeat(folder string, runs int, out io.Writer, run func(n int) (flakeRun, error)) (bool, error) {
	failures, logs, red := map[string]int{}, map[string]string{}, 0
	for n := 1; n <= runs; n++ {
		path := filepath.Join(folder, fmt.Sprintf("run-%03d.json", n))
		r, err := readRun(path)
		earlier := ""
		switch {
		case err == nil:
			earlier = ", earlier"
		case errors.Is(err, os.ErrNotExist):
			if r, err = run(n); err != nil {
				return false, err
			}
			if err := writeRun(path, r); err != nil {
				return false, err
			}
		default:
			return false, err
		}
		fmt.Fprintf(out, "run %d of %d: %d passed, %d failed (%.0f s%s)\n", n, runs, r.Passed, len(r.Failed), r.Seconds, earlier)
		for name, log := range r.Failed {
			failures[name]++
			logs[name] = log
		}
		if len(r.Failed) > 0 {
			red++
		}
	}
	names := slices.SortedFunc(maps.Keys(failures), func(a, b string) int {
		return cmp.Or(failures[b]-failures[a], strings.Compare(a, b))
	})
	for _, name := range names {
		fmt.Fprintf(out, "FAIL %s: %d of %d runs, log %s\n", name, failures[name], runs, logs[name])
	}
	fmt.Fprintf(out, "%d runs, %d with failures, %d failing tests\n", runs, red, len(failures))
	return red == 0, nil
}

func readRun(path string) (r flakeRun, err error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return r, err
	}
	return r, json.Unmarshal(text, &r)
}

// writeRun writes the outcome of a run. It renames a finished file, so that an interrupted write never counts as an
// outcome.
func writeRun(path string, r flakeRun) error {
	text, err := json.MarshalIndent(r, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(path+".new", text, 0o644); err != nil {
		return fmt.Errorf("keep the run: %w", err)
	}
	return os.Rename(path+".new", path)
}

// flakesFolder returns the folder for outcomes of this state of the checkout: its commit and its uncommitted changes.
func flakesFolder(ctx context.Context) (string, error) {
	home, err := lab.Home()
	if err != nil {
		return "", err
	}
	commit, err := output(ctx, "git", "rev-parse", "HEAD")
	if err != nil {
		return "", err
	}
	key := strings.TrimSpace(string(commit))
	changes, err := output(ctx, "git", "diff", "HEAD", "--binary")
	if err != nil {
		return "", err
	}
	added, err := output(ctx, "git", "ls-files", "--others", "--exclude-standard")
	if err != nil {
		return "", err
	}
	for path := range strings.Lines(string(added)) {
		text, err := os.ReadFile(strings.TrimSuffix(path, "\n"))
		if err != nil {
			return "", fmt.Errorf("find the state of the checkout: %w", err)
		}
		changes = append(append(changes, path...), text...)
	}
	if len(changes) > 0 {
		key += fmt.Sprintf("-%x", sha256.Sum256(changes))[:13]
	}
	folder := filepath.Join(home, "flakes", key)
	return folder, os.MkdirAll(filepath.Join(folder, "bin"), 0o755)
}

// A testBinary is the compiled test of a package.
type testBinary struct{ pkg, dir, path string }

// buildTests compiles the tests of packages once.
func buildTests(ctx context.Context, folder string, packages []string) (all []testBinary, err error) {
	args := append([]string{"list", "-f", "{{if or .TestGoFiles .XTestGoFiles}}{{.ImportPath}}\t{{.Dir}}{{end}}"}, packages...)
	text, err := output(ctx, "go", args...)
	if err != nil {
		return nil, err
	}
	for row := range strings.Lines(string(text)) {
		pkg, dir, ok := strings.Cut(strings.TrimSuffix(row, "\n"), "\t")
		if !ok {
			continue
		}
		b := testBinary{pkg, dir, filepath.Join(folder, strings.ReplaceAll(pkg, "/", "_"))}
		if _, err := os.Stat(b.path); err != nil {
			if _, err := output(ctx, "go", "test", "-c", "-ldflags=-w", "-o", b.path, pkg); err != nil {
				return nil, err
			}
		}
		all = append(all, b)
	}
	if len(all) == 0 {
		return nil, errors.New("no package has tests")
	}
	slices.SortStableFunc(all, func(a, b testBinary) int { return cmp.Compare(rank(a.pkg), rank(b.pkg)) })
	return all, nil
}

// rank returns the index of a package in slowest, or the length of slowest for all other packages. Packages start in
// the order of their ranks.
func rank(pkg string) int {
	i := slices.IndexFunc(slowest(), func(end string) bool { return strings.HasSuffix(pkg, end) })
	if i < 0 {
		return len(slowest())
	}
	return i
}

// startBusyLoops starts processes that compete for the cores. stop ends them.
func startBusyLoops(folder string) (stop func(), err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	var loops []*lab.Process
	stop = func() {
		for _, p := range loops {
			_ = p.Kill()
		}
	}
	for i := range busyLoops {
		p, err := lab.StartProcess(fmt.Sprintf("busy-%d", i), filepath.Join(folder, "busy.log"), []string{busyEnv + "=1", "GOMAXPROCS=1"}, self)
		if err != nil {
			stop()
			return nil, err
		}
		loops = append(loops, p)
	}
	return stop, nil
}

// busy uses a core until the process is killed.
func busy() {
	for n := uint64(1); ; n = n*6364136223846793005 + 1442695040888963407 {
		if n == 0 {
			fmt.Print("")
		}
	}
}

// runBinaries runs each test binary once and writes a log of each into folder.
func runBinaries(ctx context.Context, folder string, binaries []testBinary) (flakeRun, error) {
	began := time.Now()
	r := flakeRun{Failed: map[string]string{}}
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return r, err
	}
	tool, err := output(ctx, "go", "tool", "-n", "test2json")
	if err != nil {
		return r, err
	}
	var mu sync.Mutex
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(sideBySide)
	for _, b := range binaries {
		group.Go(func() error {
			path := filepath.Join(folder, filepath.Base(b.path)+".log")
			found, err := b.run(ctx, strings.TrimSpace(string(tool)), path)
			if err != nil {
				return err
			}
			mu.Lock()
			defer mu.Unlock()
			r.Passed += found.passed
			for _, f := range found.failed {
				r.Failed[f.name] = path
			}
			return nil
		})
	}
	err = group.Wait()
	r.Seconds = time.Since(began).Seconds()
	return r, err
}

// run runs the tests of a package as `go test` does.
func (b testBinary) run(ctx context.Context, tool, logPath string) (tests, error) {
	log, err := os.Create(logPath)
	if err != nil {
		return tests{}, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, tool, "-t", "-p", b.pkg, b.path, "-test.v=test2json", "-test.paniconexit0", "-test.timeout="+hung)
	cmd.Dir = b.dir
	cmd.Stderr = log
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return tests{}, err
	}
	if err := cmd.Start(); err != nil {
		return tests{}, fmt.Errorf("run the tests of %s: %w", b.pkg, err)
	}
	found, err := readTests(pipe, log)
	waitErr := cmd.Wait()
	if err = errors.Join(err, ctx.Err()); err != nil {
		return tests{}, fmt.Errorf("run the tests of %s: %w", b.pkg, err)
	}
	if waitErr != nil && len(found.failed) == 0 {
		found.failed = append(found.failed, failure{name: b.pkg + ": " + waitErr.Error()})
	}
	return found, nil
}

// output runs a command and returns its stdout.
func output(ctx context.Context, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	text, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, stderr.Bytes())
	}
	return text, nil
}
