package main

import (
	"context"
	"time"

	"github.com/spf13/cobra"
)

func (c *cli) offsetsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "offsets",
		Short: "Show and move positions",
		Args:  cobra.NoArgs,
		RunE:  func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	var timeout time.Duration
	show := &cobra.Command{
		Use:   "show",
		Short: "Show position, committed offset, log ends, lag and hold of each partition",
		Long: `Shows for each partition the position in the table, the committed offset (a hint
that lags behind), the start and the end of the log, and the lag. For a held
partition it also shows the reason and what ends the hold. It finds holds in the
table and Kafka, and asks the member at health.listen of this configuration, if
one responds there. Exit code 1 if a partition is held.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.remote() {
				return c.showOffsets(cmd.Context())
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.showOffsets(ctx)
		},
	}
	show.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "how long to wait for Kafka and the store")
	c.configFlag(show)
	c.topicFlag(show)
	c.listFlag(show)
	c.serverFlags(show, "config")
	cmd.AddCommand(show, c.offsetsSetCommand(), c.offsetsStartCommand(), c.offsetsAdoptCommand(), c.offsetsAcceptGapCommand(), c.offsetsSkipCommand())
	return cmd
}
