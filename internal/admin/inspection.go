package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/internal/lookup"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
)

// inspection is what a command saw of a topic: where the table stands, and what Kafka says.
type inspection struct {
	pipeline string
	table    *Table
	snapshot *connector.Snapshot
	topic    connector.Topic
	group    map[int32]connector.GroupOffset
	bounds   map[connector.Partition]connector.Bounds
	rows     map[connector.RowsOf]bool // those that keep partitions without a position from beginning
	// unread says of which partitions there are no bounds though they exist; nil if there are none.
	unread *connector.UnreadError
}

// inspect asks Kafka for what it knows of a topic. A topic that is missing is a hold.Error. A partition whose leader does not
// answer is left out: see [look.whole].
func (q *questions) inspect(ctx context.Context, o *Table, name string, s *connector.Snapshot) (*inspection, error) {
	l := &inspection{pipeline: o.config.Pipeline, table: o, snapshot: s}
	err := q.ask(func(ctx context.Context) (err error) { l.topic, err = q.log.Topic(ctx, name); return err })
	if err != nil {
		return nil, err
	}
	err = q.ask(func(ctx context.Context) (err error) { l.group, err = q.group.Offsets(ctx, name); return err })
	if err != nil {
		return nil, err
	}
	if !l.started() && len(l.group) > 0 { // an initial commit after the snapshot is no unknown past
		if l.snapshot, _, err = o.snapshot(ctx); err != nil {
			return nil, err
		}
	}
	at, err := l.positions(ctx)
	if err != nil {
		return nil, o.Failed(err)
	}
	err = q.ask(func(ctx context.Context) (err error) {
		if l.bounds, err = q.log.Bounds(ctx, at); errors.As(err, &l.unread) {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ends of the partitions: %w", err)
	}
	if l.rows, err = l.rowsBefore(ctx); err != nil {
		return nil, o.Failed(err)
	}
	return l, nil
}

// rowsBefore looks for rows of partitions that have no position.
func (l *inspection) rowsBefore(ctx context.Context) (map[connector.RowsOf]bool, error) {
	search := plan.RowsBefore(l.snapshot, l.pipeline, l.topic.Name, l.partitions())
	if len(search) == 0 || l.table.store == nil {
		return nil, nil
	}
	rows, err := delta.HasRows(ctx, l.table.store, search, !plan.Follows(l.snapshot, l.pipeline))
	if errors.Is(err, deltalog.ErrNoTable) {
		return nil, nil
	}
	return rows, err
}

// recentCommits is how many versions are read to find the leader epochs of positions beside which the table keeps none.
const recentCommits = 20

// positions are those of the table, with the leader epoch of the batch before: a log that was truncated shows by it. The
// table keeps it beside the position. For a position that an older version set, the group's offset has it if it is the
// table's position, and the commit that set the position has it, too.
func (l *inspection) positions(ctx context.Context) (at []connector.Position, err error) {
	unknown := map[string]int{} // by appId, where in at
	for _, p := range l.partitions() {
		next := l.position(p)
		epoch, kept := l.snapshot.Epoch(l.pipeline, p)
		if !kept {
			epoch = epochOf(l.group, p.ID, next)
		}
		if next >= 0 && epoch < 0 && !kept {
			unknown[p.AppID(l.pipeline)] = len(at)
		}
		at = append(at, connector.Position{Partition: p, Next: next, Epoch: epoch})
	}
	if len(unknown) == 0 {
		return at, nil
	}
	read := 0
	for e, err := range delta.Recent(ctx, l.table.store, l.snapshot.Version) {
		if err != nil {
			return nil, err
		}
		for _, r := range e.Ranges {
			appID := appIDOf(e.Txns, r)
			if i, ok := unknown[appID]; ok {
				delete(unknown, appID)
				if r.Next == at[i].Next {
					at[i].Epoch = r.Epoch
				}
			}
		}
		if read++; read == recentCommits || len(unknown) == 0 {
			break
		}
	}
	return at, nil
}

// partitions are those that the topic has now.
func (l *inspection) partitions() (all []connector.Partition) {
	for _, id := range l.topic.Partitions {
		all = append(all, connector.Partition{Cluster: l.topic.Cluster, Topic: l.topic.Name, TopicID: l.topic.ID, ID: id})
	}
	return all
}

// partition finds one of them by its number.
func (l *inspection) partition(id int32) (connector.Partition, bool) {
	for _, p := range l.partitions() {
		if p.ID == id {
			return p, true
		}
	}
	return connector.Partition{}, false
}

// position is that of the table, -1 if it has none.
func (l *inspection) position(p connector.Partition) int64 {
	if next, known := l.snapshot.Positions[p.AppID(l.pipeline)]; known {
		return next
	}
	return -1
}

// started reports whether the table has a position of the pipeline for this very topic.
func (l *inspection) started() bool {
	for _, p := range l.partitions() {
		if l.position(p) >= 0 {
			return true
		}
	}
	return false
}

// whole returns an error if the ends of a partition could not be learnt.
func (l *inspection) whole() error {
	if l.unread == nil {
		return nil
	}
	return l.unread
}

// hold is what a member that resumed the partition now would hold it for, or nil.
func (l *inspection) hold(p connector.Partition) *hold.Hold {
	if l.unread != nil && l.unread.Causes[p] != nil && l.position(p) >= 0 && plan.Replaced(l.snapshot, l.pipeline) == "" {
		reason := cmp.Or(lookup.ReasonOf(l.unread.Causes[p]), hold.KafkaDown)
		return &hold.Hold{Partition: p, Reason: reason, Detail: l.unread.Causes[p].Error(), Offset: l.position(p)}
	}
	return plan.Derive(l.snapshot, l.pipeline, p, l.group, l.bounds, l.rows)
}
