// Command suite runs one test suite and counts its tests.
//
//	go run ./test/suite [-name NAME] [-dir FOLDER] COMMAND ARGUMENT...
//	go run ./test/suite -fuzz 30s PACKAGE...
//	go run ./test/suite -flakes 20 PACKAGE...
//
// Of `go test` it counts each test or subtest that has no subtests. A skipped test counts as failed, because a test
// that does not run shows nothing. Any other command counts as one test. With -dir the
// command runs in that folder, which may be a module of its own. With -fuzz each fuzz target of the packages
// runs for that long and counts as one test.
//
// With -flakes the tests of the packages run that many times beside busy loops. Their binaries are built once.
// Binaries, the outcome of each run and its logs are kept in the lab's cache, by commit, so that the same command
// continues an interrupted search.
//
// The command prints each failure and then one line with the counts. It appends a line with counts and command to the
// file that $SUITE_COUNTS names, and writes the whole output into the folder that $SUITE_LOGS names.
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

func main() {
	name := flag.String("name", "", "name of the suite")
	dir := flag.String("dir", "", "folder in which the command runs; the current one if empty")
	flaky := flag.Int("flakes", 0, "run the tests of the packages this many times beside busy loops")
	fuzz := flag.Duration("fuzz", 0, "run each fuzz target of the packages for this long")
	flag.Parse()
	if os.Getenv(busyEnv) != "" {
		busy()
	}
	if flag.NArg() == 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var good bool
	var err error
	if *flaky > 0 {
		good, err = flakes(ctx, *flaky, flag.Args(), os.Stdout)
	} else {
		good, err = run(ctx, *name, *dir, *fuzz, flag.Args(), os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
	}
	if err != nil || !good {
		stop()
		os.Exit(1)
	}
}

// run runs a suite and returns whether every test passed.
func run(ctx context.Context, name, dir string, fuzz time.Duration, args []string, out io.Writer) (bool, error) {
	begin := time.Now()
	s := &suite{ctx: ctx, dir: dir, out: out}
	var err error
	switch {
	case fuzz > 0:
		err = s.fuzz(fuzz, args)
	case len(args) > 1 && args[0] == "go" && args[1] == "test":
		err = s.goTest(args)
	default:
		err = s.command(args)
	}
	if err != nil {
		return false, err
	}
	if s.passed+s.failed == 0 {
		return false, errors.New("nothing ran")
	}
	fmt.Fprintf(out, "%-24s %5d passed, %d failed  (%.0f s)\n", name, s.passed, s.failed, time.Since(begin).Seconds())
	if dir != "" {
		args = append([]string{"cd", dir, "&&"}, args...)
	}
	return s.failed == 0, s.keep(name, args)
}

// suite counts the tests of a suite.
type suite struct {
	ctx            context.Context
	dir            string // where its commands run; "" is the current folder
	out            io.Writer
	log            bytes.Buffer // the whole output of its commands
	passed, failed int
}

// command runs a command that counts as one test.
func (s *suite) command(args []string) error {
	cmd := s.exec(args)
	var text bytes.Buffer
	cmd.Stdout, cmd.Stderr = &text, &text
	err := cmd.Run()
	s.log.Write(text.Bytes())
	return s.count(err, args, text.Bytes())
}

// count counts a command as passed or failed by the error err with which it ended, and prints the text of a failed one.
// It returns an error if the command could not run or was interrupted.
func (s *suite) count(err error, args []string, text []byte) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		s.passed++
	case errors.As(err, &exit) && s.ctx.Err() == nil:
		s.failed++
		fmt.Fprintf(s.out, "FAIL %s: %v\n%s", strings.Join(args, " "), err, text)
	default:
		return fmt.Errorf("run %s: %w", args[0], errors.Join(err, s.ctx.Err()))
	}
	return nil
}

// goTest runs `go test` and counts each test or subtest that has no subtests.
func (s *suite) goTest(args []string) error {
	args = slices.Insert(slices.Clone(args), 2, "-json")
	cmd := s.exec(args)
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("run go test: %w", err)
	}
	result, readErr := readTests(pipe, &s.log)
	err = cmd.Wait()
	if readErr != nil || s.ctx.Err() != nil {
		return fmt.Errorf("run go test: %w", errors.Join(readErr, s.ctx.Err()))
	}
	s.log.Write(stderr.Bytes())
	s.passed += result.passed
	s.failed += len(result.failed)
	for _, f := range result.failed {
		fmt.Fprintf(s.out, "FAIL %s\n%s", f.name, f.output)
	}
	if err != nil && len(result.failed) == 0 {
		return s.count(err, args, stderr.Bytes())
	}
	if err != nil { // stderr has errors of the go command itself, such as a package that it cannot load
		fmt.Fprintf(s.out, "%s", stderr.Bytes()[:min(stderr.Len(), 2000)])
	}
	return nil
}

// fuzz runs the fuzz targets of packages one after the other, each for the duration long. Each counts as one test.
func (s *suite) fuzz(long time.Duration, packages []string) error {
	list := s.exec(append([]string{"go", "test", "-list", "^Fuzz"}, packages...))
	list.Stderr = os.Stderr
	out, err := list.Output()
	if err != nil {
		return fmt.Errorf("list fuzz targets: %w", err)
	}
	for _, target := range fuzzTargets(string(out)) {
		// Minimizing an input is limited by a number of tries, so that it does not use up the time for fuzzing.
		err := s.command([]string{
			"go", "test", "-run", "^$", "-fuzz", "^" + target.name + "$", "-fuzztime", long.String(),
			"-fuzzminimizetime", "20x", target.pkg,
		})
		if err != nil {
			return err
		}
	}
	return nil
}

type fuzzTarget struct{ name, pkg string }

// fuzzTargets returns the fuzz targets in the output of `go test -list`. There the names of the targets of a package
// come first, each on a line, and then a line with the path of the package.
func fuzzTargets(text string) []fuzzTarget {
	var targets []fuzzTarget
	var names []string
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 1 && strings.HasPrefix(fields[0], "Fuzz"):
			names = append(names, fields[0])
		case len(fields) > 1 && fields[0] == "ok":
			for _, name := range names {
				targets = append(targets, fuzzTarget{name, fields[1]})
			}
			names = nil
		}
	}
	return targets
}

func (s *suite) exec(args []string) *exec.Cmd {
	cmd := exec.CommandContext(s.ctx, args[0], args[1:]...)
	cmd.Dir = s.dir
	// After an interrupt, the command can still end the processes that it started.
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = time.Minute
	return cmd
}

// keep writes counts and output to $SUITE_COUNTS and $SUITE_LOGS, if they are set.
func (s *suite) keep(name string, args []string) error {
	if path := os.Getenv("SUITE_COUNTS"); path != "" {
		file, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		if err != nil {
			return fmt.Errorf("keep the counts: %w", err)
		}
		_, err = fmt.Fprintf(file, "%d\t%d\t%s\n", s.passed, s.failed, strings.Join(args, " "))
		if err = errors.Join(err, file.Close()); err != nil {
			return fmt.Errorf("keep the counts: %w", err)
		}
	}
	if dir := os.Getenv("SUITE_LOGS"); dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return fmt.Errorf("keep the output: %w", err)
		}
		path := filepath.Join(dir, strings.ReplaceAll(name, " ", "-")+".log")
		if err := os.WriteFile(path, s.log.Bytes(), 0o644); err != nil {
			return fmt.Errorf("keep the output: %w", err)
		}
	}
	return nil
}
