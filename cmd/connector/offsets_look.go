package main

import (
	"context"
	"fmt"

	"sluice/connector"
)

// look is what a command saw of a topic: where the table stands, and what Kafka says.
type look struct {
	pipeline string
	table    *opened
	snapshot *connector.Snapshot
	topic    connector.Topic
	group    map[int32]connector.GroupOffset
	bounds   map[connector.Partition]connector.Bounds
}

// look asks Kafka for what it knows of a topic. A topic that is missing is a HoldError.
func (q *questions) look(o *opened, name string, s *connector.Snapshot) (*look, error) {
	l := &look{pipeline: o.config.Pipeline, table: o, snapshot: s}
	err := q.ask(func(ctx context.Context) (err error) { l.topic, err = q.log.Topic(ctx, name); return err })
	if err != nil {
		return nil, err
	}
	err = q.ask(func(ctx context.Context) (err error) { l.group, err = q.group.Offsets(ctx, name); return err })
	if err != nil {
		return nil, err
	}
	var at []connector.Position
	for _, p := range l.partitions() {
		next := l.position(p)
		at = append(at, connector.Position{Partition: p, Next: next, Epoch: epochOf(l.group, p.ID, next)})
	}
	err = q.ask(func(ctx context.Context) (err error) { l.bounds, err = q.log.Bounds(ctx, at); return err })
	if err != nil {
		return nil, fmt.Errorf("ends of the partitions: %w", err)
	}
	return l, nil
}

// partitions are those that the topic has now.
func (l *look) partitions() (all []connector.Partition) {
	for _, id := range l.topic.Partitions {
		all = append(all, connector.Partition{Cluster: l.topic.Cluster, Topic: l.topic.Name, TopicID: l.topic.ID, ID: id})
	}
	return all
}

// partition finds one of them by its number.
func (l *look) partition(id int32) (connector.Partition, bool) {
	for _, p := range l.partitions() {
		if p.ID == id {
			return p, true
		}
	}
	return connector.Partition{}, false
}

// position is that of the table, -1 if it has none.
func (l *look) position(p connector.Partition) int64 {
	if next, known := l.snapshot.Positions[p.AppID(l.pipeline)]; known {
		return next
	}
	return -1
}

// started tells whether the table has a position of the pipeline for this very topic.
func (l *look) started() bool {
	for _, p := range l.partitions() {
		if l.position(p) >= 0 {
			return true
		}
	}
	return false
}

// hold is what a member that resumed the partition now would hold it for, or nil.
func (l *look) hold(p connector.Partition) *connector.Hold {
	return connector.Derive(l.snapshot, l.pipeline, p, l.group, l.bounds)
}
