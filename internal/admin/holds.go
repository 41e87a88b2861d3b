package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/reliability/hold"
)

// Hold is a hold as the command shows it.
type Hold struct {
	Topic     string      `json:"topic"`     // "" for what concerns everything
	Partition int32       `json:"partition"` // -1 for all of the topic
	Reason    hold.Reason `json:"reason"`
	Detail    string      `json:"detail"`
	Since     *time.Time  `json:"since"`  // null if unknown
	Offset    *int64      `json:"offset"` // where it stands, null if unknown
	EndsBy    string      `json:"ends_by"`
	Command   string      `json:"command,omitempty"` // that ends it, if one does
	From      []string    `json:"from"`
}

// held are the holds found so far. One partition may be held for several reasons.
type held struct{ all []*Hold }

// add notes a hold, or who else knows of one that is known.
func (h *held) add(from, topic string, id int32, reason hold.Reason, detail string, since time.Time, offset int64) {
	i := slices.IndexFunc(h.all, func(p *Hold) bool {
		if reason == hold.Paused && p.Reason == reason { // a member tells of the partitions, the operation is about the topic
			return (p.Topic == "" || p.Topic == topic) && (p.Partition < 0 || p.Partition == id)
		}
		return p.Topic == topic && p.Partition == id && p.Reason == reason
	})
	if i < 0 {
		i = len(h.all)
		h.all = append(h.all, &Hold{Topic: topic, Partition: id, Reason: reason, Detail: detail, EndsBy: reason.EndsBy()})
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
func (p *Hold) command() string {
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
	fromTable      = "table and Kafka"
	fromOperations = "operations log"
)

// HoldQuery says whose holds are looked for.
type HoldQuery struct {
	Topic   string        // "" for all
	Members []string      // URLs of members to ask, beside the one at health.listen
	Within  time.Duration // the whole time; each dependency has half of it
}

// HoldReport is what is held, as far as was learnt.
type HoldReport struct {
	Holds  []*Hold
	Missed []error // what did not answer, or not as a member of the pipeline does
	Member bool    // a member of the pipeline answered
}

// Holds finds the held partitions, by the tables, Kafka, the operations log and members. A silent system does not hide the
// findings of the others.
func Holds(ctx context.Context, a *Access, q HoldQuery) *HoldReport {
	found, r := &held{}, &HoldReport{Holds: []*Hold{}}
	for _, asked := range a.requestHolds(ctx, q.Topic, q.Members, q.Within) {
		found.merge(&asked.held)
		r.Missed, r.Member = append(r.Missed, asked.missed...), r.Member || asked.member
	}
	found.dropHidden()
	for _, p := range found.all {
		p.Command = a.Config.Pasted(p.command())
		r.Holds = append(r.Holds, p)
	}
	slices.SortStableFunc(r.Holds, func(a, b *Hold) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), strings.Compare(string(a.Reason), string(b.Reason)))
	})
	return r
}

// recordAt says why the record at a position cannot become a row, or "". What lies behind it is not looked at: a partition
// that is held stands at what it is held for.
func (q *questions) recordAt(ctx context.Context, l *inspection, p connector.Partition, at int64) (hold.Reason, string, int64, error) {
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
func (l *inspection) rowOf(p connector.Partition, r *connector.Record) error {
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
func (l *inspection) becomesRow(p connector.Partition, r *connector.Record) error {
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

// Name names what is held: everything, a topic, or a partition.
func (p *Hold) Name() string {
	switch {
	case p.Topic == "":
		return "everything"
	case p.Partition < 0:
		return p.Topic
	}
	return p.Topic + ":" + strconv.Itoa(int(p.Partition))
}
