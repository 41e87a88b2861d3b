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
		Short: "Skip the record at the position of a partition",
		Long: `Ends the holds poison, corrupt_batch and oversize: the partition continues after
the record at the offset, which must be its position. If its record batch cannot
be read, the command skips the whole batch, up to the end in the batch's header.
--batch always skips the whole batch, --to all records before an offset. Skipped
records stay in Kafka until its retention deletes them.`,
		Example: `  connector offsets skip orders:3@1207 --reason "not JSON, the producer will fix it"`,
		Args:    cobra.RangeArgs(1, 2),
	}
	cmd.Flags().Int64Var(&to, "to", -1, "the next offset to read, instead of the one after the record or the batch")
	cmd.Flags().BoolVar(&batch, "batch", false, "skip the whole record batch, even if it can be read (oversize)")
	cmd.MarkFlagsMutuallyExclusive("to", "batch")
	return c.moverCommand(cmd, func(ctx context.Context, a *admin.Access, args []string) (*admin.MovePlan, error) {
		target, offset, err := parsePlaceAndOffset(args)
		if err != nil {
			return nil, err
		}
		return admin.PlanSkip(ctx, a, admin.Skip{Target: target, Offset: offset, To: to, Batch: batch})
	})
}
