package main

import (
	"context"
	"errors"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/terminal"
)

func (c *cli) membersCleanupCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "cleanup --reason TEXT",
		Short: "Remove expired registrations, and forget missing members",
		Long: `Removes expired registrations, as members do every members.sweep, and forgets
the members without a registration, so that they are no longer reported as
missing. A member that still runs registers again with its next heartbeat. The
command touches no data, position or partition. It first writes an entry with
the forgotten members to the operations log.`,
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
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the stores, and for your answer")
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
		ch.yes = true // does not ask if there is no member to forget
	}
	do, err := c.confirm(ctx, ch, func(w io.Writer) error {
		for _, m := range p.Gone {
			if _, err := terminal.Printf(w, "forget %s, last seen %s ago\n", m.ID, m.Age.Round(time.Second)); err != nil {
				return err
			}
		}
		_, err := terminal.Printf(w, "%s without a registration\n", admin.Counting(int64(len(p.Gone)), "member"))
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
	_, err = terminal.Printf(c.stdout, "Removed %d stale consumers, forgot %d\n", result.Removed, len(result.Forgotten))
	return err
}
