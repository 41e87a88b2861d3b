package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

func (c *cli) pauseCommand() *cobra.Command {
	return c.pausingCommand(&cobra.Command{
		Use:   "pause {TOPIC[:PARTITION]... | --all} --reason TEXT",
		Short: "Stop the reading of topics or partitions",
		Long: `Writes a pause to the operations log; no running connector is needed. Members
hear of it within ten seconds: they stop fetching, commit what they have read,
and hold the partitions with the reason "paused". Positions stay. A pause
outlives restarts and ends with connector resume.

--all pauses everything that the pipeline moves, topics that come later
included. Pausing what is paused already changes nothing.`,
	}, pausing{verb: "pause", past: "paused", body: func(t []opslog.Target) opslog.Body { return opslog.Pause{Targets: t} }, judge: pausable})
}

func (c *cli) resumeCommand() *cobra.Command {
	return c.pausingCommand(&cobra.Command{
		Use:   "resume {TOPIC[:PARTITION]... | --all} --reason TEXT",
		Short: "End pauses of topics or partitions",
		Long: `Writes to the operations log that pauses are over; no running connector is
needed. Members hear of it within ten seconds and read on from the positions in
the tables. A topic is resumed with all of its partitions, --all ends every
pause. What was paused as a whole is resumed as a whole: else exit code 4 says
what to write.`,
	}, pausing{verb: "resume", past: "resumed", anyTopic: true, body: func(t []opslog.Target) opslog.Body { return opslog.Resume{Targets: t} }, judge: resumable})
}

// pausing is what pause and resume do differently.
type pausing struct {
	verb, past string
	anyTopic   bool // also one that the configuration does not name any more: a pause outlives its entry
	body       func([]opslog.Target) opslog.Body
	// judge says which targets the operation would change something for, and what to tell about the others.
	judge func(s *opslog.State, targets []opslog.Target) (effective []opslog.Target, notes []string, err error)
}

func (c *cli) pausingCommand(cmd *cobra.Command, p pausing) *cobra.Command {
	var all bool
	var timeout time.Duration
	ch := c.changeFlags(cmd)
	cmd.Flags().BoolVar(&all, "all", false, "everything that the pipeline moves")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	cmd.Args = func(_ *cobra.Command, args []string) error {
		if all == (len(args) > 0) {
			return fail.Usage(errors.New("write TOPIC or TOPIC:PARTITION, or --all"))
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		targets, err := targetsOf(cfg, args, p.anyTopic)
		if err != nil {
			return fail.Usage(err)
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		return c.applyPausing(cmd.Context(), timeout, cfg, ch, p, targets)
	}
	return cmd
}

// targetsOf reads the arguments of pause and resume: none is everything. Unless any topic will do, it must be one of the
// configuration.
func targetsOf(cfg *config.Config, args []string, anyTopic bool) (targets []opslog.Target, err error) {
	if len(args) == 0 {
		return []opslog.Target{opslog.All()}, nil
	}
	for _, arg := range args {
		t, err := parseTarget(cfg, arg)
		if err != nil {
			return nil, err
		}
		if _, meant, _ := cfg.Route(t.Topic); !meant && !anyTopic {
			return nil, fmt.Errorf("topic %s is not in topics: write one of %s", t.Topic, strings.Join(cfg.Meant(), ", "))
		}
		targets = append(targets, t)
	}
	return targets, nil
}

func (c *cli) applyPausing(ctx context.Context, timeout time.Duration, cfg *config.Config, ch *change, p pausing, targets []opslog.Target) error {
	var effective []opslog.Target
	return c.decide(ctx, timeout, cfg, ch, decision{
		body: func() opslog.Body { return p.body(targets) },
		judge: func(s *opslog.State) (notes []string, err error) {
			if effective, notes, err = p.judge(s, targets); err == nil && len(effective) == 0 {
				err = errNothingToDo
			}
			return notes, err
		},
		plan: func() (string, any) {
			return fmt.Sprintf("%s of pipeline %s: %s", p.verb, cfg.Pipeline, listTargets(effective)), pausingPlan{cfg.Pipeline, p.verb, effective}
		},
		done: func() string { return p.past + " " + listTargets(effective) },
	})
}

// pausingPlan is what a dry run prints as JSON.
type pausingPlan struct {
	Pipeline string          `json:"pipeline"`
	Kind     string          `json:"kind"`
	Targets  []opslog.Target `json:"targets"`
}

func listTargets(targets []opslog.Target) string {
	var names []string
	for _, t := range targets {
		names = append(names, t.String())
	}
	return strings.Join(names, ", ")
}

func pausable(s *opslog.State, targets []opslog.Target) (effective []opslog.Target, notes []string, err error) {
	for _, t := range targets {
		by := s.Covering(t)
		if i := slices.IndexFunc(by, func(p opslog.Paused) bool { return p.Target == t }); i >= 0 {
			notes = append(notes, fmt.Sprintf("%v is paused already: %s", t, pausedSince(by[i])))
			continue
		}
		effective = append(effective, t)
	}
	return effective, notes, nil
}

func resumable(s *opslog.State, targets []opslog.Target) (effective []opslog.Target, notes []string, err error) {
	for _, t := range targets {
		for _, by := range s.Covering(t) {
			if by.Target != t {
				whole := by.Target.String()
				if by.Target == opslog.All() {
					whole = "--all"
				}
				return nil, nil, fmt.Errorf("%v is paused with %v: %s; it can only be resumed as a whole: write %s instead of %v", t, by.Target, pausedSince(by), whole, t)
			}
		}
		if len(s.Under(t)) == 0 {
			notes = append(notes, fmt.Sprintf("%v is not paused", t))
			continue
		}
		effective = append(effective, t)
	}
	return effective, notes, nil
}

func pausedSince(by opslog.Paused) string {
	return fmt.Sprintf("by %s since %s: %s", by.Operator, by.Since.Format(time.RFC3339), by.Reason)
}
