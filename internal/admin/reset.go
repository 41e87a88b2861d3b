package admin

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/sink/opslog"
)

// Forgettable returns an error if a topic has no fingerprints that could be reset.
func Forgettable(cfg *config.Config, name string) error {
	topic, meant, _ := cfg.Route(name)
	switch {
	case !meant:
		return fail.Usage(fmt.Errorf("topic %s is not in topics: write one of %v", name, cfg.Meant()))
	case topic.ProducerIdentity().By == idempotency.ByNone:
		return fail.Usage(fmt.Errorf("topic %s has identity.by: none, so it has no fingerprints", name))
	}
	return nil
}

// PlanReset plans to forget the fingerprints of a topic below its current positions.
func PlanReset(ctx context.Context, a *Access, topic string) (*Decision, error) {
	if err := Forgettable(a.Config, topic); err != nil {
		return nil, err
	}
	reset, err := resetRange(ctx, a.Config, topic)
	if err != nil {
		return nil, err
	}
	line := fmt.Sprintf("the fingerprints of %s are forgotten, as far as table %s goes: %s", reset.Topic, reset.Table, listBelow(reset.Below))
	d := &Decision{
		Text: fmt.Sprintf("pipeline %s: %s", a.Config.Pipeline, line), Done: line,
		Plan: ResetPlan{a.Config.Pipeline, opslog.KindForget, reset}, bodies: []opslog.Body{reset},
		judge: func(s *opslog.State) ([]string, error) {
			if !slices.ContainsFunc(reset.Below, func(b opslog.Below) bool { return b.Offset > s.Forgotten(reset.Topic, b.TopicID, b.Partition) }) {
				return []string{"nothing of " + reset.Topic + " is remembered"}, ErrNothingToDo
			}
			return nil, nil
		},
	}
	return d.decide(ctx, a)
}

// ResetPlan is a planned reset as a struct, for JSON.
type ResetPlan struct {
	Pipeline string      `json:"pipeline"`
	Kind     opslog.Kind `json:"kind"`
	opslog.Forget
}

func listBelow(all []opslog.Below) string {
	texts := make([]string, len(all))
	for i, b := range all {
		texts[i] = fmt.Sprintf("partition %d below offset %d", b.Partition, b.Offset)
	}
	return strings.Join(texts, ", ")
}

// resetRange returns a reset of the fingerprints of a topic below its current positions. Members keep the fingerprints
// of rows at later offsets.
func resetRange(ctx context.Context, cfg *config.Config, topic string) (f opslog.Forget, err error) {
	all, end, err := openAll(ctx, cfg, []string{topic})
	if err != nil {
		return f, err
	}
	defer end()
	s, _, err := all[0].snapshot(ctx)
	if err != nil {
		return f, err
	}
	f = opslog.Forget{Topic: topic, Table: all[0].table.Table}
	for appID, next := range s.Positions {
		id, err := idempotency.ParseAppID(appID)
		if err == nil && id.TableID == "" && id.Pipeline == cfg.Pipeline && id.Partition.Topic == topic {
			f.Below = append(f.Below, opslog.Below{TopicID: id.Partition.TopicID.String(), Partition: id.Partition.ID, Offset: next})
		}
	}
	if len(f.Below) == 0 {
		return f, fail.Refused(fmt.Errorf("table %s has no position of topic %s: nothing is remembered", f.Table, topic))
	}
	slices.SortFunc(f.Below, func(a, b opslog.Below) int {
		return cmp.Or(cmp.Compare(a.Partition, b.Partition), cmp.Compare(a.TopicID, b.TopicID))
	})
	return f, nil
}
