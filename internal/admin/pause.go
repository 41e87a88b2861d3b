package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/connector"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// PlanPause plans to pause targets: members stop reading them.
func PlanPause(ctx context.Context, a *Access, targets []opslog.Target) (*Decision, error) {
	return planPausing(ctx, a, "pause", "paused", opslog.Pause{Targets: targets}, targets, pausable)
}

// PlanResume plans to end the pauses of targets.
func PlanResume(ctx context.Context, a *Access, targets []opslog.Target) (*Decision, error) {
	return planPausing(ctx, a, "resume", "resumed", opslog.Resume{Targets: targets}, targets, resumable)
}

// planPausing plans a pause or a resume. judge returns those targets that would change, and notes about the others.
func planPausing(ctx context.Context, a *Access, verb, past string, body opslog.Body, targets []opslog.Target,
	judge func(s *opslog.State, targets []opslog.Target) (effective []opslog.Target, notes []string, err error),
) (*Decision, error) {
	d := &Decision{bodies: []opslog.Body{body}}
	d.judge = func(s *opslog.State) (notes []string, err error) {
		effective, notes, err := judge(s, targets)
		if err == nil && len(effective) == 0 {
			err = ErrNothingToDo
		}
		d.Text, d.Plan = fmt.Sprintf("%s of pipeline %s: %s", verb, a.Config.Pipeline, listTargets(effective)), PausePlan{a.Config.Pipeline, verb, effective}
		d.Done = past + " " + listTargets(effective)
		return notes, err
	}
	return d.decide(ctx, a)
}

// PlanRecheck plans to make members check the holds of targets now.
func PlanRecheck(ctx context.Context, a *Access, targets []opslog.Target) (*Decision, error) {
	return planRequest(ctx, a, "recheck of holds", "members check holds of", opslog.Recheck{Targets: targets}, targets)
}

// Flush is what a member did about the newest request to flush a table.
type Flush = connector.Flush

// PlanFlush plans to make members commit now what they have enqueued of targets: topics, or everything.
func PlanFlush(ctx context.Context, a *Access, targets []opslog.Target) (*Decision, error) {
	if i := slices.IndexFunc(targets, func(t opslog.Target) bool { return t.Partition >= 0 }); i >= 0 {
		return nil, fail.Usage(fmt.Errorf("%v is a partition, and a batch has all partitions of a table: write %s", targets[i], targets[i].Topic))
	}
	return planRequest(ctx, a, "flush", "members commit what they have of", opslog.Flush{Targets: targets}, targets)
}

// planRequest plans a request to members. The operations log never has the effect of a request already.
func planRequest(ctx context.Context, a *Access, what, done string, body opslog.Body, targets []opslog.Target) (*Decision, error) {
	d := &Decision{
		Text:   fmt.Sprintf("%s of pipeline %s: %s", what, a.Config.Pipeline, listTargets(targets)),
		Done:   done + " " + listTargets(targets),
		Plan:   PausePlan{a.Config.Pipeline, string(body.Kind()), targets},
		bodies: []opslog.Body{body}, judge: func(*opslog.State) ([]string, error) { return nil, nil },
	}
	return d.decide(ctx, a)
}

// PausePlan is a planned pause, resume, recheck or flush as a struct, for JSON.
type PausePlan struct {
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
