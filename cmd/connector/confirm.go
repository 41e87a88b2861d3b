package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os/user"
	"strings"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
)

// change has the flags of a command that changes something. The command shows its plan before it acts, and records the
// operator and the reason.
type change struct {
	dryRun, yes      bool
	operator, reason string
}

// by returns the operator and the reason.
func (ch *change) by() admin.By { return admin.By{Operator: ch.operator, Reason: ch.reason} }

// changeFlags adds the flags of a command that changes something.
func (c *cli) changeFlags(cmd *cobra.Command) *change {
	ch := &change{}
	cmd.Flags().BoolVar(&ch.dryRun, "dry-run", false, "show the plan and change nothing")
	cmd.Flags().BoolVarP(&ch.yes, "yes", "y", false, "act without asking")
	cmd.Flags().StringVar(&ch.operator, "operator", "", "your name (default $USER)")
	cmd.Flags().StringVar(&ch.reason, "reason", "", "the reason; the operations log keeps it")
	return ch
}

// checkChange checks the flags, and sets --operator to the system's user if it is not given. A dry run needs no reason.
// With --server the operator has no effect: the token has the name. An error has the exit code 2.
func (c *cli) checkChange(ch *change) error {
	ch.operator, ch.reason = strings.TrimSpace(ch.operator), strings.TrimSpace(ch.reason)
	if ch.operator == "" {
		ch.operator, _ = c.env("USER")
	}
	if u, err := user.Current(); ch.operator == "" && err == nil {
		ch.operator = u.Username
	}
	switch {
	case ch.operator == "" && !c.remote():
		return fail.Usage(errors.New("operator unknown: write --operator NAME, or set USER"))
	case ch.reason == "" && !ch.dryRun:
		return fail.Usage(errors.New(`the reason is missing: write --reason "why"; it is kept in the operations log`))
	case len(ch.operator) > admin.MaxWords || len(ch.reason) > admin.MaxWords:
		return fail.Usage(fmt.Errorf("--operator and --reason may have %d bytes", admin.MaxWords))
	}
	return nil
}

// confirm reports whether the command shall act. With --dry-run it prints the plan to stdout and returns false; with
// --yes it returns true. Otherwise it prints the plan to stderr, which keeps stdout for the result, and asks the
// operator: without a terminal the error has the exit code 2, and after any answer but yes the exit code 4.
func (c *cli) confirm(ctx context.Context, ch *change, show func(w io.Writer) error) (do bool, err error) {
	if ch.dryRun {
		if err := show(c.stdout); err != nil {
			return false, err
		}
		_, err := fmt.Fprintln(c.stderr, "dry run: nothing was changed")
		return false, err
	}
	if !ch.yes && !c.terminal() {
		return false, fail.Usage(errors.New("there is no terminal for a question: write --yes to act, or --dry-run to see the plan"))
	}
	if ch.yes {
		return true, nil
	}
	if err := show(c.stderr); err != nil {
		return false, err
	}
	if _, err := fmt.Fprint(c.stderr, "Do it? [y/N] "); err != nil {
		return false, err
	}
	switch answer, err := c.readLine(ctx); {
	case err != nil:
		return false, fail.Refused(fmt.Errorf("nothing was changed: no answer: %w", err))
	case strings.EqualFold(answer, "y"), strings.EqualFold(answer, "yes"):
		return true, nil
	}
	return false, fail.Refused(errors.New("nothing was changed"))
}

// readLine reads a line from stdin. If ctx ends before, readLine returns, but the read cannot be canceled: its
// goroutine stays until the process exits.
func (c *cli) readLine(ctx context.Context) (string, error) {
	type line struct {
		text string
		err  error
	}
	if c.input == nil {
		c.input = bufio.NewReader(c.stdin)
	}
	input, typed := c.input, make(chan line, 1)
	go func() {
		text, err := input.ReadString('\n')
		typed <- line{strings.TrimSpace(text), err}
	}()
	select {
	case l := <-typed:
		return l.text, l.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
