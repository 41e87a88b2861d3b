package main

import (
	"context"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) auditListCommand() *cobra.Command {
	var since, timeout time.Duration
	cmd := &cobra.Command{
		Use:   "list",
		Short: "Show the operations log",
		Long: `Shows who did what, when and why, from the operations log, and the log's head.
Keep the head in another place: audit verify --head then finds missing newest
entries. The operator's name comes from --operator or $USER and is not proven.
Operations of later versions are shown, too. Exit code 1 if an entry cannot be
read.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.auditList(ctx, since)
		},
	}
	cmd.Flags().DurationVar(&since, "since", 0, "only entries of this duration back, such as 24h (default all)")
	cmd.Flags().DurationVar(&timeout, "timeout", time.Minute, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	c.serverFlags(cmd, "config")
	return cmd
}

func (c *cli) auditList(ctx context.Context, since time.Duration) error {
	oldest := time.Time{}
	if since > 0 {
		oldest = time.Now().Add(-since)
	}
	r, err := c.findOperations(ctx, oldest)
	if err != nil {
		return err
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, r)
	} else {
		err = printAudit(c.stdout, r)
	}
	if err == nil && len(r.Unreadable) > 0 {
		err = fail.Found(nil)
	}
	return err
}

// findOperations returns the operations since a time, from the member that --server names if it names one.
func (c *cli) findOperations(ctx context.Context, oldest time.Time) (*admin.AuditReport, error) {
	if c.remote() {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		return client.Audit(ctx, oldest)
	}
	a, err := c.access()
	if err != nil {
		return nil, err
	}
	return admin.Audit(ctx, a, oldest)
}

// printAudit prints the operations log as a table.
func printAudit(w io.Writer, r *admin.AuditReport) error {
	tw := terminal.NewColumns(w)
	_, _ = fmt.Fprintln(tw, "SEQ\tAT\tOPERATOR\tOPERATION\tREASON") // Flush returns the error
	for _, e := range r.Entries {
		who := e.Operator
		if e.Host != "" {
			who += "@" + e.Host
		}
		_, _ = terminal.Printf(tw, "%d\t%s\t%s\t%s\t%s\n", e.Seq, e.At.Format(time.RFC3339), who, admin.Describe(e.Entry), e.Reason)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, u := range r.Unreadable {
		if _, err := terminal.Printf(w, "seq %d: %s\n", u.Seq, u.Why); err != nil {
			return err
		}
	}
	head := "the log is empty"
	if r.Head != nil {
		head = "head " + r.Head.String()
	}
	_, err := fmt.Fprintln(w, head)
	return err
}
