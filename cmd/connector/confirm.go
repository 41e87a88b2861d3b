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

// change is the shape of every command that changes something: what it would do is shown first, who and why are recorded.
type change struct {
	dryRun, yes      bool
	operator, reason string
}

// by is who does it, and why.
func (ch *change) by() admin.By { return admin.By{Operator: ch.operator, Reason: ch.reason} }

// changeFlags adds the flags of a command that changes something.
func (c *cli) changeFlags(cmd *cobra.Command) *change {
	ch := &change{}
	cmd.Flags().BoolVar(&ch.dryRun, "dry-run", false, "show what would be done, and do nothing")
	cmd.Flags().BoolVarP(&ch.yes, "yes", "y", false, "do it without asking")
	cmd.Flags().StringVar(&ch.operator, "operator", "", "who does this (default $USER)")
	cmd.Flags().StringVar(&ch.reason, "reason", "", "why; it is kept in the operations log")
	return ch
}

// maxWords bounds what a person may write into the operations log.
const maxWords = 1000

// checkChange completes the flags: the operator is the user of the system if the flag is not set. The error is exit code 2.
// A dry run needs no reason.
func (c *cli) checkChange(ch *change) error {
	ch.operator, ch.reason = strings.TrimSpace(ch.operator), strings.TrimSpace(ch.reason)
	if ch.operator == "" {
		ch.operator, _ = c.env("USER")
	}
	if u, err := user.Current(); ch.operator == "" && err == nil {
		ch.operator = u.Username
	}
	switch {
	case ch.operator == "":
		return fail.Usage(errors.New("your name is unknown: write --operator NAME"))
	case ch.reason == "" && !ch.dryRun:
		return fail.Usage(errors.New(`the reason is missing: write --reason "why"; it is kept in the operations log`))
	case len(ch.operator) > maxWords || len(ch.reason) > maxWords:
		return fail.Usage(fmt.Errorf("--operator and --reason may have %d bytes", maxWords))
	}
	return nil
}

// confirm finds out whether a command shall do what it is about to do: never with --dry-run, which shows it on stdout;
// always with --yes; else as the person at the terminal says, who is shown it on stderr, so that stdout has the result
// alone. Without a terminal the error is exit code 2, without a yes it is 4.
func (c *cli) confirm(ctx context.Context, ch *change, show func(w io.Writer) error) (do bool, err error) {
	if ch.dryRun {
		if err := show(c.stdout); err != nil {
			return false, err
		}
		_, err := fmt.Fprintln(c.stderr, "dry run: nothing was changed")
		return false, err
	}
	if !ch.yes && !c.terminal() {
		return false, fail.Usage(errors.New("there is no terminal to ask on: write --yes to do it, or --dry-run to see what would be done"))
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

// readLine returns what the person types. The read itself cannot be ended: it stays behind until the process does.
func (c *cli) readLine(ctx context.Context) (string, error) {
	type line struct {
		text string
		err  error
	}
	typed := make(chan line, 1)
	go func() {
		text, err := bufio.NewReader(c.stdin).ReadString('\n')
		typed <- line{strings.TrimSpace(text), err}
	}()
	select {
	case l := <-typed:
		return l.text, l.err
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}
