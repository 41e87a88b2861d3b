package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/api"
	"sluice/internal/fail"
)

func (c *cli) deadLettersAllowCommand() *cobra.Command {
	var lasts, timeout time.Duration
	cmd := &cobra.Command{
		Use:   "allow TOPIC --reason TEXT",
		Short: "Let any number of a topic's records become dead letters for a while",
		Long: `Ends the hold "flood": most records of a topic cannot become rows, so the
members stopped before they wrote dead letters. The command writes an allowance
to the operations log; no running connector is needed. Members read it within
ten seconds and continue.

The newest allowance of a topic applies: a shorter one replaces an earlier one,
--for 0s ends it at once. If the records are right and the configuration is
wrong, correct the configuration instead: the hold ends when the records can
become rows.`,
		Example: `  connector deadletters allow orders --for 1h --reason "the bad deploy of 14:00, the producer is fixed"`,
		Args:    cobra.ExactArgs(1),
	}
	ch := c.changeFlags(cmd)
	cmd.Flags().DurationVar(&lasts, "for", time.Hour, "how long the allowance lasts")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	c.serverFlags(cmd, "config", "operator")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if c.remote() {
			if err := c.checkChange(ch); err != nil {
				return err
			}
			return c.decideAt(cmd.Context(), ch, func(ctx context.Context, client *api.Client, request api.Change) (*api.Decided, error) {
				return client.Allow(ctx, args[0], lasts, request)
			})
		}
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
