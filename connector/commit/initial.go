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

// initialPositions computes the positions of an initial commit. If the table has no position of the topic, the commit
// covers all partitions of the topic; otherwise only missing, the partitions of resuming claims that have no position.
// The error is Canceled or a [hold.Error], for example if Kafka does not return the offsets, or if the configured start
// is outside of the log.
func (r *resolver) initialPositions(ctx context.Context, name string, missing []connector.Partition) (*plan.Initial, error) {
	like := missing[0]
	topic, err := r.kafka.topic(ctx, name)
	if err != nil {
		return nil, err
	}
	if topic.ID != like.TopicID || topic.Cluster != like.Cluster {
		return nil, hold.New(hold.TopicRecreated, fmt.Sprintf("topic %q was created again while its claims resumed", name), nil)
	}
	added := plan.Added(like, plan.History(r.snapshot, name), r.pipeline)
	partitions, start := missing, connector.Start{}
	if !added {
		partitions, start = topic.All(), r.start[name]
	}
	bounds, err := r.kafka.bounds(ctx, positionsAt(partitions))
	if added && len(bounds) > 0 { // added partitions begin separately; those without bounds are held
		partitions = slices.Collect(maps.Keys(bounds))
	} else if err != nil {
		return nil, initialHold(err)
	}
	var at map[connector.Partition]int64
	if start.Policy == connector.StartTimestamp {
		if at, err = r.kafka.offsetsAt(ctx, partitions, start); err != nil {
			return nil, err
		}
	}
	if len(bounds) < len(partitions) {
		return nil, hold.New(hold.KafkaDown, fmt.Sprintf("topic %q changed while its log ends were read", name), nil)
	}
	starts, err := start.First(bounds, at)
	if err != nil {
		return nil, err
	}
	return &plan.Initial{Topic: name, Added: added, Positions: starts}, nil
}

// initialHold returns a [hold.Error] unchanged. Any other error from reading log ends becomes a hold with
// hold.KafkaDown.
func initialHold(err error) error {
	if _, _, held := hold.Of(err); held {
		return err
	}
	return hold.New(hold.KafkaDown, "failed to find the initial positions", err)
}

// offsetsAt returns the offset of the first record at or after the start time, by partition.
func (k *kafka) offsetsAt(ctx context.Context, partitions []connector.Partition, start connector.Start) (at map[connector.Partition]int64, err error) {
	since := start.At
	if since.IsZero() {
		since = time.Now().Add(-start.Back)
	}
	err = k.withTimeout(ctx, "the offsets at the start time", func(ctx context.Context) (err error) {
		at, err = k.log.OffsetsAt(ctx, partitions, since)
		return err
	})
	return at, err
}
