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
	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

func (c *cli) offsetsSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set {TOPIC[:PARTITION] WHERE | TOPIC:PARTITION@OFFSET} ...",
		Short: "Set the position of partitions",
		Long: `Sets the next offsets to read. Backwards, records become rows again; forwards,
records are left out: the plan shows how many. WHERE is

  1200        an offset: the next one to read
  -100, +100  a number of offsets before or after the position
  earliest    the start of the log
  latest      the last stable offset
  2026-01-31T08:00:00Z, 24h
              the first record with this timestamp or a later one

A topic without a partition means all its partitions with a position. The
command refuses an offset outside of the log. A partition without a position
gets its first one if another partition of the topic has a position; otherwise
use offsets start.`,
		Example: `  connector offsets set orders:0@1200 orders:1@1180 --reason "the records of Monday again"
  connector offsets set orders:0 -100 --reason "the last 100 again"
  connector offsets set orders 2026-01-31T08:00:00Z --reason "everything since the bad deploy"`,
		Args: cobra.MinimumNArgs(1),
	}
	return c.moverCommand(cmd, func(ctx context.Context, a *admin.Access, args []string) (*admin.MovePlan, error) {
		all, err := parseWanted(a.Config, args)
		if err != nil {
			return nil, err
		}
		return admin.PlanSet(ctx, a, all)
	})
}

// relative matches a distance from the current position, such as -100 or position-100. pflag would read -100 as a flag;
// [signed] prevents that.
var relative = regexp.MustCompile(`^(?:position)?([+-][0-9]+)$`)

// signed returns args in which each negative number after offsets set begins with "position", because pflag would read
// -100 as a flag. It returns the arguments of other commands unchanged.
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

func parseWanted(cfg *config.Config, args []string) (all []admin.SetTarget, err error) {
	seen := map[opslog.Target]bool{}
	for i := 0; i < len(args); i++ {
		var w admin.SetTarget
		if strings.Contains(args[i], "@") {
			w.Target, w.Offset, err = parseRecord(args[i])
		} else if w.Target, err = parseTarget(cfg, args[i]); err == nil {
			if i++; i == len(args) {
				return nil, fail.Usage(fmt.Errorf("%q has no offset: write TOPIC:PARTITION OFFSET for each partition", args[i-1]))
			}
			w.Where, err = parseWhere(args[i])
		}
		if err != nil {
			return nil, err
		}
		if seen[w.Target] || seen[opslog.Topic(w.Target.Topic)] {
			return nil, fail.Usage(fmt.Errorf("%v is given twice", w.Target))
		}
		seen[w.Target] = true
		all = append(all, w)
	}
	for _, w := range all {
		if w.Target.Partition >= 0 && seen[opslog.Topic(w.Target.Topic)] {
			return nil, fail.Usage(fmt.Errorf("%v is given twice: topic %s stands for it, too", w.Target, w.Target.Topic))
		}
	}
	return all, nil
}

func parseWhere(text string) (admin.Where, error) {
	if m := relative.FindStringSubmatch(text); m != nil {
		by, err := strconv.ParseInt(m[1], 10, 64)
		if err != nil || by == math.MinInt64 {
			return admin.Where{}, fail.Usage(fmt.Errorf("%q is not a number of offsets", m[1]))
		}
		return admin.Where{By: by, Relative: true}, nil
	}
	if n, err := strconv.ParseInt(text, 10, 64); err == nil && n >= 0 {
		return admin.Where{Offset: n}, nil
	}
	switch text {
	case string(connector.StartEarliest), string(connector.StartLatest):
		return admin.Where{Start: connector.Start{Policy: connector.StartPolicy(text)}}, nil
	}
	if start, ok := startAtTime(text); ok {
		return admin.Where{Start: start}, nil
	}
	return admin.Where{}, fail.Usage(fmt.Errorf("%q is not an offset: write the next offset to read, -100 or +100 from the position, earliest, latest, "+
		"a time such as 2026-01-31T08:00:00Z, or a duration back such as 24h", text))
}
