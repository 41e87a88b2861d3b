package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
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
	c.listFlag(cmd)
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
	err = c.print(r, func(w io.Writer, wide bool) error { return printAudit(w, wide, r) })
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
	defer c.watch(a, "reading the operations log")()
	return admin.Audit(ctx, a, oldest)
}

// printAudit prints the operations log as a table.
func printAudit(w io.Writer, wide bool, r *admin.AuditReport) error {
	type entry = admin.RecordedEntry
	err := printList(w, wide, r.Entries,
		column[entry]{title: "SEQ", cell: func(e entry) string { return strconv.FormatInt(e.Seq, 10) }},
		column[entry]{title: "AT", cell: func(e entry) string { return cellTime(&e.At) }},
		column[entry]{title: "OPERATOR", cell: func(e entry) string {
			if e.Host == "" {
				return e.Operator
			}
			return e.Operator + "@" + e.Host
		}},
		column[entry]{title: "OPERATION", cell: func(e entry) string { return admin.Describe(e.Entry) }},
		column[entry]{title: "REASON", cell: func(e entry) string { return e.Reason }},
		column[entry]{title: "KIND", wide: true, cell: func(e entry) string { return string(e.Kind) }},
		column[entry]{title: "ID", wide: true, cell: func(e entry) string { return cellLine(e.ID) }},
		column[entry]{title: "HASH", wide: true, cell: func(e entry) string { return cellLine(e.Hash) }})
	if err != nil {
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
	_, err = fmt.Fprintln(w, head)
	return err
}
