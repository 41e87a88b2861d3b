// Command connector moves keyed Kafka records into Delta Lake tables on S3, exactly once.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"
	_ "time/tzdata" // an image without files has no time zones

	"github.com/spf13/cobra"

	"sluice/internal/fail"
	"sluice/internal/terminal"
	"sluice/reliability/panics"
)

// The exit codes of the program. Every command uses them.
const (
	exitOK         = 0
	exitFound      = 1 // the command did its work and found a problem
	exitUsage      = 2 // the command line or the configuration is wrong
	exitDependency = 3 // Kafka, the store or another service could not be used
	exitRefused    = 4 // the requested action would do harm
	// exitInternal means a bug in the program: EX_SOFTWARE in sysexits.h. Go's own code after a panic is 2.
	exitInternal = 70
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process at once
	os.Exit(run(ctx, os.Args[1:], os.Stdout, os.Stderr))
}

// run runs the command in args and returns the exit code. Results go to stdout, everything else to stderr.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	out, errs := terminal.NewScreen(stdout, os.LookupEnv), terminal.NewScreen(stderr, os.LookupEnv)
	defer func() { _, _ = out.Close(), errs.Close() }() // there is no caller that could handle an error of Close
	c := &cli{env: os.LookupEnv, stdin: os.Stdin, stdout: out, stderr: errs, exit: os.Exit}
	c.terminal = func() bool { return terminal.Is(os.Stdin) && terminal.Is(stderr) }
	if !terminal.Is(stdout) {
		c.raw = stdout
	}
	root := c.root()
	// A copy that is never nil, because for nil cobra takes the arguments of the process.
	root.SetArgs(append([]string{}, signed(args)...))
	root.SetOut(out)
	root.SetErr(errs)
	return exitCodeOf(ctx, root, errs)
}

// exitCodeOf runs a command and returns the exit code.
func exitCodeOf(ctx context.Context, root *cobra.Command, stderr io.Writer) int {
	err := panics.Catch(func() error { return root.ExecuteContext(ctx) })
	if caught, ok := errors.AsType[*panics.Error](err); ok { // a panic of this goroutine or, recovered as an error, of another one
		_, _ = fmt.Fprintf(stderr, "connector: internal error: %v\n%s\nThis is a bug: report it with these lines.\n", err, caught.Stack)
		return exitInternal
	}
	if failed, ok := errors.AsType[*fail.Error](err); ok {
		if failed.Err != nil {
			_, _ = terminal.Printf(stderr, "connector: %v\n", failed.Err)
		}
	} else if err != nil { // cobra's own error about flags or arguments
		_, _ = terminal.Printf(stderr, "connector: %v\nRun 'connector help' for usage.\n", err)
	}
	return codeOf(err)
}

// codeOf returns the exit code of an error.
func codeOf(err error) int {
	if err == nil {
		return exitOK
	}
	switch fail.Of(err) {
	case fail.KindFound:
		return exitFound
	case fail.KindDependency:
		return exitDependency
	case fail.KindRefused:
		return exitRefused
	case fail.KindUsage:
	}
	return exitUsage // errors of cobra about flags and arguments have no kind
}
