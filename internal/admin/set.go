package admin

import (
	"context"
	"fmt"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/sink/opslog"
)

// Where is the new value of a position: an offset, a distance from the current position, or a start policy.
type Where struct {
	Offset int64 // the new position, unless Relative or Start is set
	By     int64 // the distance from the old position, if Relative is set
	Start  connector.Start

	Relative bool
}

// SetTarget is a topic or a partition, and the new value of its position. A topic means its partitions with a position.
type SetTarget struct {
	Target opslog.Target
	Where
}

// PlanSet plans to set the positions of targets.
func PlanSet(ctx context.Context, a *Access, all []SetTarget) (*MovePlan, error) {
	return sorted(planSet(ctx, a, all))
}

func planSet(ctx context.Context, a *Access, all []SetTarget) (*MovePlan, error) {
	var names []string
	for _, w := range all {
		names = append(names, w.Target.Topic)
	}
	view, err := a.inspectTopics(ctx, names...)
	if err != nil {
		return nil, err
	}
	defer view.end()
	made := newPlan("offsets set", view.inspections[0])
	if detail := plan.Replaced(view.inspections[0].snapshot, view.inspections[0].pipeline); detail != "" {
		return nil, refused("table_replaced: %s: restore it, or accept it with offsets start", detail)
	}
	for i, w := range all {
		if err := made.set(view, view.inspections[i], w); err != nil {
			return nil, err
		}
	}
	made.noteRereads()
	return made, nil
}

// offsets returns the new position of each chosen partition. It returns an error if the position is to move by a
// distance and there is none.
func (w Where) offsets(view *topicsView, l *inspection, chosen []connector.Partition) (map[connector.Partition]int64, error) {
	to := map[connector.Partition]int64{}
	bounds := map[connector.Partition]connector.Bounds{}
	for _, of := range chosen {
		at := l.position(of)
		if w.Relative && at < 0 {
			return nil, refused("%v has no position yet: write an offset, not %+d", of, w.By)
		}
		to[of], bounds[of] = w.Offset, l.bounds[of]
		if w.Relative {
			to[of] = at + w.By
		}
	}
	if w.Start.Policy == "" {
		return to, nil
	}
	return view.firstOffsets(w.Start, chosen, bounds)
}

// set adds the moves of one target to the plan. It returns an error for an offset outside of the log.
func (p *MovePlan) set(view *topicsView, l *inspection, w SetTarget) error {
	if !l.started() {
		return refused("the table has no position for any partition of topic %s: offsets start or offsets adopt begins it", l.topic.Name)
	}
	var chosen []connector.Partition
	for _, of := range l.partitions() {
		if of.ID == w.Target.Partition || w.Target.Partition < 0 && l.position(of) >= 0 {
			chosen = append(chosen, of)
		}
	}
	if len(chosen) == 0 {
		return refused("topic %s has no partition %d", l.topic.Name, w.Target.Partition)
	}
	to, err := w.offsets(view, l, chosen)
	if err != nil {
		return err
	}
	for _, of := range chosen {
		if b := l.bounds[of]; to[of] < b.LogStart || to[of] > b.HighWatermark {
			return refused("offset %d is outside of the log of %v, which is [%d, %d]: nothing could be read there", to[of], of, b.LogStart, b.HighWatermark)
		}
		p.move(l, of, to[of], "")
	}
	return nil
}

// noteRereads notes how to avoid duplicate rows of the records that members will read again.
func (p *MovePlan) noteRereads() {
	for _, s := range p.Moves {
		topic, _, err := p.of.config.Route(s.Topic)
		if s.Repeated == 0 || err != nil || topic.Identity.By != "none" { // with an identity, the fingerprint of a deleted row would make its record a duplicate
			continue
		}
		id := ""
		if p.topicIDs { // rows of a deleted topic of the same name may have the same offsets
			id = fmt.Sprintf(" AND _kafka_topic_id = '%v'", s.partition.TopicID)
		}
		p.note("to have the records of %s once, pause it, delete its rows first, then move the position and resume:\n"+
			"  DELETE FROM %s WHERE _kafka_topic = '%s'%s AND _kafka_partition = %d AND _kafka_offset >= %d AND _kafka_offset < %d",
			s.partition, p.of.table.Table, s.Topic, id, s.Partition, s.To, s.From)
	}
}
