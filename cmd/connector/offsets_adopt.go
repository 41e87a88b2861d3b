package main

import (
	"context"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) offsetsAdoptCommand() *cobra.Command {
	var f admin.AdoptRequest
	cmd := &cobra.Command{
		Use:   "adopt TOPIC --from group|kdi|spark",
		Short: "Start a topic where another program stopped",
		Long: `Sets the first positions of a topic: the offsets after the last records that
another program wrote to the table, or read. Stop that program first, and see
the plan with --dry-run.

--from group: the committed offsets of a consumer group (--group NAME).
--from kdi: the txn actions of kafka-delta-ingest in this table (--app-id NAME).
--from spark: a Structured Streaming checkpoint (--checkpoint, a directory or a
URL such as s3://bucket/folder). If the table and the checkpoint differ about
the query's last batch, the table counts.

A partition without an offset starts at its earliest one; the plan says so.`,
		Example: `  connector offsets adopt orders --from spark --checkpoint s3://lake/checkpoints/orders --reason "the Spark job is switched off"`,
		Args:    cobra.ExactArgs(1),
	}
	cmd.Flags().StringVar(&f.From, "from", "", "group, kdi or spark")
	cmd.Flags().StringVar(&f.Group, "group", "", "the consumer group, for group (default kafka.group)")
	cmd.Flags().StringVar(&f.AppID, "app-id", "", "the app_id of kafka-delta-ingest, or the txnAppId of a Spark query that sets one")
	cmd.Flags().StringVar(&f.Checkpoint, "checkpoint", "", "the checkpoint of the query, for spark")
	return c.moverCommand(cmd, func(ctx context.Context, a *admin.Access, args []string) (*admin.MovePlan, error) {
		f.Topic = args[0]
		return admin.PlanAdopt(ctx, a, f)
	})
}
