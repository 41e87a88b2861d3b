package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"sluice/internal/admin"
	"sluice/internal/terminal"
	"sluice/sink/opslog"
)

// decide plans a decision, shows it, and asks for consent unless --yes is given. Then it records the decision in the
// operations log, and prints the entry. A dry run only shows the plan.
func (c *cli) decide(ctx context.Context, timeout time.Duration, ch *change, plan func(context.Context, *admin.Access) (*admin.Decision, error)) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	a.ReadOnly = ch.dryRun
	defer a.Close()
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	d, err := plan(looking, a)
	if d != nil {
		if err := c.printNotes(d.Notes); err != nil {
			return err
		}
	}
	if err != nil {
		return c.nothingToDo(err)
	}
	do, err := c.confirmDecision(ctx, ch, d.Text, d.Plan)
	if !do {
		return err
	}
	// The time limit begins anew, because the operator may have taken long to answer.
	writing, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	e, err := admin.Record(writing, a, d, ch.by())
	if err != nil {
		return c.nothingToDo(err)
	}
	return c.printDecided(d.Done, e)
}

// confirmDecision asks for consent to a decision, whose plan is text, or plan as JSON. See [cli.confirm].
func (c *cli) confirmDecision(ctx context.Context, ch *change, text string, plan any) (do bool, err error) {
	return c.confirm(ctx, ch, func(w io.Writer) error {
		if ch.dryRun && c.output == "json" {
			return writeJSON(w, plan)
		}
		_, err := terminal.Printf(w, "%s\n", text)
		return err
	})
}

// printDecided prints what was decided, and its entry in the operations log.
func (c *cli) printDecided(done string, e admin.RecordedEntry) error {
	if c.output == "json" {
		return writeJSON(c.stdout, e)
	}
	_, err := terminal.Printf(c.stdout, "%s (operation %d); members follow within %v\n", done, e.Seq, opslog.FollowDelay)
	return err
}

// nothingToDo prints [admin.ErrNothingToDo] to stderr and returns nil; it returns any other error.
func (c *cli) nothingToDo(err error) error {
	if errors.Is(err, admin.ErrNothingToDo) {
		_, err := fmt.Fprintln(c.stderr, admin.ErrNothingToDo)
		return err
	}
	return err
}
