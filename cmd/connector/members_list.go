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

func (c *cli) showMembers(ctx context.Context, ids []string) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	id := ""
	if len(ids) > 0 {
		id = ids[0]
	}
	r, closed := Members(ctx, a, id)
	if r == nil {
		return closed
	}
	if err := c.warnForeign(r.Foreign); err != nil {
		return errors.Join(err, closed)
	}
	if c.output == "json" {
		err = writeJSON(c.stdout, r.Members)
	} else {
		err = printMembers(c.stdout, r.Members)
	}
	if err == nil && (len(r.Members.Findings) > 0 || id != "" && !r.Active) {
		err = fail.Found(nil)
	}
	return errors.Join(err, closed)
}

// warnForeign says that the store of registrations has what another program wrote.
func (c *cli) warnForeign(err error) error {
	if err == nil {
		return nil
	}
	_, err = printf(c.stderr, "connector: %v\n", err)
	return err
}

// MemberReport is who registered, and what is found of them.
type MemberReport struct {
	Members health.Members
	Active  bool  // one of them is active
	Foreign error // the store has what another program wrote, too
}

// Members returns who registered, or the member with an id alone. Mistakes of the configuration are errors of
// [fail.KindUsage]. If there are both, the report and an error, the store could not be closed.
func Members(ctx context.Context, a *Access, id string) (r *MemberReport, err error) {
	s, err := openRegistrations(ctx, a)
	if err != nil {
		return nil, err
	}
	members := s.members
	if id != "" {
		members = slices.DeleteFunc(members, func(m membership.Member) bool { return m.ID != id })
	}
	return &MemberReport{
		Members: membership.Judge(members, time.Now()), Active: slices.ContainsFunc(members, membership.Member.Active), Foreign: s.foreign,
	}, s.store.Close()
}

// registry is the store where members register, as it was read.
type registry struct {
	store   membership.Store
	members []membership.Member
	foreign error
}

func openRegistrations(ctx context.Context, a *Access) (*registry, error) {
	store, err := open.Members(ctx, a.Config)
	switch {
	case err != nil:
		return nil, fail.Usage(err)
	case store == nil:
		return nil, fail.Usage(errors.New("members register nowhere: write members.store and members.url_file"))
	}
	s := &registry{store: store}
	s.members, err = store.Members(ctx)
	if errors.Is(err, membership.ErrForeign) && s.members != nil {
		s.foreign, err = err, nil
	}
	if err != nil {
		return nil, errors.Join(fail.Dependency(err), store.Close())
	}
	return s, nil
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

func (c *cli) cleanMembers(ctx context.Context, ch *change) (err error) {
	a, err := c.access()
	if err != nil {
		return err
	}
	defer a.Close()
	p, err := PlanCleanup(ctx, a)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.Close()) }()
	if err := c.warnForeign(p.Foreign); err != nil {
		return err
	}
	if len(p.Gone) == 0 && !ch.dryRun {
		ch.yes = true // there is nothing to ask about
	}
	do, err := c.confirm(ctx, ch, func(w io.Writer) error {
		for _, m := range p.Gone {
			if _, err := printf(w, "forget %s, last seen %s ago\n", m.ID, m.Age.Round(time.Second)); err != nil {
				return err
			}
		}
		_, err := printf(w, "%s without a registration\n", counting(int64(len(p.Gone)), "member"))
		return err
	})
	if err != nil || !do {
		return err
	}
	result, err := Cleanup(ctx, a, p, ch.by())
	if err != nil {
		return err
	}
	if c.output == "json" {
		return writeJSON(c.stdout, result)
	}
	_, err = printf(c.stdout, "Removed %d stale consumers, forgot %d\n", result.Removed, len(result.Forgotten))
	return err
}

// CleanupPlan is which members would be forgotten. Whoever has it closes it.
type CleanupPlan struct {
	Gone    []membership.Member // without a registration
	Foreign error               // the store has what another program wrote, too

	store membership.Store
}

// PlanCleanup finds the members without a registration.
func PlanCleanup(ctx context.Context, a *Access) (*CleanupPlan, error) {
	s, err := openRegistrations(ctx, a)
	if err != nil {
		return nil, err
	}
	gone := slices.DeleteFunc(s.members, func(m membership.Member) bool { return m.Registered })
	return &CleanupPlan{Gone: gone, Foreign: s.foreign, store: s.store}, nil
}

// Close ends the connection to the store of registrations.
func (p *CleanupPlan) Close() error { return p.store.Close() }

// CleanupResult is what a cleanup did.
type CleanupResult struct {
	Removed   int      `json:"removed"`   // registrations whose time was over, and that nobody counted before
	Forgotten []string `json:"forgotten"` // members that had none
}

// mostForgotten bounds the ids in an entry of the operations log, which has room for a mebibyte.
const mostForgotten = 1000

// Cleanup removes the registrations whose time is over and forgets the members of a plan. The operations log gets an entry
// with those that are forgotten, before they are.
func Cleanup(ctx context.Context, a *Access, p *CleanupPlan, by By) (*CleanupResult, error) {
	result, forget := &CleanupResult{Forgotten: []string{}}, membership.Forget
	if len(p.Gone) > 0 {
		forget = 0
		log, err := a.operations(ctx)
		if err != nil {
			return nil, err
		}
		body := opslog.ForgetMembers{More: max(len(p.Gone)-mostForgotten, 0)}
		for _, m := range p.Gone[:len(p.Gone)-body.More] {
			body.Members = append(body.Members, m.ID)
		}
		if _, err := log.append(ctx, by, body, nil); err != nil {
			return nil, err
		}
	}
	var err error
	if result.Removed, err = p.store.Sweep(ctx, forget); err != nil {
		return nil, fail.Dependency(err)
	}
	left, err := p.store.Members(ctx)
	if err != nil && (left == nil || !errors.Is(err, membership.ErrForeign)) {
		return nil, fail.Dependency(err)
	}
	for _, m := range p.Gone {
		if _, still := slices.BinarySearchFunc(left, m.ID, func(m membership.Member, id string) int { return cmp.Compare(m.ID, id) }); !still {
			result.Forgotten = append(result.Forgotten, m.ID)
		}
	}
	return result, nil
}
