package main

import (
	"context"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) offsetsAcceptGapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept-gap TOPIC[:PARTITION]",
		Short: "Go on behind records that are lost",
		Long: `The way out of behind_log_start, ahead_of_log_end and truncated: positions that
lie outside of their log, or behind records that the brokers lost, are set to
where the log continues. It says which offsets that leaves out or repeats. What it
finds must show twice, 5 seconds apart.

behind_log_start continues at the start of the log; ahead_of_log_end at its last
stable offset; truncated where the log parts from what was read.`,
		Example: `  connector offsets accept-gap orders:3 --reason "retention was too short over Easter"`,
		Args:    cobra.ExactArgs(1),
	}
	return c.moverCommand(cmd, func(ctx context.Context, a *admin.Access, args []string) (*admin.MovePlan, error) {
		target, err := parseTarget(a.Config, args[0])
		if err != nil {
			return nil, err
		}
		return admin.PlanAcceptGap(ctx, a, target)
	})
}
