package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
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
		Short: "Show position, group offset, log ends, lag and hold of each partition",
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

func (c *cli) showOffsets(ctx context.Context) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	lines, err := admin.Positions(ctx, a, c.topic)
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, lines)
	} else {
		err = printOffsets(c.stdout, lines)
	}
	if err == nil && slices.ContainsFunc(lines, func(l admin.Position) bool { return l.Hold != nil }) {
		err = fail.Found(nil)
	}
	return err
}

func printOffsets(w io.Writer, lines []admin.Position) error {
	tw := newColumns(w)
	show := func(n *int64) string {
		if n == nil {
			return "-"
		}
		return strconv.FormatInt(*n, 10)
	}
	_, _ = fmt.Fprintln(tw, "PARTITION\tPOSITION\tGROUP OFFSET\tLOG START\tLAST STABLE\tLAG\tHOLD") // Flush has the error
	for _, l := range lines {
		name, h := l.Topic, "-"
		if l.Partition >= 0 {
			name += ":" + strconv.Itoa(int(l.Partition))
		}
		if l.Hold != nil {
			h = string(l.Hold.Reason)
		}
		_, _ = printf(tw, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", name, show(l.Position), show(l.Group), show(l.LogStart), show(l.End), show(l.Lag), h)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, l := range lines {
		if l.Note == "" {
			continue
		}
		if _, err := printf(w, "\n%s: %s\n", l.Topic, l.Note); err != nil {
			return err
		}
	}
	// Partitions that are held for the same reason are explained once.
	explained := map[admin.HoldInfo]bool{}
	for _, l := range lines {
		if l.Hold == nil || explained[*l.Hold] {
			continue
		}
		explained[*l.Hold] = true
		if _, err := printf(w, "\n%s: %s\n  %s\n", l.Hold.Reason, l.Hold.Detail, ending(l.Hold.EndsBy)); err != nil {
			return err
		}
	}
	return nil
}
