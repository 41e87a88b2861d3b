package main

import (
	"context"
	"fmt"
	"io"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) checkCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Connect to each configured system and report problems",
		Long: `Checks the configuration, connects to each broker and to the store, and checks
each topic and the place of its dead letters, the consumer group, each table,
the position of each partition, the operations log and, if configured, the
database of fingerprints. Each line is ok, a warning, a problem (an operator
must act before records move), failed (the system did not respond or refused) or
skipped (it depends on something that failed); a hint says what to do. For a
topic that does not exist, the hint names similar topics of the cluster.

It changes nothing, with two exceptions: it puts and deletes a small object
below _sluice/selftest/, to test the store, and it creates the tables for
fingerprints. It asks the member at health.listen, if one responds there, for
its holds; no member is disturbed. Exit code 1 for a problem, 2 for a wrong
configuration, 3 if something failed.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return c.check(cmd.Context(), timeout) },
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 15*time.Second, "how long to wait for Kafka, and for the store")
	c.configFlag(cmd)
	c.listFlag(cmd)
	return cmd
}

// result returns the error that gives check its exit code: that of a dependency if a finding has the status failed,
// else that of [fail.Found] if a finding has the status problem, else nil. The error has no text.
func result(findings []admin.Finding) (err error) {
	for _, f := range findings {
		switch f.Status {
		case admin.StatusFailed:
			return fail.Dependency(nil)
		case admin.StatusProblem:
			err = fail.Found(nil)
		case admin.StatusOK, admin.StatusWarning, admin.StatusSkipped:
		}
	}
	return err
}

func (c *cli) check(ctx context.Context, timeout time.Duration) error {
	cfg, problems := config.Load(c.config, c.env)
	var findings []admin.Finding
	for _, p := range problems {
		s := admin.StatusProblem
		if p.Warning {
			s = admin.StatusWarning
		}
		findings = append(findings, admin.Finding{Status: s, Area: "configuration", Subject: p.Place(), Text: p.What()})
	}
	if cfg == nil {
		if err := c.report(findings); err != nil {
			return err
		}
		return fail.Usage(nil)
	}
	findings = append(findings, admin.Finding{
		Status: admin.StatusOK, Area: "configuration", Subject: c.config, Text: fmt.Sprintf("pipeline %s, group %s, %s and %s", cfg.Pipeline, cfg.Kafka.Group,
			admin.Counting(int64(len(cfg.Topics)), "topic"), admin.Counting(int64(len(cfg.Patterns)), "pattern")),
	})
	a := &admin.Access{Config: cfg, Version: readBuild().Version}
	end := c.watch(a, "connecting to each system")
	findings = append(findings, admin.Check(ctx, a, timeout)...)
	end()
	if err := c.report(findings); err != nil {
		return err
	}
	return result(findings)
}

// report prints the findings in the format of the flag --output.
func (c *cli) report(findings []admin.Finding) error {
	return c.print(map[string]any{"findings": findings}, func(w io.Writer, wide bool) error { return printFindings(w, wide, findings) })
}

// printFindings prints a line for each finding, and a line with its hint below it; a wide list has the hints in a column.
func printFindings(w io.Writer, wide bool, findings []admin.Finding) error {
	if wide {
		type finding = admin.Finding
		return printList(w, wide, findings,
			column[finding]{title: "STATUS", cell: func(f finding) string { return string(f.Status) }},
			column[finding]{title: "AREA", cell: func(f finding) string { return f.Area }},
			column[finding]{title: "SUBJECT", cell: func(f finding) string { return f.Subject }},
			column[finding]{title: "FINDING", cell: func(f finding) string { return cellLine(f.Text) }},
			column[finding]{title: "TO DO", cell: func(f finding) string { return cellLine(f.Hint) }})
	}
	tw := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, f := range findings {
		_, _ = terminal.Printf(tw, "%s\t%s\t%s\t%s\n", f.Status, f.Area, f.Subject, f.Text) // Flush returns the error
		if f.Hint != "" {
			_, _ = terminal.Printf(tw, "\t\t\tto do: %s\n", f.Hint)
		}
	}
	return tw.Flush()
}
