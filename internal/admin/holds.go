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

// Hold is a hold with the sources that report it.
type Hold struct {
	Topic     string      `json:"topic"`     // "" if the hold stops the whole pipeline
	Partition int32       `json:"partition"` // the partition; -1 if the whole topic is held
	Reason    hold.Reason `json:"reason"`
	Detail    string      `json:"detail"`
	Since     *time.Time  `json:"since"`  // when the hold began; null if unknown
	Offset    *int64      `json:"offset"` // the position of the partition, null if unknown
	EndsBy    string      `json:"ends_by"`
	Command   string      `json:"command,omitempty"` // the command that ends the hold, if one does
	From      []string    `json:"from"`              // the sources: names or URLs of members, the operations log, tables and Kafka
}

// held collects holds. A partition may be held for several reasons.
type held struct {
	all []*Hold
	at  map[heldKey]*Hold
}

// heldKey identifies a hold.
type heldKey struct {
	topic  string
	id     int32
	reason hold.Reason
}

// find returns the hold that already says that a partition is held for a reason, nil without one. A pause of a topic or
// pipeline includes those of its partitions: members report partitions, the operation names the topic.
func (h *held) find(topic string, id int32, reason hold.Reason) *Hold {
	if reason == hold.Paused {
		for _, k := range []heldKey{{"", -1, reason}, {topic, -1, reason}} {
			if p := h.at[k]; p != nil {
				return p
			}
		}
	}
	return h.at[heldKey{topic, id, reason}]
}

// add adds a hold that the source from has found. If there is an equal hold already, or a pause of the topic or
// pipeline that includes this one, it only adds from to the sources of that hold.
func (h *held) add(from, topic string, id int32, reason hold.Reason, detail string, since time.Time, offset int64) {
	p := h.find(topic, id, reason)
	if p == nil {
		p = &Hold{Topic: topic, Partition: id, Reason: reason, Detail: detail, EndsBy: reason.EndsBy()}
		if h.at == nil {
			h.at = map[heldKey]*Hold{}
		}
		h.all, h.at[heldKey{topic, id, reason}] = append(h.all, p), p
	}
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

// command returns the command that ends the hold, "" if no command does.
func (p *Hold) command() string {
	offset := int64(-1)
	if p.Offset != nil {
		offset = *p.Offset
	}
	return p.Reason.Command(p.Topic, p.Partition, offset)
}

// merge adds the holds of o, each with its sources.
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

// Sources of holds, beside the URLs of members.
const (
	fromTable      = "table and Kafka"
	fromOperations = "operations log"
)

// HoldQuery selects the holds to find.
type HoldQuery struct {
	Topic   string        // the topic whose holds are wanted, beside those of the whole pipeline; "" for all
	Members []string      // URLs of members to request, beside the one at health.listen
	Within  time.Duration // the total time limit; each dependency gets half of it
}

// HoldReport is the result of [Holds].
type HoldReport struct {
	Holds  []*Hold
	Missed []error // an error for each source that failed, whose holds are missing here
	Member bool    // true if a member of the pipeline responded
	// Members are the registered members and whether their own holds are shown; none without members.store.
	Members []MemberAnswer
}

// Holds collects the holds from the tables and Kafka, the operations log, and the members. If a source does not
// respond, the report still has the holds from the other sources.
func Holds(ctx context.Context, a *Access, q HoldQuery) *HoldReport {
	found, r := &held{}, &HoldReport{Holds: []*Hold{}}
	sources, others := a.requestHolds(ctx, q.Topic, q.Members, q.Within)
	for _, asked := range sources {
		found.merge(&asked.held)
		r.Missed, r.Member = append(r.Missed, asked.missed...), r.Member || asked.member
	}
	r.Missed, r.Members = append(r.Missed, others.missed...), others.answers
	found.dropHidden()
	for _, p := range found.all {
		if q.Topic != "" && p.Topic != "" && p.Topic != q.Topic { // members and the operations log report all topics
			continue
		}
		p.Command = a.Config.Pasted(p.command())
		r.Holds = append(r.Holds, p)
	}
	slices.SortStableFunc(r.Holds, func(a, b *Hold) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition), strings.Compare(string(a.Reason), string(b.Reason)))
	})
	return r
}

// recordAt reads the record at a partition's position, and returns reason, detail and offset of the hold that the
// record causes. The reason is "" if it causes none. Later records do not matter, because the position of a held
// partition is at the record that holds it.
func (q *kafkaQueries) recordAt(ctx context.Context, l *inspection, p connector.Partition, at int64) (hold.Reason, string, int64, error) {
	var b kafka.Batch
	err := q.retry(func(ctx context.Context) (err error) { b, err = q.log.BatchAt(ctx, p, at); return err })
	if err == nil {
		err = b.Unreadable
	}
	if held, ok := errors.AsType[*hold.Error](err); ok {
		if held.Reason == hold.AheadOfLogEnd { // from here on, the log has only transaction markers and aborted records
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

// rowOf returns the error for which a record would hold its partition. It returns nil if the record becomes a row or a
// dead letter, or if it is left out.
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

// becomesRow returns the error for which a record cannot become a row of the current table. It returns nil if it can,
// or if it is left out.
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

// decodes returns the error of the decoder for a record, or nil if the decoder accepts it. A panic of the decoder
// becomes an error of class poison, as in members.
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

// Name returns the name of what is held: "everything", a topic, or a partition.
func (p *Hold) Name() string {
	switch {
	case p.Topic == "":
		return "everything"
	case p.Partition < 0:
		return p.Topic
	}
	return p.Topic + ":" + strconv.Itoa(int(p.Partition))
}
