// Command mutants breaks the code, one rule at a time, and expects a named test to fail.
//
//	go run ./test/mutants [-run REGEXP] [-after NAME]
//
// The list is in list.go and the files beside it. The command works in a temporary copy of the tree. Each test runs
// once on the unchanged code, where it must pass, and then on each of its mutants, where it must fail. A mutant that
// does not compile, or whose quoted code is not found exactly once, counts as not detected.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// mutant is one change that breaks a rule.
type mutant struct {
	name string // the wrong behavior of the changed code
	file string
	old  string // code that the file has exactly once
	new  string // code that replaces it
	pkg  string // package of the test
	test string // regular expression for -run
	args string // flags of the test
}

func main() {
	only := flag.String("run", "", "run the mutants whose name matches")
	after := flag.String("after", "", "go on behind the mutant of this name, to continue a run that was stopped")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *only, *after, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		stop()
		os.Exit(1)
	}
}

func run(ctx context.Context, only, after string, out io.Writer) error {
	choose, err := regexp.Compile(only)
	if err != nil {
		return fmt.Errorf("choose mutants: %w", err)
	}
	mutants := list
	if after != "" {
		at := slices.IndexFunc(list, func(m mutant) bool { return m.name == after })
		if at < 0 {
			return fmt.Errorf("there is no mutant %q", after)
		}
		mutants = list[at+1:]
	}
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return fmt.Errorf("copy the tree: %w", err)
	}
	defer os.RemoveAll(dir)
	if err := copyTree(ctx, dir); err != nil {
		return fmt.Errorf("copy the tree: %w", err)
	}
	passed := make(map[string]error)
	bad, ran := 0, 0
	for _, m := range mutants {
		if !choose.MatchString(m.name) {
			continue
		}
		ran++
		begin := time.Now()
		key := m.pkg + " " + m.test + " " + m.args
		if _, ok := passed[key]; !ok {
			passed[key] = m.passes(ctx, dir)
		}
		result := "red"
		if err := passed[key]; err != nil {
			bad, result = bad+1, m.pkg+" "+m.test+": "+err.Error()
		} else if err := m.fails(ctx, dir); err != nil {
			bad, result = bad+1, m.pkg+" "+m.test+": "+err.Error()
		}
		fmt.Fprintf(out, "%5.1f s  %-72s  %s\n", time.Since(begin).Seconds(), m.name, result)
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("after %d mutants, %d of them not seen: %w", ran, bad, err)
		}
	}
	if bad > 0 || ran == 0 {
		return fmt.Errorf("%d of %d mutants were not seen", bad, ran)
	}
	fmt.Fprintf(out, "%d mutants, all red\n", ran)
	return nil
}

// copyTree copies every file that git tracks or would add.
func copyTree(ctx context.Context, dir string) error {
	names, err := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard").Output()
	if err != nil {
		return fmt.Errorf("list files: %w", err)
	}
	for name := range strings.SplitSeq(strings.TrimRight(string(names), "\x00"), "\x00") {
		body, err := os.ReadFile(name)
		if errors.Is(err, os.ErrNotExist) {
			continue // deleted, but the deletion is not committed
		}
		if err != nil {
			return err
		}
		to := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		info, err := os.Stat(name)
		if err != nil {
			return err
		}
		if err := os.WriteFile(to, body, info.Mode().Perm()|0o200); err != nil {
			return err
		}
	}
	return nil
}

// passes runs the mutant's test on the unchanged code and returns an error unless it passes.
func (m mutant) passes(ctx context.Context, dir string) error {
	failed, text, err := m.run(ctx, dir)
	switch {
	case err != nil:
		return fmt.Errorf("does not run without the mutant: %w: %s", err, text)
	case failed != "":
		return fmt.Errorf("fails without the mutant: %s", failed)
	}
	return nil
}

// fails runs the mutant's test on the changed code and returns an error unless it fails.
func (m mutant) fails(ctx context.Context, dir string) (err error) {
	path := filepath.Join(dir, m.file)
	body, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	if n := bytes.Count(body, []byte(m.old)); n != 1 {
		return fmt.Errorf("the place to change stands %d times in %s", n, m.file)
	}
	if err := os.WriteFile(path, bytes.Replace(body, []byte(m.old), []byte(m.new), 1), 0o644); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.WriteFile(path, body, 0o644)) }()
	failed, text, err := m.run(ctx, dir)
	switch {
	case err != nil:
		return fmt.Errorf("%w: %s", err, text)
	case failed == "":
		return errors.New("GREEN: the test passes although the code is wrong")
	}
	return nil
}

// run runs the test of the mutant. failed is the name of the first test that failed, "" if none did; text is the
// output. The error means that no test ran, or that the run failed outside of a test. To save time, run skips vet and
// the symbols of the linked binary.
func (m mutant) run(ctx context.Context, dir string) (failed, text string, err error) {
	args := append([]string{"test", "-json", "-count=1", "-vet=off", "-ldflags=-s -w", "-timeout=5m", "-run", m.test, m.pkg}, strings.Fields(m.args)...)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	out, runErr := cmd.CombinedOutput()
	ran := false
	for line := range bytes.Lines(out) {
		var e struct{ Action, Test, Output string }
		if json.Unmarshal(line, &e) != nil {
			e.Output = string(line)
		}
		text += e.Output
		if e.Test == "" {
			continue
		}
		ran = true
		if e.Action == "fail" && failed == "" {
			failed = e.Test
		}
		if strings.HasPrefix(e.Output, "panic: ") && failed == "" {
			failed = e.Test + " (panic)"
		}
	}
	switch {
	case !ran:
		return "", last(text), errors.New("no test ran")
	case runErr != nil && failed == "":
		return "", last(text), errors.New("failed outside of a test")
	}
	return failed, "", nil
}

func last(text string) string { return text[max(0, len(text)-500):] }
