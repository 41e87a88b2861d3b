package main

import (
	"context"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) offsetsSkipCommand() *cobra.Command {
	var (
		to    int64
		batch bool
	)
	cmd := &cobra.Command{
		Use:   "skip TOPIC:PARTITION@OFFSET",
		Short: "Leave out the record that a partition stands at",
		Long: `The way out of poison, corrupt_batch and oversize: the partition continues behind
the record at the offset, which must be its position. If the record batch that
holds it cannot be read, the whole batch is left out: its header says how far it
reaches. --batch leaves out the whole batch in any case, --to everything up to
an offset. What is left out stays in Kafka as long as its retention says.`,
		Example: `  connector offsets skip orders:3@1207 --reason "not JSON, the producer will fix it"`,
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.Flags().Int64Var(&to, "to", -1, "the next offset to read, instead of the one behind the record or the batch")
	cmd.Flags().BoolVar(&batch, "batch", false, "leave out the whole record batch, also if it can be read (oversize)")
	cmd.MarkFlagsMutuallyExclusive("to", "batch")
	return c.moverCommand(cmd, func(ctx context.Context, a *admin.Access, args []string) (*admin.MovePlan, error) {
		target, offset, err := parsePlaceAndOffset(args)
		if err != nil {
			return nil, err
		}
		return admin.PlanSkip(ctx, a, admin.Skip{Target: target, Offset: offset, To: to, Batch: batch})
	})
}
