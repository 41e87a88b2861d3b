package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) offsetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offsets",
		Short: "Look at positions, and move them",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var timeout time.Duration
	show := &cobra.Command{
		Use:   "show",
		Short: "Show position, committed offset, log ends, lag and hold of each partition",
		Long: `Shows for each partition the position in the table, the group's offset (a hint
that lags behind), where the log starts and ends, and the lag. A partition that
a connector would hold is shown with the reason and with what ends it: as far as
the table and Kafka show it, and the member at health.listen of this
configuration, if one answers there. Exit code 1 if a partition is held.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.showOffsets(ctx)
		},
	}
	show.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "how long to wait for Kafka and the store")
	c.configFlag(show)
	c.topicFlag(show)
	c.outputFlag(show)
	cmd.AddCommand(show, c.offsetsSetCommand(), c.offsetsStartCommand(), c.offsetsAdoptCommand(), c.offsetsAcceptGapCommand(), c.offsetsSkipCommand())
	return cmd
}
