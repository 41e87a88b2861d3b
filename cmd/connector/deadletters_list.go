package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/reliability/deadletter"
)

func (c *cli) deadLettersListCommand() *cobra.Command {
	var o letterListing
	cmd := &cobra.Command{
		Use:   "list [TOPIC]",
		Short: "List dead letters, the newest first",
		Long: `Reads the dead-letter topics from Kafka, of all topics or of one, and compares
each dead letter with the table. It needs no running connector and disturbs
none. Repeats of a dead letter are one: COPIES counts them. STATE says what
became of its record:

  unresolved  it has no row, and no member will read it again: the table is past
              it, or Kafka has deleted it
  unknown     no row of it can be proven; the note says why. It counts as
              unresolved
  void        it has a row: the dead letter was written before a commit that
              then did not happen, and the record was read again
  pending     the table is not past it yet, and Kafka still has it: the dead
              letter is void until the table is past it
  foreign     its topic is not in topics: it is listed and does not count

Dead letters that are void or pending are counted, and listed with --void. TOPIC
may be a topic or a dead-letter topic. Exit code 0 with or without dead letters.`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				o.topic = args[0]
			}
			return c.listLetters(cmd.Context(), o)
		},
	}
	cmd.Flags().IntVar(&o.limit, "limit", 100, "how many dead letters to list at most, 0 for all")
	cmd.Flags().StringVar(&o.since, "since", "", "only dead letters of a time on, or of a duration back, such as 24h")
	cmd.Flags().StringVar(&o.reason, "reason", "", "only dead letters with this code")
	cmd.Flags().BoolVar(&o.void, "void", false, "list void and pending dead letters, too")
	cmd.Flags().DurationVar(&o.timeout, "timeout", time.Minute, "how long to wait for each answer of Kafka")
	c.configFlag(cmd)
	c.outputFlag(cmd)
	return cmd
}

// letterListing says what to list.
type letterListing struct {
	topic, since, reason string
	limit                int
	void                 bool
	timeout              time.Duration
}

// shownLetter is a letter as list shows it: never what was in the record.
type shownLetter struct {
	Topic       string      `json:"topic"`
	TopicID     string      `json:"topic_id"`
	Cluster     string      `json:"cluster"`
	Partition   int32       `json:"partition"`
	Offset      int64       `json:"offset"`
	State       letterState `json:"state"`
	Why         string      `json:"why,omitempty"` // of a state that is unknown or foreign
	Reason      string      `json:"reason"`
	Class       string      `json:"class"`
	Detail      string      `json:"detail"`
	Retries     int         `json:"retries"`
	Failed      *time.Time  `json:"failed_at"` // null if the letter does not say
	Member      string      `json:"member"`
	Correlation string      `json:"correlation_id"`
	Batch       string      `json:"batch_id"`
	Copies      int         `json:"copies"`
	Linked      bool        `json:"linked"` // the value lies in the bucket
	Letter      letterPlace `json:"letter"`
}

// letterPlace is where the newest copy of a letter lies.
type letterPlace struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Offset    int64  `json:"offset"`
}

// letterList is what list prints.
type letterList struct {
	Topics     []string      `json:"dead_letter_topics"`
	Letters    int64         `json:"letters"`    // records in the topics, repeats included
	Distinct   int           `json:"distinct"`   // records that they are about
	Unresolved int           `json:"unresolved"` // those of Unknown included
	Unknown    int           `json:"unknown"`
	Void       int           `json:"void"`
	Pending    int           `json:"pending"`
	Foreign    int           `json:"foreign"`
	Matching   int           `json:"matching"` // those to list, of which limit may leave out some
	Listed     []shownLetter `json:"listed"`
	Notes      []string      `json:"notes"`
}

func (c *cli) listLetters(ctx context.Context, o letterListing) error {
	since, err := parseSince(o.since, time.Now())
	if err != nil {
		return fail.Usage(fmt.Errorf("--since: %w", err))
	}
	if o.limit < 0 {
		return fail.Usage(fmt.Errorf("--limit %d: write a number from 0 on", o.limit))
	}
	cfg, err := c.load()
	if err != nil {
		return err
	}
	scope, err := c.letterScopeOf(ctx, cfg, o.topic)
	if err != nil {
		return err
	}
	r, end, err := lookup.NewReader(ctx, cfg, o.timeout)
	if err != nil {
		return fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	book, err := readLetters(ctx, r, scope.topics, func(l *deadletter.Letter) bool {
		return scope.wants(l) && !l.LastFailure.Before(since) && (o.reason == "" || string(l.Reason) == o.reason)
	})
	if err != nil {
		return fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	if err := book.judge(ctx, cfg, r); err != nil {
		return err
	}
	list := book.list(scope, o)
	if c.output == "json" {
		return writeJSON(c.stdout, list)
	}
	return list.print(c.stdout)
}

// list counts the letters and picks those to show.
func (b *letterBook) list(scope *letterScope, o letterListing) *letterList {
	list := &letterList{Topics: scope.topics, Letters: b.count, Distinct: len(b.all), Listed: []shownLetter{}, Notes: []string{}}
	whys := map[string]int64{}
	for _, l := range b.newest() {
		if l.state.counts() {
			list.Unresolved++
		}
		switch l.state {
		case letterUnresolved:
		case letterUnknown:
			list.Unknown++
			whys[l.why]++
		case letterVoid:
			list.Void++
		case letterPending:
			list.Pending++
		case letterForeign:
			list.Foreign++
			whys[l.why]++
		}
		if !o.void && !l.state.listed() {
			continue
		}
		if list.Matching++; o.limit == 0 || len(list.Listed) < o.limit {
			list.Listed = append(list.Listed, l.shown())
		}
	}
	for _, name := range b.absent {
		list.note("topic %s does not exist yet: it comes with the first dead letter", name)
	}
	for _, name := range scope.topics {
		if of := b.others[name]; of != nil {
			list.note("%s of topic %s: no dead letter, first at %s", counting(of.n, "record"), name, of.first)
		}
	}
	for why, n := range whys {
		list.note("%s: %s", counting(n, "dead letter"), why)
	}
	slices.Sort(list.Notes)
	if left := list.Matching - len(list.Listed); left > 0 {
		list.note("%d more are not listed: write --limit, --since or --reason", left)
	}
	return list
}

// counting is a number with its noun: "1 record", "2 records".
func counting(n int64, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return strconv.FormatInt(n, 10) + " " + noun
}

func (l *letterList) note(format string, args ...any) {
	l.Notes = append(l.Notes, fmt.Sprintf(format, args...))
}

func (l *foundLetter) shown() shownLetter {
	s := shownLetter{
		Topic: l.Source.Topic, TopicID: l.Source.TopicID.String(), Cluster: l.Source.Cluster, Partition: l.Source.ID, Offset: l.Source.Offset,
		State: l.state, Why: l.why, Reason: string(l.Reason), Class: l.Class.String(), Detail: l.Detail, Retries: l.Retries,
		Member: l.Member, Correlation: l.Correlation, Batch: l.Batch, Copies: l.copies, Linked: l.linked,
		Letter: letterPlace{l.topic, l.partition, l.offset},
	}
	if !l.LastFailure.IsZero() {
		at := l.LastFailure.UTC()
		s.Failed = &at
	}
	return s
}

func (l *letterList) print(w io.Writer) error {
	if len(l.Listed) > 0 {
		tw := newColumns(w)
		_, _ = fmt.Fprintln(tw, "RECORD\tSTATE\tREASON\tFAILED AT\tCOPIES\tDEAD LETTER\tDETAIL") // Flush has the error
		for _, s := range l.Listed {
			failed := "-"
			if s.Failed != nil {
				failed = s.Failed.Format(time.RFC3339)
			}
			_, _ = printf(tw, "%s:%d@%d\t%s\t%s\t%s\t%d\t%s:%d@%d\t%s\n", s.Topic, s.Partition, s.Offset, s.State, s.Reason, failed, s.Copies,
				s.Letter.Topic, s.Letter.Partition, s.Letter.Offset, strings.ReplaceAll(s.Detail, "\n", " "))
		}
		if err := tw.Flush(); err != nil {
			return err
		}
	}
	var b strings.Builder
	count := func(n int, what string) {
		if n > 0 {
			b.WriteString(", " + strconv.Itoa(n) + " " + what)
		}
	}
	_, _ = printf(&b, "%s of %s: %d unresolved", counting(l.Letters, "dead letter"), counting(int64(l.Distinct), "record"), l.Unresolved)
	if l.Unknown > 0 {
		_, _ = printf(&b, " (%d of them unknown)", l.Unknown)
	}
	count(l.Void, "void")
	count(l.Pending, "pending")
	count(l.Foreign, "foreign")
	b.WriteString("\n")
	for _, n := range l.Notes {
		_, _ = printf(&b, "note: %s\n", n) // memory takes it
	}
	_, err := io.WriteString(w, b.String())
	return err
}
