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
	}, false, PlanPause)
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
	}, true, PlanResume)
}

// pausingCommand makes pause and resume. anyTopic also takes a topic that the configuration does not name any more: a pause
// outlives its entry.
func (c *cli) pausingCommand(cmd *cobra.Command, anyTopic bool, plan func(context.Context, *Access, []opslog.Target) (*Decision, error)) *cobra.Command {
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
		targets, err := targetsOf(cfg, args, anyTopic)
		if err != nil {
			return fail.Usage(err)
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		return c.decide(cmd.Context(), timeout, ch, func(ctx context.Context, a *Access) (*Decision, error) { return plan(ctx, a, targets) })
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

// PlanPause plans to stop the reading of targets.
func PlanPause(ctx context.Context, a *Access, targets []opslog.Target) (*Decision, error) {
	return planPausing(ctx, a, "pause", "paused", opslog.Pause{Targets: targets}, targets, pausable)
}

// PlanResume plans to end pauses.
func PlanResume(ctx context.Context, a *Access, targets []opslog.Target) (*Decision, error) {
	return planPausing(ctx, a, "resume", "resumed", opslog.Resume{Targets: targets}, targets, resumable)
}

// planPausing plans a pause or a resume. judge says which targets it would change something for, and what to tell about the
// others.
func planPausing(ctx context.Context, a *Access, verb, past string, body opslog.Body, targets []opslog.Target,
	judge func(s *opslog.State, targets []opslog.Target) (effective []opslog.Target, notes []string, err error),
) (*Decision, error) {
	d := &Decision{body: body}
	d.judge = func(s *opslog.State) (notes []string, err error) {
		effective, notes, err := judge(s, targets)
		if err == nil && len(effective) == 0 {
			err = ErrNothingToDo
		}
		d.Text, d.Plan = fmt.Sprintf("%s of pipeline %s: %s", verb, a.Config.Pipeline, listTargets(effective)), pausingPlan{a.Config.Pipeline, verb, effective}
		d.Done = past + " " + listTargets(effective)
		return notes, err
	}
	return d.decide(ctx, a)
}

// PlanRecheck plans to have members check the holds of targets now.
func PlanRecheck(ctx context.Context, a *Access, targets []opslog.Target) (*Decision, error) {
	d := &Decision{
		Text: fmt.Sprintf("recheck of holds of pipeline %s: %s", a.Config.Pipeline, listTargets(targets)),
		Done: "members check holds of " + listTargets(targets),
		Plan: pausingPlan{a.Config.Pipeline, string(opslog.KindRecheck), targets},
		body: opslog.Recheck{Targets: targets}, judge: func(*opslog.State) ([]string, error) { return nil, nil },
	}
	return d.decide(ctx, a)
}

// pausingPlan is the plan of a pause, a resume or a recheck.
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
