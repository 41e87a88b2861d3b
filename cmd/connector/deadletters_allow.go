package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// longestAllowance bounds for how long a flood may be allowed at once: what is allowed for ever protects nobody.
const longestAllowance = 30 * 24 * time.Hour

func (c *cli) deadLettersAllowCommand() *cobra.Command {
	var lasts, timeout time.Duration
	cmd := &cobra.Command{
		Use:   "allow TOPIC --reason TEXT",
		Short: "Let any number of a topic's records become dead letters for a while",
		Long: `The way out of the hold "flood": most of what was read of a topic cannot become
rows, so nothing of it was made a dead letter yet. Writes to the operations log
that it may; no running connector is needed. Members hear of it within ten
seconds and go on by themselves.

The newest allowance of a topic holds: a shorter one takes an earlier one back,
--for 0s at once. If the records are right and the configuration is wrong,
correct that instead: the hold ends when they can become rows.`,
		Example: `  connector deadletters allow orders --for 1h --reason "the bad deploy of 14:00, the producer is fixed"`,
		Args:    cobra.ExactArgs(1),
	}
	ch := c.changeFlags(cmd)
	cmd.Flags().DurationVar(&lasts, "for", time.Hour, "how long")
	cmd.Flags().DurationVar(&timeout, "timeout", 30*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		cfg, err := c.load()
		if err != nil {
			return err
		}
		if err := floodable(cfg, args[0]); err != nil {
			return fail.Usage(err)
		}
		if lasts < 0 || lasts > longestAllowance {
			return fail.Usage(fmt.Errorf("--for %v: write a duration from 0s to %v", lasts, longestAllowance))
		}
		if err := c.checkChange(ch); err != nil {
			return err
		}
		until := time.Now().Add(lasts).UTC().Truncate(time.Second)
		return c.decide(cmd.Context(), timeout, ch, func(ctx context.Context, a *Access) (*Decision, error) { return PlanAllow(ctx, a, args[0], until) })
	}
	return cmd
}

// PlanAllow plans to let any number of a topic's records become dead letters until a time.
func PlanAllow(ctx context.Context, a *Access, topic string, until time.Time) (*Decision, error) {
	if err := floodable(a.Config, topic); err != nil {
		return nil, fail.Usage(err)
	}
	if lasts := time.Until(until); lasts > longestAllowance {
		return nil, fail.Usage(fmt.Errorf("an allowance of %v: at most %v can be allowed", lasts, longestAllowance))
	}
	allow := opslog.FloodAllow{Topic: topic, Until: until}
	d := &Decision{
		Text: fmt.Sprintf("pipeline %s: %s", a.Config.Pipeline, allowance(allow)), Done: allowance(allow),
		Plan: allowPlan{a.Config.Pipeline, opslog.KindFloodAllow, allow},
		body: allow, judge: func(s *opslog.State) ([]string, error) { return allowable(s, allow) },
	}
	return d.decide(ctx, a)
}

// allowPlan is the plan of an allowance.
type allowPlan struct {
	Pipeline string      `json:"pipeline"`
	Kind     opslog.Kind `json:"kind"`
	opslog.FloodAllow
}

func allowance(f opslog.FloodAllow) string {
	return fmt.Sprintf("any number of records of %s may become dead letters until %s", f.Topic, f.Until.Format(time.RFC3339))
}

// floodable tells whether a flood of a topic is anything that could be held.
func floodable(cfg *config.Config, topic string) error {
	switch t, meant, _ := cfg.Route(topic); {
	case strings.Contains(topic, ":"):
		return errors.New("a flood is allowed for a topic as a whole: write TOPIC without a partition")
	case !meant:
		return fmt.Errorf("topic %s is not in topics: write one of %s", topic, strings.Join(cfg.Meant(), ", "))
	case t.BadRecords != "dead_letter":
		return fmt.Errorf("topic %s has bad_records: %s, so none of its records becomes a dead letter: nothing of it can be a flood", topic, t.BadRecords)
	}
	return nil
}

// allowable says what the allowance takes the place of.
func allowable(s *opslog.State, f opslog.FloodAllow) (notes []string, err error) {
	old, ok := s.FloodAllowance(f.Topic)
	switch stands := ok && s.FloodAllowed(f.Topic, time.Now()); {
	case stands && old.Until.Equal(f.Until):
		return nil, ErrNothingToDo
	case stands:
		return []string{fmt.Sprintf("it was allowed until %s by %s: %s; this takes its place", old.Until.Format(time.RFC3339), old.Operator, old.Reason)}, nil
	case !f.Until.After(time.Now()):
		return []string{f.Topic + " has no allowance"}, ErrNothingToDo
	}
	return nil, nil
}
