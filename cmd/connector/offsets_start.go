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
		Short: "Set the first positions of held topics",
		Long: `Ends the holds unknown_history, topic_recreated, cluster_changed and
table_replaced. It sets the first positions of partitions without one: all
partitions of a topic without positions, or the missing ones.

--at is the first position: earliest, latest (the last stable offset), a time
such as 2026-01-31T08:00:00Z, a duration back such as 24h, or position, which
keeps the positions in the table.

The command also accepts a table that was created again at the same place. Then
name all topics with positions in it, and choose with --at: if its rows are
gone, earliest reads everything again; if they were copied into it, position
continues. Accept the table only if you know which is the case.`,
		Example: `  connector offsets start orders --at earliest --reason "the topic was created anew"`,
		Args:    cobra.MinimumNArgs(1),
	}
	cmd.Flags().StringVar(&at, "at", "earliest", "first position: earliest, latest, position, a time or a duration back")
	cmd.Flags().Int32SliceVar(&f.Partitions, "partition", nil, "only these partitions, of a topic with positions")
	cmd.Flags().BoolVar(&f.Again, "again", false, "also start partitions that have a position")
	return c.moverCommand(cmd, func(ctx context.Context, a *admin.Access, args []string) (_ *admin.MovePlan, err error) {
		if f.Start, f.Keep, err = parseStart(at); err != nil {
			return nil, err
		}
		f.Topics = args
		return admin.PlanStart(ctx, a, f)
	})
}

// parseStart parses the text of --at. keep is true for "position", which keeps positions that the table has.
func parseStart(at string) (s connector.Start, keep bool, err error) {
	switch at {
	case atPosition:
		return s, true, nil
	case string(connector.StartEarliest), string(connector.StartLatest):
		return connector.Start{Policy: connector.StartPolicy(at)}, false, nil
	}
	s, ok := startAtTime(at)
	if !ok {
		return s, false, fail.Usage(fmt.Errorf("--at %q is unknown: write earliest, latest, position, a time such as 2026-01-31T08:00:00Z, or a duration back such as 24h", at))
	}
	return s, false, nil
}

// startAtTime parses a time, or a duration before now. It returns false for any other text.
func startAtTime(text string) (connector.Start, bool) {
	a, err := config.ParseStartAt([]string{text})
	if err != nil || a.IsZero() || a.Explicit() {
		return connector.Start{}, false
	}
	return connector.Start{Policy: connector.StartTimestamp, At: a.Time, Back: a.Back}, true
}
