package main

import (
	"context"
	"fmt"
	"io"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/admin"
	"sluice/internal/fail"
	"sluice/internal/terminal"
)

func (c *cli) deadLettersListCommand() *cobra.Command {
	var o letterSelection
	cmd := &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "List dead letters, the newest first",
		Long: `Reads the dead-letter topics from Kafka, of all topics or of one, and compares
each dead letter with the table. It needs no running connector and disturbs
none. Copies of a dead letter share a line: COPIES counts them. STATE is the
state of its record:

  unresolved    it has no row, and no member will read it again: the position has
                passed it, or Kafka has deleted it
  unknown       the table cannot show whether it has a row; a note says why
  replaying     a replay of it has begun, and its outcome is not known yet
  parked        three replays of it failed
  acknowledged  an operator has taken note of it
  discarded     an operator has given it up
  replayed      it has a row: an operator replayed it
  void          it has a row: the commit after the dead letter failed, and a
                member read the record again
  pending       the position has not passed it yet, and Kafka still has it: it
                can still become a row
  foreign       its topic is not in topics

The first four count as unresolved. They and the foreign ones are listed; --state
lists others. TOPIC may be a topic or a dead-letter topic. Exit code 0 with or
without dead letters.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.Topic = args[0]
			}
			return c.listLetters(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.Limit, "limit", 100, "the most dead letters to list, 0 for all")
	cmd.Flags().StringVar(&o.since, "since", "", "only dead letters since a time, or of a duration back, such as 24h")
	cmd.Flags().StringVar(&o.Reason, "code", "", "only dead letters with this reason code")
	cmd.Flags().StringVar(&o.states, "state", "", "only dead letters in these states, such as parked,void; or all")
	cmd.Flags().DurationVar(&o.Within, "timeout", time.Minute, "how long to wait for each response of Kafka")
	c.configFlag(cmd)
	c.listFlag(cmd)
	c.serverFlags(cmd, "config")
	cmd.Long += "\nIt lists dead letters in the order of their records."
	return cmd
}

func (c *cli) listLetters(ctx context.Context, o letterSelection) error {
	if err := o.parse(nil); err != nil {
		return err
	}
	if o.Limit < 0 {
		return fail.Usage(fmt.Errorf("--limit %d: write 0 or more", o.Limit))
	}
	list, err := c.findLetters(ctx, o)
	if err != nil {
		return err
	}
	return c.print(list, func(w io.Writer, wide bool) error { return printLetters(w, wide, list) })
}

// findLetters returns the list, from the member that --server names if it names one.
func (c *cli) findLetters(ctx context.Context, o letterSelection) (*admin.LetterList, error) {
	if c.remote() {
		client, err := c.client()
		if err != nil {
			return nil, err
		}
		return client.DeadLetters(ctx, o.letters(), o.Limit)
	}
	a, err := c.access()
	if err != nil {
		return nil, err
	}
	defer c.watch(a, "reading dead letters")()
	return admin.DeadLetters(ctx, a, o.LetterQuery)
}

// printLetters prints dead letters as a table, with their counts and notes.
func printLetters(w io.Writer, wide bool, l *admin.LetterList) error {
	if len(l.Listed) > 0 {
		type letter = admin.ListedLetter
		err := printList(w, wide, l.Listed,
			column[letter]{title: "RECORD", cell: func(s letter) string { return fmt.Sprintf("%s:%d@%d", s.Topic, s.Partition, s.Offset) }},
			column[letter]{title: "STATE", cell: func(s letter) string { return string(s.State) }},
			column[letter]{title: "REASON", cell: func(s letter) string { return s.Reason }},
			column[letter]{title: "FAILED AT", cell: func(s letter) string { return cellTime(s.Failed) }},
			column[letter]{title: "COPIES", cell: func(s letter) string { return strconv.Itoa(s.Copies) }},
			column[letter]{title: "DEAD LETTER", cell: func(s letter) string { return s.Letter.String() }},
			column[letter]{title: "CLASS", wide: true, cell: func(s letter) string { return cellLine(s.Class) }},
			column[letter]{title: "RETRIES", wide: true, cell: func(s letter) string { return strconv.Itoa(s.Retries) }},
			column[letter]{title: "MEMBER", wide: true, cell: func(s letter) string { return cellLine(s.Member) }},
			column[letter]{title: "BATCH", wide: true, cell: func(s letter) string { return cellLine(s.Batch) }},
			column[letter]{title: "TOPIC ID", wide: true, cell: func(s letter) string { return cellLine(s.TopicID) }},
			column[letter]{title: "WHY", wide: true, cell: func(s letter) string { return cellLine(s.Why) }},
			column[letter]{title: "DETAIL", cell: func(s letter) string { return strings.ReplaceAll(s.Detail, "\n", " ") }})
		if err != nil {
			return err
		}
	}
	var b strings.Builder
	count := func(n int, what string) {
		if n > 0 {
			b.WriteString(", " + strconv.Itoa(n) + " " + what)
		}
	}
	_, _ = terminal.Printf(&b, "%s of %s: %d unresolved", admin.Counting(l.Letters, "dead letter"), admin.Counting(int64(l.Distinct), "record"), l.Unresolved)
	var among []string
	for _, s := range []struct {
		n    int
		what string
	}{{l.Unknown, "unknown"}, {l.Replaying, "replaying"}, {l.Parked, "parked"}} {
		if s.n > 0 {
			among = append(among, strconv.Itoa(s.n)+" of them "+s.what)
		}
	}
	if len(among) > 0 {
		_, _ = terminal.Printf(&b, " (%s)", strings.Join(among, ", "))
	}
	count(l.Acknowledged, "acknowledged")
	count(l.Discarded, "discarded")
	count(l.Replayed, "replayed")
	count(l.Void, "void")
	count(l.Pending, "pending")
	count(l.Foreign, "foreign")
	b.WriteString("\n")
	if l.Matching > len(l.Listed) {
		var reasons []string
		for _, r := range l.Reasons {
			reasons = append(reasons, strconv.Itoa(r.Count)+" "+r.Reason)
		}
		_, _ = terminal.Printf(&b, "by reason: %s\n", strings.Join(reasons, ", "))
	}
	for _, n := range l.Notes {
		_, _ = terminal.Printf(&b, "note: %s\n", n) // a strings.Builder returns no error
	}
	_, err := io.WriteString(w, b.String())
	return err
}
