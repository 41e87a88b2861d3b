package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
)

func (c *cli) deadLettersAllowCommand() *cobra.Command {
	var lasts, timeout time.Duration
	cmd := &cobra.Command{
		Use:   "allow TOPIC --reason TEXT",
		Short: "Let any number of a topic's records become dead letters for a while",
		Long: `The way out of the hold "flood": most of what was read of a topic cannot become
rows, so nothing of it was made a dead letter yet. Writes to the operations log
that it may; no running connector is needed. Members hear of it within ten
seconds and go on by themselves.

The newest allowance of a topic holds: a shorter one takes an earlier one back,
--for 0s at once. If the records are right and the configuration is wrong,
correct that instead: the hold ends when they can become rows.`,
		Example: `  connector deadletters allow orders --for 1h --reason "the bad deploy of 14:00, the producer is fixed"`,
		Args:    cobra.ExactArgs(1),
	}
	ch := c.changeFlags(cmd)
	cmd.Flags().DurationVar(&lasts, "for", time.Hour, "how long")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		if err := admin.Floodable(cfg, args[0]); err != nil {
			return fail.Usage(err)
		}
		if lasts < 0 || lasts > admin.LongestAllowance {
			return fail.Usage(fmt.Errorf("--for %v: write a duration from 0s to %v", lasts, admin.LongestAllowance))
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		until := time.Now().Add(lasts).UTC().Truncate(time.Second)
		return c.decide(cmd.Context(), timeout, ch, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) {
			return admin.PlanAllow(ctx, a, args[0], until)
		})
	}
	return cmd
}
