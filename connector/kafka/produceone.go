package kafka

import (
	"context"
	"errors"
	"math/rand/v2"

	"github.com/segmentio/kafka-go"

	"sluice/reliability/deadletter"
)

// ProduceOne sends a record once, to any partition of the topic that has a leader. It returns the partition and offset
// of the record once all in-sync replicas have it. The error has a class; if it is Transient, the topic may have the
// record nevertheless.
func (c *Client) ProduceOne(ctx context.Context, topic string, r deadletter.Record) (partition int32, offset int64, err error) {
	t, err := c.topicToProduce(ctx, topic)
	if err != nil {
		return 0, 0, err
	}
	leader := int32(-1)
	for _, i := range rand.Perm(len(t.Partitions)) {
		if p := t.Partitions[i]; p.Leader >= 0 {
			partition, leader = p.ID, p.Leader
			break
		}
	}
	if leader < 0 {
		return 0, 0, Classify(kafka.LeaderNotAvailable)
	}
	offset, err = c.sendBatch(ctx, leader, topic, produceBatch{partition, appendBatch(nil, []deadletter.Record{r})})
	if err != nil {
		return 0, 0, err
	}
	return partition, offset, nil
}

// CreateTopic creates a topic with the cluster's default number of replicas. An existing topic stays unchanged. The
// error has a class.
func (c *Client) CreateTopic(ctx context.Context, name string, partitions int, settings ...[2]string) error {
	err := c.createTopic(ctx, newTopic{name: name, partitions: partitions, settings: settings}, false)
	if err == nil || errors.Is(err, kafka.TopicAlreadyExists) {
		return nil
	}
	return Classify(err)
}
