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

// A where says where a position is set to: to an offset, by a number of offsets, or to where a start begins.
type where struct {
	offset int64 // if relative and start are zero
	by     int64 // relative to the position
	start  connector.Start

	relative bool
}

// wanted is a target with its where. A target without a partition is every partition of the topic that has a position.
type wanted struct {
	target opslog.Target
	where
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

// PlanSet plans to set the positions of targets.
func PlanSet(ctx context.Context, a *Access, all []wanted) (*movePlan, error) {
	return sorted(planSet(ctx, a, all))
}

func planSet(ctx context.Context, a *Access, all []wanted) (*movePlan, error) {
	var names []string
	for _, w := range all {
		names = append(names, w.target.Topic)
	}
	seen, err := a.see(ctx, names...)
	if err != nil {
		return nil, err
	}
	defer seen.end()
	plan := newPlan("offsets set", seen.looks[0])
	if detail := connector.Replaced(seen.looks[0].snapshot, seen.looks[0].pipeline); detail != "" {
		return nil, refused("table_replaced: %s: restore it, or accept it with offsets start", detail)
	}
	for i, w := range all {
		if err := plan.set(seen, seen.looks[i], w); err != nil {
			return nil, err
		}
	}
	plan.onceMore()
	return plan, nil
}

// set adds the moves of one target.
func (p *movePlan) set(ask *sight, l *look, w wanted) error {
	if !l.started() {
		return refused("the table has no position for any partition of topic %s: offsets start or offsets adopt begins it", l.topic.Name)
	}
	var chosen []connector.Partition
	for _, of := range l.partitions() {
		if of.ID == w.target.Partition || w.target.Partition < 0 && l.position(of) >= 0 {
			chosen = append(chosen, of)
		}
	}
	if len(chosen) == 0 {
		return refused("topic %s has no partition %d", l.topic.Name, w.target.Partition)
	}
	to, err := w.offsets(ask, l, chosen)
	if err != nil {
		return err
	}
	for _, of := range chosen {
		if b := l.bounds[of]; to[of] < b.LogStart || to[of] > b.HighWatermark {
			return refused("offset %d is outside of the log of %v, which is [%d, %d]: nothing could be read there", to[of], of, b.LogStart, b.HighWatermark)
		}
		p.move(l, of, to[of], "")
	}
	return nil
}

// offsets returns what the where means for each partition.
func (w where) offsets(ask *sight, l *look, chosen []connector.Partition) (map[connector.Partition]int64, error) {
	to := map[connector.Partition]int64{}
	bounds := map[connector.Partition]connector.Bounds{}
	for _, of := range chosen {
		at := l.position(of)
		if w.relative && at < 0 {
			return nil, refused("%v has no position yet: write an offset, not %+d", of, w.by)
		}
		to[of], bounds[of] = w.offset, l.bounds[of]
		if w.relative {
			to[of] = at + w.by
		}
	}
	if w.start.Policy == "" {
		return to, nil
	}
	return ask.first(w.start, chosen, bounds)
}

// onceMore says how to have each record once although it is read again.
func (p *movePlan) onceMore() {
	for _, s := range p.Moves {
		topic, _, err := p.of.config.Route(s.Topic)
		if s.Repeated == 0 || err != nil || topic.Identity.By != "none" { // a deleted row that a fingerprint remembers would not come back
			continue
		}
		p.note("to have the records of %s once, pause it, delete its rows first, then move the position and resume:\n"+
			"  DELETE FROM %s WHERE _kafka_topic = '%s' AND _kafka_partition = %d AND _kafka_offset >= %d AND _kafka_offset < %d",
			s.partition, p.of.table.Table, s.Topic, s.Partition, s.To, s.From)
	}
}
