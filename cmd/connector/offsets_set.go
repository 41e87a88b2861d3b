package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"

	"sluice/connector"
	"sluice/sink/opslog"
)

func (c *cli) offsetsSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set TOPIC:PARTITION OFFSET ...",
		Short: "Set the position of partitions",
		Long: `Sets where partitions are read from. Backwards, their records become rows once
more; forwards, they are left out: it says how many. An offset outside of the
log is refused. A partition without a position gets its first one, if the topic
has positions at all; else offsets start begins it.`,
		Example: `  connector offsets set orders:0 1200 orders:1 1180 --reason "the records of Monday again"`,
		Args:    cobra.MinimumNArgs(2),
	}
	return c.moverCommand(cmd, planSet)
}

// wanted is TOPIC:PARTITION with an offset.
type wanted struct {
	target opslog.Target
	offset int64
}

func parseWanted(args []string) ([]wanted, error) {
	if len(args)%2 != 0 {
		return nil, exitError{exitUsage, fmt.Errorf("%q has no offset: write TOPIC:PARTITION OFFSET for each partition", args[len(args)-1])}
	}
	var all []wanted
	seen := map[opslog.Target]bool{}
	for i := 0; i < len(args); i += 2 {
		target, err := parsePartition(args[i])
		if err != nil {
			return nil, err
		}
		offset, err := parseOffset(args[i+1])
		if err != nil {
			return nil, err
		}
		if seen[target] {
			return nil, exitError{exitUsage, fmt.Errorf("%v is given twice", target)}
		}
		seen[target] = true
		all = append(all, wanted{target, offset})
	}
	return all, nil
}

// parsePartition reads TOPIC:PARTITION.
func parsePartition(text string) (opslog.Target, error) {
	t, err := opslog.ParseTarget(text)
	if err == nil && t.Partition < 0 {
		err = fmt.Errorf("%q names no partition: write TOPIC:PARTITION, such as %s:0", text, text)
	}
	if err != nil {
		return t, exitError{exitUsage, err}
	}
	return t, nil
}

func parseOffset(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 {
		return 0, exitError{exitUsage, fmt.Errorf("%q is no offset: write a whole number, the next offset to read", text)}
	}
	return n, nil
}

func planSet(ctx context.Context, m *mover, args []string) (*movePlan, error) {
	all, err := parseWanted(args)
	if err != nil {
		return nil, err
	}
	var names []string
	for _, w := range all {
		names = append(names, w.target.Topic)
	}
	seen, err := m.see(ctx, names...)
	if err != nil {
		return nil, err
	}
	defer seen.end()
	plan := m.newPlan(seen.looks[0])
	if detail := connector.Replaced(seen.looks[0].snapshot, seen.looks[0].pipeline); detail != "" {
		return nil, refused("table_replaced: %s: restore it, or accept it with offsets start", detail)
	}
	for i, w := range all {
		l := seen.looks[i]
		p, ok := l.partition(w.target.Partition)
		switch b := l.bounds[p]; {
		case !ok:
			return nil, refused("topic %s has no partition %d", w.target.Topic, w.target.Partition)
		case !l.started():
			return nil, refused("the table has no position for any partition of topic %s: offsets start or offsets adopt begins it", p.Topic)
		case w.offset < b.LogStart || w.offset > b.HighWatermark:
			return nil, refused("offset %d is outside of the log of %v, which is [%d, %d]: nothing could be read there", w.offset, p, b.LogStart, b.HighWatermark)
		}
		plan.move(l, p, w.offset, "")
	}
	return plan, nil
}
