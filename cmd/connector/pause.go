package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

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
			return exitError{exitUsage, errors.New("write TOPIC or TOPIC:PARTITION, or --all")}
		}
		return nil
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		config, err := c.load()
		if err != nil {
			return err
		}
		targets, err := targetsOf(config, args, p.anyTopic)
		if err != nil {
			return exitError{exitUsage, err}
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		return c.applyPausing(cmd.Context(), timeout, config, ch, p, targets)
	}
	return cmd
}

// targetsOf reads the arguments of pause and resume: none is everything. Unless any topic will do, it must be one of the
// configuration.
func targetsOf(config *Config, args []string, anyTopic bool) (targets []opslog.Target, err error) {
	if len(args) == 0 {
		return []opslog.Target{opslog.All()}, nil
	}
	for _, arg := range args {
		t, err := opslog.ParseTarget(arg)
		if err != nil {
			return nil, err
		}
		if _, meant, _ := config.route(t.Topic); !meant && !anyTopic {
			return nil, fmt.Errorf("topic %s is not in topics: write one of %s", t.Topic, strings.Join(config.meant(), ", "))
		}
		targets = append(targets, t)
	}
	return targets, nil
}

// errNothingToDo says that the log says already what an operation would say.
var errNothingToDo = errors.New("nothing to do")

func (c *cli) applyPausing(ctx context.Context, timeout time.Duration, config *Config, ch *change, p pausing, targets []opslog.Target) error {
	o, err := openOperations(ctx, config, !ch.dryRun)
	if err != nil {
		return err
	}
	defer o.end()
	looking, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	s, err := o.State(looking)
	if err != nil {
		return failedOperation(opslog.Entry{}, err)
	}
	effective, notes, err := p.judge(s, targets)
	if err != nil {
		return exitError{exitRefused, err}
	}
	for _, note := range notes {
		if _, err := fmt.Fprintln(c.stderr, note); err != nil {
			return err
		}
	}
	if len(effective) == 0 {
		_, err := fmt.Fprintln(c.stderr, errNothingToDo)
		return err
	}
	do, err := c.confirm(ctx, ch, func(w io.Writer) error {
		if ch.dryRun && c.output == "json" {
			return writeJSON(w, pausingPlan{config.Pipeline, p.verb, effective})
		}
		_, err := fmt.Fprintf(w, "%s of pipeline %s: %s\n", p.verb, config.Pipeline, listTargets(effective))
		return err
	})
	if !do {
		return err
	}
	writing, cancel := context.WithTimeout(ctx, timeout) // the question took its time
	defer cancel()
	e, err := o.append(writing, ch, p.body(targets), func(s *opslog.State) error {
		effective, _, err := p.judge(s, targets)
		switch {
		case err != nil:
			return exitError{exitRefused, err}
		case len(effective) == 0:
			return errNothingToDo // somebody else did it meanwhile
		}
		return nil
	})
	var said exitError
	switch {
	case errors.Is(err, errNothingToDo):
		_, err := fmt.Fprintln(c.stderr, errNothingToDo)
		return err
	case errors.As(err, &said):
		return err
	case err != nil:
		return failedOperation(e, err)
	}
	if c.output == "json" {
		return writeJSON(c.stdout, shownEntry{e, e.Hash()})
	}
	_, err = fmt.Fprintf(c.stdout, "%s %s (operation %d); members hear of it within %v\n", p.past, listTargets(effective), e.Seq, pollOperations)
	return err
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
		names = append(names, plain(t.String()))
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
				how := "connector resume " + by.Target.String()
				if by.Target == opslog.All() {
					how = "connector resume --all"
				}
				return nil, nil, fmt.Errorf("%v is paused with %v: %s; only as a whole it can be resumed: %s", t, by.Target, pausedSince(by), how)
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
	return fmt.Sprintf("by %s since %s: %s", plain(by.Operator), by.Since.Format(time.RFC3339), plain(by.Reason))
}
