package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) holdsCommand() *cobra.Command {
	var (
		members []string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "holds",
		Short: "Show held partitions, the reasons, and the commands that end the holds",
		Long: `Lists every hold: those that the tables, Kafka and the operations log show, and
those that running members report (a store that is down, a commit without an
outcome). The command asks the member at health.listen of this configuration,
the members that are registered in members.store, and those named with --member.
FROM is the source: a member by its name. More than three partitions of
a topic with the same hold share a line, such as orders:0-15; JSON lists each.

A partition without a member is checked as a member would: is its position in
the log, can the record there be read, does it fit the table? Members, the store
and Kafka get half of --timeout each, so that an outage of one does not hide the
others: notes name the systems that did not respond, and what is therefore
unknown. They also name a dependency that fails for a member without a hold.
Exit code 1 if a partition is held, 3 if none is known to be held and a system
did not respond, or fails.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if c.remote() {
				return c.showHoldsAt(cmd.Context())
			}
			return c.showHolds(cmd.Context(), members, timeout)
		},
	}
	cmd.Flags().StringSliceVar(&members, "member", nil, "also ask the member at this address, such as http://host:8080")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long the command may take")
	c.configFlag(cmd)
	c.topicFlag(cmd)
	c.listFlag(cmd)
	c.serverFlags(cmd, "config", "member")
	cmd.AddCommand(c.holdsRecheckCommand())
	return cmd
}

func (c *cli) showHolds(ctx context.Context, members []string, timeout time.Duration) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	end := c.watch(a, "asking the members, the store and Kafka")
	found := admin.Holds(ctx, a, admin.HoldQuery{Topic: c.topic, Members: members, Within: timeout})
	end()
	return c.reportHolds(found)
}

// showHoldsAt shows the holds that a member finds.
func (c *cli) showHoldsAt(ctx context.Context) error {
	client, err := c.client()
	if err != nil {
		return err
	}
	found, err := client.Holds(ctx, c.topic)
	if err != nil {
		return err
	}
	return c.reportHolds(found)
}

// reportHolds prints holds, and returns an error if there are some, or if a source did not respond.
func (c *cli) reportHolds(found *admin.HoldReport) error {
	err := c.print(found.Holds, func(w io.Writer, wide bool) error { return printHolds(w, wide, found) })
	switch {
	case err != nil:
		return err
	case len(found.Holds) > 0:
		return fail.Found(errors.Join(found.Missed...))
	case len(found.Missed) > 0:
		return fail.Dependency(errors.Join(found.Missed...))
	}
	return nil
}

// printHolds prints holds as a table. Below the table it prints the detail of each hold and what ends it; a wide table has
// both in its columns. Then it names the members without an address.
func printHolds(w io.Writer, wide bool, r *admin.HoldReport) error {
	if err := printHeld(w, wide, r); err != nil {
		return err
	}
	var silent []string
	for _, m := range r.Members {
		if m.State == admin.MemberNoAddress {
			silent = append(silent, m.ID)
		}
	}
	if len(silent) == 0 {
		return nil
	}
	const named = 5
	more := ""
	if len(silent) > named {
		silent, more = silent[:named], fmt.Sprintf(" and %d more", len(silent)-named)
	}
	_, err := terminal.Printf(w, "\nno address is registered (members.address) of %s%s: the holds that only they know are not shown\n", strings.Join(silent, ", "), more)
	return err
}

// printHeld prints the holds of a report.
func printHeld(w io.Writer, wide bool, r *admin.HoldReport) error {
	if len(r.Holds) == 0 {
		text := "nothing is held"
		switch {
		case len(r.Missed) > 0:
			text = "unknown whether something is held: see the systems that did not respond"
		case !r.Member:
			text += ", as far as tables, Kafka and the operations log show; no member responded: --member URL asks one"
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	lines := holdLines(r.Holds)
	err := printList(w, wide, lines,
		column[holdLine]{title: "PARTITION", cell: func(l holdLine) string { return l.name }},
		column[holdLine]{title: "REASON", cell: func(l holdLine) string { return string(l.Reason) }},
		column[holdLine]{title: "SINCE", cell: func(l holdLine) string { return cellTime(l.since) }},
		column[holdLine]{title: "OFFSET", cell: holdLine.offsets},
		column[holdLine]{title: "FROM", cell: func(l holdLine) string { return strings.Join(l.From, ", ") }},
		column[holdLine]{title: "COMMAND", wide: true, cell: func(l holdLine) string { return cellLine(l.Command) }},
		column[holdLine]{title: "ENDS BY", wide: true, cell: func(l holdLine) string { return cellLine(l.EndsBy) }},
		column[holdLine]{title: "DETAIL", wide: true, cell: func(l holdLine) string { return cellLine(l.Detail) }})
	if err != nil || wide {
		return err
	}
	for i, l := range lines {
		same := func(o holdLine) bool {
			return o.Reason == l.Reason && o.Detail == l.Detail && o.Command == l.Command
		}
		if slices.IndexFunc(lines, same) < i { // another line has the same text, which is printed already
			continue
		}
		var b strings.Builder
		_, _ = terminal.Printf(&b, "\n%s %s: %s\n  %s\n", l.name, l.Reason, l.Detail, ending(l.EndsBy))
		if l.Command != "" {
			_, _ = terminal.Printf(&b, "  command: %s\n", l.Command)
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// ending returns the line that says how a hold ends: "ends by itself …" or "ends by: …".
func ending(endsBy string) string {
	if strings.HasPrefix(endsBy, "by itself ") {
		return "ends " + endsBy
	}
	return "ends by: " + endsBy
}

// holdLine is a line of the table: a hold, or the same hold of several partitions of a topic.
type holdLine struct {
	*admin.Hold // the hold of the first partition

	name     string
	since    *time.Time // the earliest start of these holds
	min, max *int64     // the smallest and the largest offset of these holds; nil if unknown
}

// maxSingle is the largest number of partitions with an equal hold for which the table has a line each.
const maxSingle = 3

// holdLines returns the lines of the table. If more than maxSingle partitions of a topic have holds with the same
// reason, detail, command and sources, these holds share one line.
func holdLines(all []*admin.Hold) (lines []holdLine) {
	type shared struct{ topic, reason, detail, command, from string }
	of := func(p *admin.Hold) shared {
		return shared{p.Topic, string(p.Reason), p.Detail, p.Command, strings.Join(p.From, ",")}
	}
	groups := map[shared][]*admin.Hold{}
	for _, p := range all {
		if p.Partition >= 0 {
			groups[of(p)] = append(groups[of(p)], p)
		}
	}
	for _, p := range all {
		group := groups[of(p)]
		switch {
		case p.Partition < 0 || len(group) <= maxSingle:
			lines = append(lines, lineOf(p.Name(), p))
		case group[0] == p:
			lines = append(lines, lineOf(p.Topic+":"+ranges(group), group...))
		}
	}
	return lines
}

func lineOf(name string, holds ...*admin.Hold) holdLine {
	l := holdLine{Hold: holds[0], name: name}
	for _, p := range holds {
		if p.Since != nil && (l.since == nil || p.Since.Before(*l.since)) {
			l.since = p.Since
		}
		if p.Offset != nil && (l.min == nil || *p.Offset < *l.min) {
			l.min = p.Offset
		}
		if p.Offset != nil && (l.max == nil || *p.Offset > *l.max) {
			l.max = p.Offset
		}
	}
	return l
}

// ranges formats the numbers of the held partitions as ranges, such as 0-5,7. The holds must be sorted by partition.
func ranges(holds []*admin.Hold) string {
	var parts []string
	for i := 0; i < len(holds); {
		first, last := holds[i].Partition, holds[i].Partition
		for i++; i < len(holds) && holds[i].Partition == last+1; i++ {
			last++
		}
		part := strconv.Itoa(int(first))
		if last > first {
			part += "-" + strconv.Itoa(int(last))
		}
		parts = append(parts, part)
	}
	return strings.Join(parts, ",")
}

func (l holdLine) offsets() string {
	switch {
	case l.min == nil:
		return "-"
	case *l.min == *l.max:
		return strconv.FormatInt(*l.min, 10)
	}
	return strconv.FormatInt(*l.min, 10) + " to " + strconv.FormatInt(*l.max, 10)
}
