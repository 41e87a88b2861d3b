package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/terminal"
	"sluice/sink/opslog"
)

// This file has the common steps of the commands that move positions: plan, show the plan, ask, record the intent,
// commit the positions to the table, record the outcome.

// mover is a command that moves positions, while it runs.
type mover struct {
	*cli
	change  *change
	timeout time.Duration
}

// moverCommand adds to a command that moves positions the common flags and steps. plan makes the plan from the
// arguments.
func (c *cli) moverCommand(cmd *cobra.Command, plan func(ctx context.Context, a *admin.Access, args []string) (*admin.MovePlan, error)) *cobra.Command {
	m := &mover{cli: c}
	m.change = c.changeFlags(cmd)
	cmd.Flags().DurationVar(&m.timeout, "timeout", time.Minute, "how long to wait for Kafka and the store in each step")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := c.checkChange(m.change); err != nil {
			return err
		}
		a, err := c.access()
		if err != nil {
			return err
		}
		looking, cancel := context.WithTimeout(cmd.Context(), m.timeout)
		defer cancel()
		p, err := plan(looking, a, args)
		if err != nil {
			return err
		}
		return m.run(cmd.Context(), a, p)
	}
	return cmd
}

// effect describes the effect of a move on the records of its partition.
func effect(s *admin.PlannedMove) string {
	var words []string
	switch {
	case s.From < 0:
		words = append(words, "begins there")
	case s.Repeated > 0:
		words = append(words, fmt.Sprintf("offsets [%d, %d) are read again, at most %d rows repeat", s.To, s.From, s.Repeated))
	case s.LeftOut > 0:
		words = append(words, fmt.Sprintf("offsets [%d, %d) are left out, at most %d records", s.From, s.To, s.LeftOut))
	default:
		words = append(words, "stays")
	}
	if s.Note != "" {
		words = append(words, s.Note)
	}
	return strings.Join(words, "; ")
}

// printPlan prints a plan as a table. After the move it also prints the outcome.
func printPlan(w io.Writer, p *admin.MovePlan) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	_, _ = terminal.Printf(tw, "table %s\n\nPARTITION\tFROM\tTO\tEFFECT\n", p.Table) // Flush returns the error
	for _, s := range p.Moves {
		from := "-"
		if s.From >= 0 {
			from = strconv.FormatInt(s.From, 10)
		}
		_, _ = terminal.Printf(tw, "%s:%d\t%s\t%d\t%s\n", s.Topic, s.Partition, from, s.To, effect(s))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	var b strings.Builder
	if p.Accept {
		b.WriteString("\nThis pipeline accepts the table as its own from now on.\n")
	}
	for _, n := range p.Notes {
		_, _ = terminal.Printf(&b, "\nnote: %s\n", errors.New(n)) // passed as an error, because Printf keeps the lines of an error and indents them
	}
	if p.Outcome == opslog.Committed {
		b.WriteString("\n")
	}
	if _, err := io.WriteString(w, b.String()); err != nil {
		return err
	}
	return printOutcome(w, p)
}

// printOutcome prints the outcome of a committed move, and nothing for a move that is not committed.
func printOutcome(w io.Writer, p *admin.MovePlan) error {
	if p.Outcome != opslog.Committed {
		return nil
	}
	_, err := terminal.Printf(w, "done: version %d of the table, operation %d; members follow within %v\n", *p.Version, p.Operation, opslog.FollowDelay)
	return err
}

// show returns a function that prints the plan or the result in the chosen format.
func (m *mover) show(p *admin.MovePlan) func(io.Writer) error {
	return func(w io.Writer) error {
		if m.output == "json" {
			return writeJSON(w, p)
		}
		return printPlan(w, p)
	}
}

// run shows the plan, asks, and moves the positions.
func (m *mover) run(ctx context.Context, a *admin.Access, p *admin.MovePlan) error {
	if do, err := m.confirm(ctx, m.change, m.show(p)); err != nil || !do {
		return err
	}
	err := admin.Move(ctx, a, p, m.change.by(), m.timeout)
	if p.Unrecorded != nil {
		_, _ = terminal.Printf(m.stderr, "connector: the outcome (%s) is not in the operations log: %v\n", p.Outcome, p.Unrecorded)
	}
	if err != nil {
		return err
	}
	if !m.change.yes && m.output != "json" { // otherwise confirm has already shown the plan
		return printOutcome(m.stdout, p)
	}
	return m.show(p)(m.stdout)
}
