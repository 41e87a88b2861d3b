package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
)

func (c *cli) fingerprintsResetCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "reset TOPIC --reason TEXT",
		Short: "Reset the fingerprints of a topic",
		Long: `Writes a reset to the operations log; no running connector is needed. Within ten
seconds all members forget the fingerprints of the records in the table and keep
only those of later records. If a producer sends an earlier record again, it
becomes a second row.`,
		Example: `  connector fingerprints reset orders --reason "the producer sends yesterday's orders again, corrected"`,
		Args:    cobra.ExactArgs(1),
	}
	ch := c.changeFlags(cmd)
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		if err := admin.Forgettable(cfg, args[0]); err != nil {
			return err
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		return c.decide(cmd.Context(), timeout, ch, func(ctx context.Context, a *admin.Access) (*admin.Decision, error) {
			return admin.PlanReset(ctx, a, args[0])
		})
	}
	return cmd
}
