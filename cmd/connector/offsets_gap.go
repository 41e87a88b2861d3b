package main

import (
	"context"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) offsetsAcceptGapCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "accept-gap TOPIC[:PARTITION]",
		Short: "Continue after lost records",
		Long: `Ends the holds behind_log_start, ahead_of_log_end and truncated: it moves
positions that lie outside of their log, or after records that the brokers lost,
to the offset where the log continues. The plan shows which offsets that leaves
out or repeats. The command checks each gap twice, 5 seconds apart.

behind_log_start continues at the start of the log; ahead_of_log_end at its last
stable offset; truncated at the first offset that differs from what was read.`,
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
