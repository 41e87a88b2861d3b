package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"sluice/health"
	"sluice/health/membership"
	"sluice/internal/fail"
	"sluice/internal/open"
	"sluice/sink/opslog"
)

func (c *cli) membersCommand() *cobra.Command {
	cmd := c.membersListCommand("members [ID]")
	cmd.AddCommand(c.membersListCommand("list [ID]"), c.membersCleanupCommand())
	return cmd
}

// membersListCommand is what members does, under its own name and as members list.
func (c *cli) membersListCommand(use string) *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   use,
		Short: "Show who registered, and who is missed",
		Long: `Reads what members wrote into the store of registrations (members.store); no
running connector is needed. With an ID it shows that member alone. Ages are by
the store's clock. What is found decides nothing about the tables: those who
write into that store can write anything.

Exit code 1 if there is a finding, or if the member with that ID is not active.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
			defer cancel()
			return c.showMembers(ctx, args)
		},
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long to wait for the store")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// withMembers runs do on the store of registrations. Mistakes of the configuration are exit code 2, a store that cannot be
// used is 3.
func (c *cli) withMembers(ctx context.Context, do func(store membership.Store, members []membership.Member) error) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	store, err := open.Members(ctx, cfg)
	switch {
	case err != nil:
		return fail.Usage(err)
	case store == nil:
		return fail.Usage(errors.New("members register nowhere: write members.store and members.url_file"))
	}
	members, err := store.Members(ctx)
	if errors.Is(err, membership.ErrForeign) && members != nil {
		_, err = printf(c.stderr, "connector: %v\n", err)
	}
	if err != nil {
		err = fail.Dependency(err)
	} else {
		err = do(store, members)
	}
	return errors.Join(err, store.Close())
}

func (c *cli) showMembers(ctx context.Context, ids []string) error {
	return c.withMembers(ctx, func(_ membership.Store, members []membership.Member) error {
		if len(ids) > 0 {
			members = slices.DeleteFunc(members, func(m membership.Member) bool { return m.ID != ids[0] })
		}
		h := membership.Judge(members, time.Now())
		var err error
		if c.output == "json" {
			err = writeJSON(c.stdout, h)
		} else {
			err = printMembers(c.stdout, h)
		}
		inactive := len(ids) > 0 && !slices.ContainsFunc(members, membership.Member.Active)
		if err == nil && (len(h.Findings) > 0 || inactive) {
			err = fail.Found(nil)
		}
		return err
	})
}

// printMembers writes members for people.
func printMembers(out io.Writer, h health.Members) error {
	tw := newColumns(out)
	if len(h.Members) > 0 {
		_, _ = fmt.Fprintln(tw, "ID\tSTATUS\tACTIVE\tHEARTBEAT\tLAST RECORD\tLAG") // Flush has the error
	}
	for _, m := range h.Members {
		active, last, lag := "no", "-", "-"
		if m.Active {
			active = "yes"
		}
		if m.LastRecord != nil {
			last = m.LastRecord.Format(time.RFC3339)
		}
		if m.Lag != nil {
			lag = fmt.Sprint(*m.Lag)
		}
		_, _ = printf(tw, "%s\t%s\t%s\t%.0fs ago\t%s\t%s\n", m.ID, m.Status, active, m.Seconds, last, lag)
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for _, f := range h.Findings {
		if _, err := printf(out, "%s: %s: %s\n", f.Severity, f.ID, f.Finding); err != nil {
			return err
		}
	}
	_, err := printf(out, "%s\n", h.Reason)
	return err
}

func (c *cli) membersCleanupCommand() *cobra.Command {
	var timeout time.Duration
	cmd := &cobra.Command{
		Use:   "cleanup --reason TEXT",
		Short: "Remove registrations that nobody renewed, and forget who is missed",
		Long: `Ends the registrations whose time is over, as members do every members.sweep,
and forgets the members that have none, so that nobody misses them any longer.
A member that still runs registers again with its next heartbeat. No data, no
position and no partition is touched. The operations log gets an entry with the
members that are forgotten, before they are.`,
		Args: cobra.NoArgs,
	}
	ch := c.changeFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if err := c.checkChange(ch); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(cmd.Context(), timeout)
		defer cancel()
		return c.cleanMembers(ctx, ch)
	}
	cmd.Flags().DurationVar(&timeout, "timeout", 5*time.Minute, "how long to wait for the stores, and for an answer")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// cleaned is what members cleanup prints.
type cleaned struct {
	Removed   int      `json:"removed"`   // registrations whose time was over, and that nobody counted before
	Forgotten []string `json:"forgotten"` // members that had none
}

func (c *cli) cleanMembers(ctx context.Context, ch *change) error {
	return c.withMembers(ctx, func(store membership.Store, members []membership.Member) error {
		gone := slices.DeleteFunc(members, func(m membership.Member) bool { return m.Registered })
		if len(gone) == 0 && !ch.dryRun {
			ch.yes = true // there is nothing to ask about
		}
		do, err := c.confirm(ctx, ch, func(w io.Writer) error {
			for _, m := range gone {
				if _, err := printf(w, "forget %s, last seen %s ago\n", m.ID, m.Age.Round(time.Second)); err != nil {
					return err
				}
			}
			_, err := printf(w, "%s without a registration\n", counting(int64(len(gone)), "member"))
			return err
		})
		if err != nil || !do {
			return err
		}
		result, forget := cleaned{Forgotten: []string{}}, membership.Forget
		if len(gone) > 0 {
			forget = 0
			if err := c.auditCleanup(ctx, ch, gone); err != nil {
				return err
			}
		}
		if result.Removed, err = store.Sweep(ctx, forget); err != nil {
			return fail.Dependency(err)
		}
		left, err := store.Members(ctx)
		if err != nil && (left == nil || !errors.Is(err, membership.ErrForeign)) {
			return fail.Dependency(err)
		}
		for _, m := range gone {
			if _, still := slices.BinarySearchFunc(left, m.ID, func(m membership.Member, id string) int { return cmp.Compare(m.ID, id) }); !still {
				result.Forgotten = append(result.Forgotten, m.ID)
			}
		}
		if c.output == "json" {
			return writeJSON(c.stdout, result)
		}
		_, err = printf(c.stdout, "Removed %d stale consumers, forgot %d\n", result.Removed, len(result.Forgotten))
		return err
	})
}

// mostForgotten bounds the ids in an entry of the operations log, which has room for a mebibyte.
const mostForgotten = 1000

// auditCleanup writes into the operations log which members are about to be forgotten.
func (c *cli) auditCleanup(ctx context.Context, ch *change, gone []membership.Member) error {
	cfg, err := c.load()
	if err != nil {
		return err
	}
	o, err := openOperations(ctx, cfg, true)
	if err != nil {
		return err
	}
	defer o.end()
	body := opslog.ForgetMembers{More: max(len(gone)-mostForgotten, 0)}
	for _, m := range gone[:len(gone)-body.More] {
		body.Members = append(body.Members, m.ID)
	}
	_, err = o.append(ctx, ch, body, nil)
	return err
}
