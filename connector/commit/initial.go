package commit

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/reliability/hold"
)

// planStart finds the first positions: of all partitions of a topic if it has none in the table, else of those that are
// missing. The error is a hold.Error if Kafka does not say what is needed, or if the start that is configured is outside of
// the log.
func (r *resolver) planStart(ctx context.Context, name string, missing []connector.Partition) (*plan.Initial, error) {
	like := missing[0]
	topic, err := r.kafka.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	if topic.ID != like.TopicID || topic.Cluster != like.Cluster {
		return nil, hold.New(hold.TopicRecreated, fmt.Sprintf("topic %q was created again while its claims resumed", name), nil)
	}
	late := plan.Added(like, plan.History(r.snapshot, name), r.pipeline)
	partitions, start := missing, connector.Start{}
	if !late {
		partitions, start = topic.All(), r.start[name]
	}
	bounds, err := r.kafka.bounds(ctx, positionsAt(partitions))
	if late && len(bounds) > 0 { // each begins for itself, and one without a leader is held
		partitions = slices.Collect(maps.Keys(bounds))
	} else if err != nil {
		return nil, unstarted(err)
	}
	var at map[connector.Partition]int64
	if start.Policy == connector.StartTimestamp {
		if at, err = r.kafka.offsetsAt(ctx, partitions, start); err != nil {
			return nil, err
		}
	}
	if len(bounds) < len(partitions) {
		return nil, hold.New(hold.KafkaDown, fmt.Sprintf("topic %q changed while it was looked at", name), nil)
	}
	starts, err := start.First(bounds, at)
	if err != nil {
		return nil, err
	}
	return &plan.Initial{Topic: name, Added: late, Positions: starts}, nil
}

// unstarted returns an error of bounds as a hold.Error of an initial commit.
func unstarted(err error) error {
	if _, _, held := hold.Of(err); held {
		return err
	}
	return hold.New(hold.KafkaDown, "the initial positions cannot be found", err)
}

// offsetsAt asks where the time of a start is in the logs.
func (k *kafka) offsetsAt(ctx context.Context, partitions []connector.Partition, start connector.Start) (at map[connector.Partition]int64, err error) {
	since := start.At
	if since.IsZero() {
		since = time.Now().Add(-start.Back)
	}
	err = k.retry(ctx, "offsets of a time", func(ctx context.Context) (err error) {
		at, err = k.log.OffsetsAt(ctx, partitions, since)
		return err
	})
	return at, err
}
