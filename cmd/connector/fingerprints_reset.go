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
		Short: "Have the fingerprints of a topic forgotten",
		Long: `Writes to the operations log that what the table has of a topic now is not
remembered any more; no running connector is needed. Members hear of it within
ten seconds and remember what comes behind, and so does whoever takes over. A
record that was there before becomes a row once more if it is sent again.`,
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
