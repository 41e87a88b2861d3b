package main

import (
	"context"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"sluice/connector"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

func (c *cli) offsetsSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set {TOPIC[:PARTITION] WHERE | TOPIC:PARTITION@OFFSET} ...",
		Short: "Set the position of partitions",
		Long: `Sets where partitions are read from. Backwards, their records become rows once
more; forwards, they are left out: the plan says how many. WHERE is

  1200        an offset: the next one to read
  -100, +100  so many offsets before or behind the position
  earliest    the start of the log
  latest      the last stable offset
  2026-01-31T08:00:00Z, 24h
              the first record with a timestamp from then on

A topic without a partition stands for all partitions that have a position. An
offset outside of the log is refused. A partition without a position gets its
first one, if the topic has positions at all; else offsets start begins it.`,
		Example: `  connector offsets set orders:0@1200 orders:1@1180 --reason "the records of Monday again"
  connector offsets set orders:0 -100 --reason "the last 100 again"
  connector offsets set orders 2026-01-31T08:00:00Z --reason "everything since the bad deploy"`,
		Args: cobra.MinimumNArgs(1),
	}
	return c.moverCommand(cmd, func(ctx context.Context, a *Access, args []string) (*movePlan, error) {
		all, err := parseWanted(a.Config, args)
		if err != nil {
			return nil, err
		}
		return PlanSet(ctx, a, all)
	})
}

// relative is an offset from the position. A number with a minus would be a flag: see [signed].
var relative = regexp.MustCompile(`^(?:position)?([+-][0-9]+)$`)

// signed lets the arguments of offsets set begin with a minus, such as -100: pflag would read flags.
func signed(args []string) []string {
	if len(args) < 2 || args[0] != "offsets" || args[1] != "set" {
		return args
	}
	args = append([]string{}, args...)
	for i := 2; i < len(args); i++ {
		if strings.HasPrefix(args[i], "-") && relative.MatchString(args[i]) && !strings.HasPrefix(args[i-1], "-") {
			args[i] = "position" + args[i]
		}
	}
	return args
}

func parseWanted(cfg *config.Config, args []string) (all []wanted, err error) {
	seen := map[opslog.Target]bool{}
	for i := 0; i < len(args); i++ {
		var w wanted
		if strings.Contains(args[i], "@") {
			w.target, w.offset, err = parseRecord(args[i])
		} else if w.target, err = parseTarget(cfg, args[i]); err == nil {
			if i++; i == len(args) {
				return nil, fail.Usage(fmt.Errorf("%q has no offset: write TOPIC:PARTITION OFFSET for each partition", args[i-1]))
			}
			w.where, err = parseWhere(args[i])
		}
		if err != nil {
			return nil, err
		}
		if seen[w.target] || seen[opslog.Topic(w.target.Topic)] {
			return nil, fail.Usage(fmt.Errorf("%v is given twice", w.target))
		}
		seen[w.target] = true
		all = append(all, w)
	}
	for _, w := range all {
		if w.target.Partition >= 0 && seen[opslog.Topic(w.target.Topic)] {
			return nil, fail.Usage(fmt.Errorf("%v is given twice: topic %s stands for it, too", w.target, w.target.Topic))
		}
	}
	return all, nil
}

func parseWhere(text string) (where, error) {
	if m := relative.FindStringSubmatch(text); m != nil {
		by, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || by == math.MinInt64 {
			return where{}, fail.Usage(fmt.Errorf("%q is no number of offsets", m[1]))
		}
		return where{by: by, relative: true}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return where{offset: n}, nil
	}
	switch text {
	case string(connector.StartEarliest), string(connector.StartLatest):
		return where{start: connector.Start{Policy: connector.StartPolicy(text)}}, nil
	}
	if start, ok := startAtTime(text); ok {
		return where{start: start}, nil
	}
	return where{}, fail.Usage(fmt.Errorf("%q is no offset: write the next offset to read, -100 or +100 from the position, earliest, latest, "+
		"a time such as 2026-01-31T08:00:00Z, or a duration back such as 24h", text))
}
