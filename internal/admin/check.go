package admin

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"time"

	"sluice/connector/kafka"
	"sluice/internal/config"
)

// Status says how a finding stands.
type Status string

// How a finding stands.
const (
	StatusOK      Status = "ok"
	StatusWarning Status = "warning"
	StatusProblem Status = "problem" // an operator must act before records move
	StatusFailed  Status = "failed"  // it could not be reached, or refuses us
	StatusSkipped Status = "skipped"
)

// Finding is one finding of a check.
type Finding struct {
	Status  Status `json:"status"`
	Area    string `json:"area"`    // configuration, broker, topic, dead letters, group, storage, table, position, operations log, hold, fingerprints, members
	Subject string `json:"subject"` // which one
	Text    string `json:"text"`
	Hint    string `json:"hint,omitempty"`
}

// checks is a run of check: what it has found, in the order in which it looked.
type checks struct {
	config   *config.Config
	timeout  time.Duration
	findings []Finding

	reported *held    // by the member; nil before it was asked
	existing []string // topics of the cluster; nil before it was asked, or if it did not answer
}

// heldByMember returns the holds that the member reports. It asks once.
func (k *checks) heldByMember(ctx context.Context) *held {
	if k.reported == nil {
		k.reported = heldByMember(ctx, k.config)
	}
	return k.reported
}

// everything looks at Kafka, the store, and at what lies between them. What needs a part that cannot be used is skipped.
func (k *checks) everything(ctx context.Context) {
	ask, end := k.kafka(ctx)
	defer end()
	safe := k.storage(ctx)
	names := k.names(ctx, ask)
	tables, closeTables := k.tables(ctx, names, safe)
	defer closeTables()
	k.topics(ctx, ask, tables)
	k.letters(ctx, ask, names)
	k.group(ctx, ask)
	k.operations(ctx, safe)
	k.holds(ctx)
	k.fingerprints(ctx)
	k.members(ctx)
}

func (k *checks) add(s Status, area, subject, hint, format string, args ...any) {
	k.findings = append(k.findings, Finding{s, area, subject, fmt.Sprintf(format, args...), hint})
}

// holds lists the holds that a member reports. Those that show without a member are findings of their own area.
func (k *checks) holds(ctx context.Context) {
	for _, h := range k.heldByMember(ctx).all {
		hint := instruction(h.EndsBy)
		if command := k.config.Pasted(h.command()); command != "" {
			hint += ": " + command
		}
		k.add(StatusProblem, "hold", h.Name(), hint, "%s: %s", h.Reason, h.Detail)
	}
}

// instruction says as a sentence for the operator what ends a hold.
func instruction(ends string) string {
	if rest, byItself := strings.CutPrefix(ends, "by itself "); byItself {
		return "wait: it ends by itself " + rest
	}
	return strings.TrimPrefix(ends, "an operator: ")
}

// missingTopic says what to do about a topic that does not exist. It names the topic of the cluster that was probably meant.
func (k *checks) missingTopic(ctx context.Context, ask *questions, name string) string {
	if k.existing == nil {
		every := kafka.NewGroup(ask.client, kafka.GroupConfig{Matches: func(string) bool { return true }}, slog.New(slog.DiscardHandler), nil)
		if there, err := every.Topics(ctx); err == nil {
			k.existing = there
		}
	}
	if meant := k.meantTopic(name); meant != "" {
		return fmt.Sprintf("did you mean %s? Correct the name in topics, or create the topic", meant)
	}
	return "create the topic, or correct its name in topics"
}

// meantTopic returns the topic whose name is nearest to name among those that no entry of topics names, "" if none is near.
func (k *checks) meantTopic(name string) (meant string) {
	least := max(1, min(2, len(name)/3)) + 1
	for _, t := range k.existing {
		if _, taken := k.config.Topics[t]; taken {
			continue
		}
		if d := config.Distance(strings.ToLower(name), strings.ToLower(t)); d < least {
			meant, least = t, d
		}
	}
	return meant
}

// Check looks at everything that a member would use. Kafka, and the store, may each take as long as within.
func Check(ctx context.Context, a *Access, within time.Duration) []Finding {
	k := &checks{config: a.Config, timeout: within}
	k.everything(ctx)
	return k.findings
}
