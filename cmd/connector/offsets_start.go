package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"sluice/connector"
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
)

const atPosition = "position"

func (c *cli) offsetsStartCommand() *cobra.Command {
	var f admin.StartRequest
	var at string
	cmd := &cobra.Command{
		Use:   "start TOPIC ...",
		Short: "Begin topics that may not begin by themselves",
		Long: `The way out of unknown_history, topic_recreated, cluster_changed and
table_replaced. It gives the partitions that have no position their first one:
all of a topic that never began, else those that are missing.

--at says where: earliest, latest (the last stable offset), a time such as
2026-01-31T08:00:00Z, a duration back such as 24h, or position, which keeps the
positions that the table has.

A table that was created anew at the same place is accepted by it. Then all
topics must be named that have positions in it, and --at decides: its rows may
be gone (earliest reads everything again) or may have been copied into it
(position continues). Accept it only if you know which.`,
		Example: `  connector offsets start orders --at earliest --reason "the topic was created anew"`,
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.Flags().StringVar(&at, "at", "earliest", "earliest, latest, position, a time or a duration back")
	cmd.Flags().Int32SliceVar(&f.Partitions, "partition", nil, "only these partitions, of a topic that has begun")
	cmd.Flags().BoolVar(&f.Again, "again", false, "also partitions that have a position")
	return c.moverCommand(cmd, func(ctx context.Context, a *admin.Access, args []string) (_ *admin.MovePlan, err error) {
		if f.Start, f.Keep, err = parseStart(at); err != nil {
			return nil, err
		}
		f.Topics = args
		return admin.PlanStart(ctx, a, f)
	})
}

// parseStart reads --at. keep is true for position.
func parseStart(at string) (s connector.Start, keep bool, err error) {
	switch at {
	case atPosition:
		return s, true, nil
	case string(connector.StartEarliest), string(connector.StartLatest):
		return connector.Start{Policy: connector.StartPolicy(at)}, false, nil
	}
	s, ok := startAtTime(at)
	if !ok {
		return s, false, fail.Usage(fmt.Errorf("--at %q is not understood: write earliest, latest, position, a time such as 2026-01-31T08:00:00Z, or a duration back such as 24h", at))
	}
	return s, false, nil
}

// startAtTime reads a time or a duration back.
func startAtTime(text string) (connector.Start, bool) {
	a, err := config.ParseStartAt([]string{text})
	if err != nil || a.IsZero() || a.Explicit() {
		return connector.Start{}, false
	}
	return connector.Start{Policy: connector.StartTimestamp, At: a.Time, Back: a.Back}, true
}
