package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/health"
	"sluice/internal/admin"
	"sluice/internal/fail"
)

func (c *cli) membersCommand() *cobra.Command {
	cmd := c.membersListCommand("members [ID]")
	cmd.AddCommand(c.membersListCommand("list [ID]"), c.membersCleanupCommand())
	return cmd
}

// membersListCommand is what members does, under its own name and as members list.
func (c *cli) membersListCommand(use string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   use,
		Short: "Show who registered, and who is missed",
		Long: `Reads what members wrote into the store of registrations (members.store); no
running connector is needed. With an ID it shows that member alone. Ages are by
the store's clock. What is found decides nothing about the tables: those who
write into that store can write anything.

Exit code 1 if there is a finding, or if the member with that ID is not active.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.showMembers(ctx, args)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) showMembers(ctx context.Context, ids []string) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	id := ""
	if len(ids) > 0 {
		id = ids[0]
	}
	r, closed := admin.Members(ctx, a, id)
	if r == nil {
		return closed
	}
	if err := c.warnForeign(r.Foreign); err != nil {
		return errors.Join(err, closed)
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, r.Members)
	} else {
		err = printMembers(c.stdout, r.Members)
	}
	if err == nil && (len(r.Members.Findings) > 0 || id != "" && !r.Active) {
		err = fail.Found(nil)
	}
	return errors.Join(err, closed)
}

// warnForeign says that the store of registrations has what another program wrote.
func (c *cli) warnForeign(err error) error {
	if err == nil {
		return nil
	}
	_, err = printf(c.stderr, "connector: %v\n", err)
	return err
}

// printMembers writes members for people.
func printMembers(out io.Writer, h health.Members) error {
	tw := newColumns(out)
	if len(h.Members) > 0 {
		_, _ = fmt.Fprintln(tw, "ID\tSTATUS\tACTIVE\tHEARTBEAT\tLAST RECORD\tLAG") // Flush has the error
	}
	for _, m := range h.Members {
		active, last, lag := "no", "-", "-"
		if m.Active {
			active = "yes"
		}
		if m.LastRecord != nil {
			last = m.LastRecord.Format(time.RFC3339)
		}
		if m.Lag != nil {
			lag = fmt.Sprint(*m.Lag)
		}
		_, _ = printf(tw, "%s\t%s\t%s\t%.0fs ago\t%s\t%s\n", m.ID, m.Status, active, m.Seconds, last, lag)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, f := range h.Findings {
		if _, err := printf(out, "%s: %s: %s\n", f.Severity, f.ID, f.Finding); err != nil {
			return err
		}
	}
	_, err := printf(out, "%s\n", h.Reason)
	return err
}

func (c *cli) membersCleanupCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "cleanup --reason TEXT",
		Short: "Remove registrations that nobody renewed, and forget who is missed",
		Long: `Ends the registrations whose time is over, as members do every members.sweep,
and forgets the members that have none, so that nobody misses them any longer.
A member that still runs registers again with its next heartbeat. No data, no
position and no partition is touched. The operations log gets an entry with the
members that are forgotten, before they are.`,
		Args: cobra.NoArgs,
	}
	ch := c.changeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.checkChange(ch); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return c.cleanMembers(ctx, ch)
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the stores, and for an answer")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

func (c *cli) cleanMembers(ctx context.Context, ch *change) (err error) {
	a, err := c.access()
	if err != nil {
		return err
	}
	defer a.Close()
	p, err := admin.PlanCleanup(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := c.warnForeign(p.Foreign); err != nil {
		return err
	}
	if len(p.Gone) == 0 && !ch.dryRun {
		ch.yes = true // there is nothing to ask about
	}
	do, err := c.confirm(ctx, ch, func(w io.Writer) error {
		for _, m := range p.Gone {
			if _, err := printf(w, "forget %s, last seen %s ago\n", m.ID, m.Age.Round(time.Second)); err != nil {
				return err
			}
		}
		_, err := printf(w, "%s without a registration\n", admin.Counting(int64(len(p.Gone)), "member"))
		return err
	})
	if err != nil || !do {
		return err
	}
	result, err := admin.Cleanup(ctx, a, p, ch.by())
	if err != nil {
		return err
	}
	if c.output == "json" {
		return writeJSON(c.stdout, result)
	}
	_, err = printf(c.stdout, "Removed %d stale consumers, forgot %d\n", result.Removed, len(result.Forgotten))
	return err
}
