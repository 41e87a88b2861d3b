package admin

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// LongestAllowance is the longest time for which an operator may allow a flood: so many dead letters that the topic
// would otherwise be held. A permanent allowance would disable this protection.
const LongestAllowance = 30 * 24 * time.Hour

// PlanAllow plans to allow any number of a topic's records to become dead letters until a time.
func PlanAllow(ctx context.Context, a *Access, topic string, until time.Time) (*Decision, error) {
	if err := Floodable(a.Config, topic); err != nil {
		return nil, fail.Usage(err)
	}
	if lasts := time.Until(until); lasts > LongestAllowance {
		return nil, fail.Usage(fmt.Errorf("an allowance of %v: at most %v can be allowed", lasts, LongestAllowance))
	}
	allow := opslog.FloodAllow{Topic: topic, Until: until}
	d := &Decision{
		Text: fmt.Sprintf("pipeline %s: %s", a.Config.Pipeline, allowance(allow)), Done: allowance(allow),
		Plan:   AllowPlan{a.Config.Pipeline, opslog.KindFloodAllow, allow},
		bodies: []opslog.Body{allow}, judge: func(s *opslog.State) ([]string, error) { return allowable(s, allow) },
	}
	return d.decide(ctx, a)
}

// AllowPlan is a planned allowance as a struct, for JSON.
type AllowPlan struct {
	Pipeline string      `json:"pipeline"`
	Kind     opslog.Kind `json:"kind"`
	opslog.FloodAllow
}

func allowance(f opslog.FloodAllow) string {
	return fmt.Sprintf("any number of records of %s may become dead letters until %s", f.Topic, f.Until.Format(time.RFC3339))
}

// Floodable returns an error if a flood of dead letters cannot hold a topic, so that an allowance would have no effect.
func Floodable(cfg *config.Config, topic string) error {
	switch t, meant, _ := cfg.Route(topic); {
	case strings.Contains(topic, ":"):
		return errors.New("a flood is allowed for a topic as a whole: write TOPIC without a partition")
	case !meant:
		return NoTopic(cfg, topic)
	case t.BadRecords != "dead_letter":
		return fmt.Errorf("topic %s has bad_records: %s, so none of its records becomes a dead letter: nothing of it can be a flood", topic, t.BadRecords)
	}
	return nil
}

// allowable checks an allowance against the state of the operations log. It returns a note about the allowance that the
// new one would replace, and ErrNothingToDo if the log already has the effect of the new one.
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
