package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/internal/fail"
	"sluice/reliability/hold"
)

func (c *cli) holdsCommand() *cobra.Command {
	var (
		members []string
		timeout time.Duration
	)
	cmd := &cobra.Command{
		Use:   "holds",
		Short: "Show what stands still, why, and the command that ends it",
		Long: `Lists every hold: those that the tables, Kafka and the operations log show by
themselves, and those that running members tell of (a store that is down, a
commit without an outcome). The member at health.listen of this configuration is
asked, and those named with --member. FROM says who told. More than three
partitions of a topic with the same hold share a line, such as orders:0-15; JSON
lists each.

A partition that nobody reads now is looked at as a member would: is its
position in the log, can the record there be read, does it fit the table?
Members, the store and Kafka get half of --timeout each, so that an outage of
one hides nothing of the others: what did not answer is named with what is not
known for it. So is a dependency that fails for a member and that no hold of it
explains. Exit code 1 if something is held, 3 if nothing is known to be held and
something did not answer, or fails.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return c.showHolds(cmd.Context(), members, timeout)
		},
	}
	cmd.Flags().StringSliceVar(&members, "member", nil, "also ask the member at this address, such as http://host:8080")
	cmd.Flags().DurationVar(&timeout, "timeout", 10*time.Second, "how long the command may take")
	c.configFlag(cmd)
	c.topicFlag(cmd)
	c.outputFlag(cmd)
	cmd.AddCommand(c.holdsRecheckCommand())
	return cmd
}

// heldPartition is a hold as the command shows it.
type heldPartition struct {
	Topic     string      `json:"topic"`     // "" for what concerns everything
	Partition int32       `json:"partition"` // -1 for all of the topic
	Reason    hold.Reason `json:"reason"`
	Detail    string      `json:"detail"`
	Since     *time.Time  `json:"since"`  // null if nobody knows
	Offset    *int64      `json:"offset"` // where it stands, null if unknown
	EndsBy    string      `json:"ends_by"`
	Command   string      `json:"command,omitempty"` // that ends it, if one does
	From      []string    `json:"from"`
}

// held are the holds found so far. One partition may be held for several reasons.
type held struct{ all []*heldPartition }

// add notes a hold, or who else knows of one that is known.
func (h *held) add(from, topic string, id int32, reason hold.Reason, detail string, since time.Time, offset int64) {
	i := slices.IndexFunc(h.all, func(p *heldPartition) bool {
		if reason == hold.Paused && p.Reason == reason { // a member tells of the partitions, the operation is about the topic
			return (p.Topic == "" || p.Topic == topic) && (p.Partition < 0 || p.Partition == id)
		}
		return p.Topic == topic && p.Partition == id && p.Reason == reason
	})
	if i < 0 {
		i = len(h.all)
		h.all = append(h.all, &heldPartition{Topic: topic, Partition: id, Reason: reason, Detail: detail, EndsBy: reason.EndsBy()})
	}
	p := h.all[i]
	if !slices.Contains(p.From, from) {
		p.From = append(p.From, from)
	}
	if !since.IsZero() && (p.Since == nil || since.Before(*p.Since)) {
		p.Since = &since
	}
	if p.Offset == nil && offset >= 0 {
		p.Offset = &offset
	}
}

// command returns the command that ends the hold, "" if none does.
func (p *heldPartition) command() string {
	offset := int64(-1)
	if p.Offset != nil {
		offset = *p.Offset
	}
	return p.Reason.Command(p.Topic, p.Partition, offset)
}

// merge adds what others found.
func (h *held) merge(o *held) {
	for _, p := range o.all {
		since, offset := time.Time{}, int64(-1)
		if p.Since != nil {
			since = *p.Since
		}
		if p.Offset != nil {
			offset = *p.Offset
		}
		for _, from := range p.From {
			h.add(from, p.Topic, p.Partition, p.Reason, p.Detail, since, offset)
		}
	}
}

// The words for who told of a hold.
const (
	fromLook       = "table and Kafka"
	fromOperations = "operations log"
)

func (c *cli) showHolds(ctx context.Context, members []string, timeout time.Duration) error {
	a, err := c.access()
	if err != nil {
		return err
	}
	found := Holds(ctx, a, HoldQuery{Topic: c.topic, Members: members, Within: timeout})
	if c.output == "json" {
		err = writeJSON(c.stdout, found.Holds)
	} else {
		err = printHolds(c.stdout, found)
	}
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

// HoldQuery says whose holds are looked for.
type HoldQuery struct {
	Topic   string        // "" for all
	Members []string      // URLs of members to ask, beside the one at health.listen
	Within  time.Duration // the whole time; each dependency has half of it
}

// HoldReport is what is held, as far as was learnt.
type HoldReport struct {
	Holds  []*heldPartition
	Missed []error // what did not answer, or not as a member of the pipeline does
	Member bool    // a member of the pipeline answered
}

// Holds finds what stands still: by the tables, Kafka, the operations log and members. One of them that is silent hides
// nothing of the others.
func Holds(ctx context.Context, a *Access, q HoldQuery) *HoldReport {
	found, r := &held{}, &HoldReport{Holds: []*heldPartition{}}
	for _, asked := range a.askForHolds(ctx, q.Topic, q.Members, q.Within) {
		found.merge(&asked.held)
		r.Missed, r.Member = append(r.Missed, asked.missed...), r.Member || asked.member
	}
	found.dropHidden()
	for _, p := range found.all {
		p.Command = a.Config.Pasted(p.command())
		r.Holds = append(r.Holds, p)
	}
	slices.SortStableFunc(r.Holds, func(a, b *heldPartition) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), strings.Compare(string(a.Reason), string(b.Reason)))
	})
	return r
}

// recordAt says why the record at a position cannot become a row, or "". What lies behind it is not looked at: a partition
// that is held stands at what it is held for.
func (q *questions) recordAt(ctx context.Context, l *look, p connector.Partition, at int64) (hold.Reason, string, int64, error) {
	var b kafka.Batch
	err := q.ask(func(ctx context.Context) (err error) { b, err = q.log.BatchAt(ctx, p, at); return err })
	if err == nil {
		err = b.Unreadable
	}
	if held, ok := errors.AsType[*hold.Error](err); ok {
		if held.Reason == hold.AheadOfLogEnd { // nothing but markers and aborted records
			return "", "", 0, nil
		}
		return held.Reason, held.Detail, at, nil
	}
	if err != nil || b.Record == nil || l.snapshot.Schema == nil {
		return "", "", 0, err
	}
	switch err := l.rowOf(p, b.Record); {
	case err == nil:
		return "", "", 0, nil
	case classify.Of(err) == classify.Poison:
		return hold.Poison, err.Error(), b.Record.Offset, ctx.Err()
	default:
		return "", "", 0, err
	}
}

// rowOf says why a record cannot become a row and holds, nil if it can, need not, or becomes a dead letter.
func (l *look) rowOf(p connector.Partition, r *connector.Record) error {
	topic, _, err := l.table.config.Route(p.Topic)
	if err != nil {
		return err
	}
	if topic.WritesLetters() {
		return nil
	}
	return l.becomesRow(p, r)
}

// becomesRow says why a record cannot become a row of the table as it is now, nil if it can or is passed over.
func (l *look) becomesRow(p connector.Partition, r *connector.Record) error {
	topic, _, err := l.table.config.Route(p.Topic)
	if err != nil || l.snapshot.Schema == nil {
		return err
	}
	if err := topic.Refusals().Of(r); err != nil || r.Value == nil && !topic.IsLetters() {
		return err
	}
	builder, err := topic.Decoder(nil).Builder(l.snapshot.Schema)
	if err != nil {
		return fmt.Errorf("rows of %v: %w", p, err)
	}
	return decodes(builder, p, r)
}

// decodes says why a record cannot become a row. A decoder that panics ends no command: where a member meets such a record,
// it is found by itself and held or set aside.
func decodes(builder connector.Builder, p connector.Partition, r *connector.Record) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = classify.Mark(connector.Recovered("decode", v), classify.Poison)
		}
	}()
	if err := builder.Add(p, r); err != nil {
		return err
	}
	builder.Seal().Release()
	return nil
}

// printHolds writes holds for people.
func printHolds(w io.Writer, r *HoldReport) error {
	if len(r.Holds) == 0 {
		text := "nothing is held"
		switch {
		case len(r.Missed) > 0:
			text = "whether something is held is not known: see what did not answer"
		case !r.Member:
			text += ", as far as tables, Kafka and the operations log show; no member answered: --member URL asks one"
		}
		_, err := fmt.Fprintln(w, text)
		return err
	}
	lines := holdLines(r.Holds)
	tw := newColumns(w)
	_, _ = fmt.Fprintln(tw, "PARTITION\tREASON\tSINCE\tOFFSET\tFROM") // Flush has the error
	for _, l := range lines {
		since := "-"
		if l.since != nil {
			since = l.since.UTC().Format(time.RFC3339)
		}
		_, _ = printf(tw, "%s\t%s\t%s\t%s\t%s\n", l.name, l.Reason, since, l.offsets(), strings.Join(l.From, ", "))
	}
	if err := tw.Flush(); err != nil {
		return err
	}
	for i, l := range lines {
		same := func(o holdLine) bool {
			return o.Reason == l.Reason && o.Detail == l.Detail && o.Command == l.Command
		}
		if slices.IndexFunc(lines, same) < i { // explained above
			continue
		}
		var b strings.Builder
		_, _ = printf(&b, "\n%s %s: %s\n  %s\n", l.name, l.Reason, l.Detail, ending(l.EndsBy))
		if l.Command != "" {
			_, _ = printf(&b, "  command: %s\n", l.Command)
		}
		if _, err := io.WriteString(w, b.String()); err != nil {
			return err
		}
	}
	return nil
}

// ending is the line that says what ends a hold.
func ending(endsBy string) string {
	if strings.HasPrefix(endsBy, "by itself ") {
		return "ends " + endsBy
	}
	return "ends by: " + endsBy
}

// holdLine is what the table shows in one line: a hold, or the same hold of several partitions of a topic.
type holdLine struct {
	*heldPartition // the first one

	name     string
	since    *time.Time // the earliest
	min, max *int64     // offsets, nil if unknown
}

// maxSingle is how many partitions with the same hold have a line each.
const maxSingle = 3

// holdLines returns the lines of the table. Holds of more than maxSingle partitions of a topic share a line if they agree in reason,
// detail, command and who told.
func holdLines(all []*heldPartition) (lines []holdLine) {
	type shared struct{ topic, reason, detail, command, from string }
	of := func(p *heldPartition) shared {
		return shared{p.Topic, string(p.Reason), p.Detail, p.Command, strings.Join(p.From, ",")}
	}
	groups := map[shared][]*heldPartition{}
	for _, p := range all {
		if p.Partition >= 0 {
			groups[of(p)] = append(groups[of(p)], p)
		}
	}
	for _, p := range all {
		group := groups[of(p)]
		switch {
		case p.Partition < 0 || len(group) <= maxSingle:
			lines = append(lines, lineOf(p.name(), p))
		case group[0] == p:
			lines = append(lines, lineOf(p.Topic+":"+ranges(group), group...))
		}
	}
	return lines
}

func lineOf(name string, holds ...*heldPartition) holdLine {
	l := holdLine{heldPartition: holds[0], name: name}
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

// ranges names the partitions of holds, which are in order: 0-5,7.
func ranges(holds []*heldPartition) string {
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

func (p *heldPartition) name() string {
	switch {
	case p.Topic == "":
		return "everything"
	case p.Partition < 0:
		return p.Topic
	}
	return p.Topic + ":" + strconv.Itoa(int(p.Partition))
}
