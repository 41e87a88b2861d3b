package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/health"
	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) membersCommand() *cobra.Command {
	cmd := c.membersListCommand("members [ID]")
	cmd.AddCommand(c.membersListCommand("list [ID]"), c.membersCleanupCommand())
	return cmd
}

// membersListCommand returns a command that lists members. It is used under two names: members without a subcommand,
// and members list.
func (c *cli) membersListCommand(use string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   use,
		Short: "Show registered and missing members",
		Long: `Reads the store of registrations (members.store); no running connector is
needed. With an ID it shows only that member. Ages are by the store's clock.
Registrations have no effect on the tables: any program with access to that
store can write any status.

Exit code 1 if there is a finding, or if the member with that ID is not active.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if c.remote() {
				return c.showMembersAt(cmd.Context(), args)
			}
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.showMembers(ctx, args)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.listFlag(cmd)
	c.serverFlags(cmd, "config")
	return cmd
}

func (c *cli) showMembers(ctx context.Context, ids []string) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	id := ""
	if len(ids) > 0 {
		id = ids[0]
	}
	r, closed := admin.Members(ctx, a, id)
	if r == nil {
		return closed
	}
	if err := c.warnForeign(r.Foreign); err != nil {
		return errors.Join(err, closed)
	}
	return errors.Join(c.reportMembers(r.Members, id != "" && !r.Active), closed)
}

// showMembersAt shows the members that a member finds. The API judges all members, so an ID is refused.
func (c *cli) showMembersAt(ctx context.Context, ids []string) error {
	if len(ids) > 0 {
		return fail.Usage(errors.New("with --server the command lists all members: leave out the ID"))
	}
	client, err := c.client()
	if err != nil {
		return err
	}
	r, err := client.Members(ctx)
	if err != nil {
		return err
	}
	return c.reportMembers(r.Members, false)
}

// reportMembers prints members, and returns an error if there is a finding, or if found is true.
func (c *cli) reportMembers(m health.Members, found bool) error {
	err := c.print(m, func(w io.Writer, wide bool) error { return printMembers(w, wide, m) })
	if err == nil && (len(m.Findings) > 0 || found) {
		err = fail.Found(nil)
	}
	return err
}

// warnForeign prints err if it says that the store of registrations also has data of another program. It prints nothing
// if err is nil. The error that it returns is that of printing.
func (c *cli) warnForeign(err error) error {
	if err == nil {
		return nil
	}
	_, err = terminal.Printf(c.stderr, "connector: %v\n", err)
	return err
}

// printMembers prints members as a table, and their findings.
func printMembers(out io.Writer, wide bool, h health.Members) error {
	if len(h.Members) > 0 {
		active := map[bool]string{true: "yes", false: "no"}
		err := printList(out, wide, h.Members,
			column[health.Member]{title: "ID", cell: func(m health.Member) string { return m.ID }},
			column[health.Member]{title: "STATUS", cell: func(m health.Member) string { return m.Status }},
			column[health.Member]{title: "ACTIVE", cell: func(m health.Member) string { return active[m.Active] }},
			column[health.Member]{title: "HEARTBEAT", cell: func(m health.Member) string { return fmt.Sprintf("%.0fs ago", m.Seconds) }},
			column[health.Member]{title: "LAST RECORD", cell: func(m health.Member) string { return cellTime(m.LastRecord) }},
			column[health.Member]{title: "LAG", cell: func(m health.Member) string { return cellNumber(m.Lag) }},
			column[health.Member]{title: "ADDRESS", cell: func(m health.Member) string { return cmp.Or(m.Address, "-") }},
			column[health.Member]{title: "FINDING", wide: true, cell: func(m health.Member) string { return findingOf(h, m.ID) }})
		if err != nil {
			return err
		}
	}
	for _, f := range h.Findings {
		if _, err := terminal.Printf(out, "%s: %s: %s\n", f.Severity, f.ID, f.Finding); err != nil {
			return err
		}
	}
	_, err := terminal.Printf(out, "%s\n", h.Reason)
	return err
}

// findingOf returns the findings about a member as one line.
func findingOf(h health.Members, id string) string {
	var texts []string
	for _, f := range h.Findings {
		if f.ID == id {
			texts = append(texts, fmt.Sprintf("%s: %s", f.Severity, f.Finding))
		}
	}
	return cellLine(strings.Join(texts, "; "))
}
