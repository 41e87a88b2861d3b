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

// inspection is the state of a topic at the time of a command: its positions in the table, and its state in Kafka.
type inspection struct {
	pipeline string
	table    *Table
	snapshot *connector.Snapshot
	topic    connector.Topic
	group    map[int32]connector.GroupOffset
	bounds   map[connector.Partition]connector.Bounds
	rows     map[connector.RowsOf]bool // the partitions without a position that have rows, which forbid an initial commit
	// unread has the existing partitions whose bounds are unknown; nil if all are known.
	unread *connector.UnreadError
}

// inspect reads the state of a topic from Kafka. It returns a [hold.Error] for a missing topic. A partition whose
// leader does not respond is in unread, and is no error; see [inspection.complete].
func (q *kafkaQueries) inspect(ctx context.Context, o *Table, name string, s *connector.Snapshot) (*inspection, error) {
	l := &inspection{pipeline: o.config.Pipeline, table: o, snapshot: s}
	err := q.retry(func(ctx context.Context) (err error) { l.topic, err = q.log.Topic(ctx, name); return err })
	if err != nil {
		return nil, err
	}
	err = q.retry(func(ctx context.Context) (err error) { l.group, err = q.group.Offsets(ctx, name); return err })
	if err != nil {
		return nil, err
	}
	if !l.started() && len(l.group) > 0 { // reads the table again, because the initial commit may be newer than the snapshot
		if l.snapshot, _, err = o.snapshot(ctx); err != nil {
			return nil, err
		}
	}
	at, err := l.positions(ctx)
	if err != nil {
		return nil, o.Failed(err)
	}
	err = q.retry(func(ctx context.Context) (err error) {
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

// rowsBefore returns the partitions without a position that have rows in the table. It returns nil if the table does
// not exist.
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

// recentCommits is how many of the newest versions the method positions reads at most to find leader epochs.
const recentCommits = 20

// positions returns the positions in the table, each with the leader epoch of the record batch before it, by which
// Kafka detects a truncated log. The table has the epoch in a second txn, unless an older version of Sluice set the
// position: then the epoch comes from the committed offset, if that equals the position, or from the commit that set
// the position.
func (l *inspection) positions(ctx context.Context) (at []connector.Position, err error) {
	unknown := map[string]int{} // the index in at of each position without an epoch, by appId
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

// partitions returns the current partitions of the topic.
func (l *inspection) partitions() (all []connector.Partition) {
	for _, id := range l.topic.Partitions {
		all = append(all, connector.Partition{Cluster: l.topic.Cluster, Topic: l.topic.Name, TopicID: l.topic.ID, ID: id})
	}
	return all
}

// partition returns the partition with a number, and false if the topic has none.
func (l *inspection) partition(id int32) (connector.Partition, bool) {
	for _, p := range l.partitions() {
		if p.ID == id {
			return p, true
		}
	}
	return connector.Partition{}, false
}

// position returns the position of a partition in the table, -1 if it has none.
func (l *inspection) position(p connector.Partition) int64 {
	if next, known := l.snapshot.Positions[p.AppID(l.pipeline)]; known {
		return next
	}
	return -1
}

// started reports whether the table has a position of the pipeline for this topic id.
func (l *inspection) started() bool {
	for _, p := range l.partitions() {
		if l.position(p) >= 0 {
			return true
		}
	}
	return false
}

// complete returns an error if the bounds of a partition are unknown.
func (l *inspection) complete() error {
	if l.unread == nil {
		return nil
	}
	return l.unread
}

// hold returns the hold that a member would set if it resumed the partition now, or nil.
func (l *inspection) hold(p connector.Partition) *hold.Hold {
	if l.unread != nil && l.unread.Causes[p] != nil && l.position(p) >= 0 && plan.Replaced(l.snapshot, l.pipeline) == "" {
		reason := cmp.Or(lookup.ReasonOf(l.unread.Causes[p]), hold.KafkaDown)
		return &hold.Hold{Partition: p, Reason: reason, Detail: l.unread.Causes[p].Error(), Offset: l.position(p)}
	}
	return plan.Derive(l.snapshot, l.pipeline, p, l.group, l.bounds, l.rows)
}
