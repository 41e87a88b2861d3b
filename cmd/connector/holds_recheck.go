package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
)

func (c *cli) holdsRecheckCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "recheck [TOPIC[:PARTITION]...]",
		Short: "Make members check their holds now",
		Long: `Members check each hold once a minute. After you removed the cause - corrected a
bucket policy, added a column to the table - this command makes them check at
once: the holds of the given topics or partitions, or all. It writes to the
operations log; no running connector is needed. A hold ends only if its check
passes.`,
		Example: `  connector holds recheck
  connector holds recheck orders --reason "the column is in the table now"`,
	}
	ch := c.changeFlags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	c.serverFlags(cmd, "config", "operator")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if ch.reason == "" {
			ch.reason = "check holds now"
		}
		ch.yes = ch.yes || !ch.dryRun // does not ask, because members would check within a minute anyway
		if err := c.checkChange(ch); err != nil {
			return err
		}
		if c.remote() {
			return c.decideTargetsAt(cmd.Context(), ch, "holds/recheck", args)
		}
		cfg, err := c.load()
		if err != nil {
			return err
		}
		targets, err := targetsOf(cfg, args, false)
		if err != nil {
			return fail.Usage(err)
		}
		return c.decide(cmd.Context(), timeout, ch, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) {
			return admin.PlanRecheck(ctx, a, targets)
		})
	}
	return cmd
}
