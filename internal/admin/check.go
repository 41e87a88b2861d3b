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

// Status is the result of a check.
type Status string

// The statuses of a finding.
const (
	StatusOK      Status = "ok"
	StatusWarning Status = "warning"
	StatusProblem Status = "problem" // no records arrive in the table until an operator acts
	StatusFailed  Status = "failed"  // the dependency did not respond, or denies access
	StatusSkipped Status = "skipped" // not checked, because it needs something that failed
)

// Finding is one finding of a check.
type Finding struct {
	Status  Status `json:"status"`
	Area    string `json:"area"`    // configuration, broker, topic, dead letters, group, storage, table, position, operations log, hold, fingerprints, members
	Subject string `json:"subject"` // the subject within the area, such as a topic, a URL or an address
	Text    string `json:"text"`
	Hint    string `json:"hint,omitempty"`
}

// checks is one run of the command check, with its findings in the order of the checks.
type checks struct {
	config   *config.Config
	timeout  time.Duration
	findings []Finding

	reported *held    // the holds that the member reports; nil before it was asked
	existing []string // the topics of the cluster; nil before they were requested, or if that failed
}

// heldByMember returns the holds that the member at health.listen reports. It asks the member once in a run of check.
func (k *checks) heldByMember(ctx context.Context) *held {
	if k.reported == nil {
		k.reported = heldByMember(ctx, k.config)
	}
	return k.reported
}

// run checks Kafka and the store, and then what needs them. A check that cannot be made because its dependency failed
// becomes a finding with the status skipped.
func (k *checks) run(ctx context.Context) {
	k.tempDir()
	queries, end := k.kafka(ctx)
	defer end()
	safe := k.storage(ctx)
	names := k.names(ctx, queries)
	tables, closeTables := k.tables(ctx, names, safe)
	defer closeTables()
	k.topics(ctx, queries, tables)
	k.letters(ctx, queries, names)
	k.group(ctx, queries)
	k.operations(ctx, safe)
	k.holds(ctx)
	k.fingerprints(ctx)
	k.members(ctx)
	k.mirror(ctx)
}

func (k *checks) add(s Status, area, subject, hint, format string, args ...any) {
	k.findings = append(k.findings, Finding{s, area, subject, fmt.Sprintf(format, args...), hint})
}

// holds adds a finding for each hold that only a member knows. Holds that Kafka and the tables show are found by other
// checks.
func (k *checks) holds(ctx context.Context) {
	for _, h := range k.heldByMember(ctx).all {
		hint := instruction(h.EndsBy)
		if command := k.config.Pasted(h.command()); command != "" {
			hint += ": " + command
		}
		k.add(StatusProblem, "hold", h.Name(), hint, "%s: %s", h.Reason, h.Detail)
	}
}

// instruction turns the text EndsBy of a hold reason into an instruction for the operator, which may be to wait.
func instruction(ends string) string {
	if rest, byItself := strings.CutPrefix(ends, "by itself "); byItself {
		return "wait: it ends by itself " + rest
	}
	return strings.TrimPrefix(ends, "an operator: ")
}

// missingTopic returns the hint for a topic that does not exist. If the cluster has a topic with a similar name, the
// hint suggests it.
func (k *checks) missingTopic(ctx context.Context, queries *kafkaQueries, name string) string {
	if k.existing == nil {
		every := kafka.NewGroup(queries.client, kafka.GroupConfig{Matches: func(string) bool { return true }}, slog.New(slog.DiscardHandler), nil)
		if there, err := every.Topics(ctx); err == nil {
			k.existing = there
		}
	}
	if meant := k.meantTopic(name); meant != "" {
		return fmt.Sprintf("did you mean %s? Correct the name in topics, or create the topic", meant)
	}
	return "create the topic, or correct its name in topics"
}

// meantTopic returns the topic of the cluster whose name is most similar, among the topics that have no entry in the
// configuration. It returns "" if no name is similar.
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

// Check checks all dependencies of a member. Each step may take as long as within.
func Check(ctx context.Context, a *Access, within time.Duration) []Finding {
	k := &checks{config: a.Config, timeout: within}
	k.run(ctx)
	return k.findings
}
