package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/connector/kafka"
	"sluice/internal/config"
	"sluice/internal/fail"
)

func (c *cli) checkCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Connect to everything that is configured and say what is wrong",
		Long: `Looks at the configuration, connects to each broker and to the store, and looks
at each topic and where its dead letters go, the consumer group, each table, the
position of each partition, the operations log and, if there is one, the
database of fingerprints. Each line is ok, a warning, a problem (somebody has to
do something before records move), failed (it could not be reached or refuses
us) or skipped (it needs what failed); a hint says what to do. A topic that does
not exist is compared with those of the cluster: did you mean another?

It changes nothing, except that it puts and deletes a small object below
_sluice/selftest/ to find out whether the store is safe, and makes the tables
for fingerprints. The member at health.listen, if one answers there, is asked
for its holds; no member is disturbed. Exit code 1 for a problem, 2 for a
configuration that cannot be used, 3 if something failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.check(cmd.Context(), timeout) },
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "how long to wait for Kafka, and for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// status says how a finding stands.
type status string

const (
	statusOK      status = "ok"
	statusWarning status = "warning"
	statusProblem status = "problem" // exit code 1
	statusFailed  status = "failed"  // exit code 3
	statusSkipped status = "skipped"
)

// checked is one finding of check.
type checked struct {
	Status  status `json:"status"`
	Area    string `json:"area"`    // configuration, broker, topic, dead letters, group, storage, table, position, operations log, hold, fingerprints, members
	Subject string `json:"subject"` // which one
	Text    string `json:"text"`
	Hint    string `json:"hint,omitempty"`
}

// checks is a run of check: what it has found, in the order in which it looked.
type checks struct {
	config   *config.Config
	timeout  time.Duration
	findings []checked

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

func (k *checks) add(s status, area, subject, hint, format string, args ...any) {
	k.findings = append(k.findings, checked{s, area, subject, fmt.Sprintf(format, args...), hint})
}

// holds lists the holds that a member reports. Those that show without a member are findings of their own area.
func (k *checks) holds(ctx context.Context) {
	for _, h := range k.heldByMember(ctx).all {
		hint := instruction(h.EndsBy)
		if command := k.config.Pasted(h.command()); command != "" {
			hint += ": " + command
		}
		k.add(statusProblem, "hold", h.name(), hint, "%s: %s", h.Reason, h.Detail)
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

// result is an error if something failed or is a problem. The findings say all of it.
func (k *checks) result() (err error) {
	for _, f := range k.findings {
		switch f.Status {
		case statusFailed:
			return fail.Dependency(nil)
		case statusProblem:
			err = fail.Found(nil)
		case statusOK, statusWarning, statusSkipped:
		}
	}
	return err
}

func (c *cli) check(ctx context.Context, timeout time.Duration) error {
	k := &checks{}
	cfg, problems := config.Load(c.config, c.env)
	for _, p := range problems {
		s := statusProblem
		if p.Warning {
			s = statusWarning
		}
		k.findings = append(k.findings, checked{Status: s, Area: "configuration", Subject: p.Place(), Text: p.What()})
	}
	if cfg == nil {
		if err := c.report(k); err != nil {
			return err
		}
		return fail.Usage(nil)
	}
	k.add(statusOK, "configuration", c.config, "", "pipeline %s, group %s, %s and %s", cfg.Pipeline, cfg.Kafka.Group,
		counting(int64(len(cfg.Topics)), "topic"), counting(int64(len(cfg.Patterns)), "pattern"))
	k.config, k.timeout = cfg, timeout
	k.everything(ctx)
	if err := c.report(k); err != nil {
		return err
	}
	return k.result()
}

// report prints the findings.
func (c *cli) report(k *checks) error {
	if c.output == "json" {
		return writeJSON(c.stdout, map[string]any{"findings": k.findings})
	}
	return k.print(c.stdout)
}

func (k *checks) print(w io.Writer) error {
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, f := range k.findings {
		_, _ = printf(tw, "%s\t%s\t%s\t%s\n", f.Status, f.Area, f.Subject, f.Text) // Flush has the error
		if f.Hint != "" {
			_, _ = printf(tw, "\t\t\tto do: %s\n", f.Hint)
		}
	}
	return tw.Flush()
}
