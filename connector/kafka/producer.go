package kafka

import (
	"context"
	"errors"
	"fmt"

	"github.com/segmentio/kafka-go"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// Producer appends records to partitions of topics, in their order. It repeats requests that fail, so the topic may
// have a record more than once.
type Producer struct {
	client *Client
	guard  *reliability.Guard
}

// NewProducer returns a producer. The guard retries requests; nothing below it does.
func NewProducer(client *Client, guard *reliability.Guard) *Producer { return &Producer{client, guard} }

// Produce appends records to a partition and returns nil once all in-sync replicas have them. After an error the
// partition may have the first few of the records. It is an error if the topic was created again. The error has a
// class.
func (p *Producer) Produce(ctx context.Context, to connector.Partition, records []connector.Record) error {
	limit := letterBatchBytes
	for len(records) > 0 {
		batch, n := batchOfRecords(records, limit)
		err := p.guard.Do(ctx, func(ctx context.Context) error { return p.client.produceTo(ctx, to, batch) })
		code, _ := errors.AsType[kafka.Error](err)
		switch {
		case err == nil:
			records = records[n:]
		case (code == kafka.MessageSizeTooLarge || code == kafka.RecordListTooLarge) && n > 1:
			limit = len(batch) / 2 // the topic takes less
		default:
			return err
		}
	}
	return nil
}

// batchOfRecords returns a record batch of the first n records: as many as fit into the limit, and at least one.
func batchOfRecords(records []connector.Record, limit int) (batch []byte, n int) {
	var all []deadletter.Record
	bytes := deadletter.BatchOverhead
	for i := range records {
		r := deadletter.Record{Timestamp: records[i].Timestamp, Key: records[i].Key, Value: records[i].Value}
		for _, h := range records[i].Headers {
			r.Headers = append(r.Headers, deadletter.Header(h))
		}
		if bytes += r.Size(); n > 0 && bytes > limit {
			break
		}
		all, n = append(all, r), n+1
	}
	return appendBatch(nil, all), n
}

// produceTo sends a batch to a partition once.
func (c *Client) produceTo(ctx context.Context, to connector.Partition, batch []byte) error {
	t, err := c.topicToProduce(ctx, to.Topic)
	switch {
	case err != nil:
		return err
	case t.ID != to.TopicID:
		return classify.Mark(fmt.Errorf("topic %s was created again: its id is %v, that of the records was %v", to.Topic, t.ID, to.TopicID), classify.Fatal)
	}
	p := t.partition(to.ID)
	switch {
	case p == nil:
		return classify.Mark(fmt.Errorf("topic %s has no partition %d", to.Topic, to.ID), classify.Fatal)
	case p.Leader < 0:
		return Classify(kafka.LeaderNotAvailable)
	}
	_, err = c.sendBatch(ctx, p.Leader, to.Topic, produceBatch{to.ID, batch})
	return err
}

// topicToProduce returns the metadata of a topic that exists. The error has a class.
func (c *Client) topicToProduce(ctx context.Context, name string) (*topicMetadata, error) {
	m, err := c.metadata(ctx, name)
	if err != nil {
		return nil, Classify(err)
	}
	t := m.topic(name)
	switch {
	case t == nil:
		return nil, Classify(fmt.Errorf("metadata: %w: the response lacks topic %s", errMalformed, name))
	case t.missing():
		return nil, Classify(kafka.UnknownTopicOrPartition)
	case t.Err != 0:
		return nil, Classify(t.Err)
	}
	return t, nil
}

// sendBatch sends one batch of a topic to a broker, and returns its offset. The error has a class.
func (c *Client) sendBatch(ctx context.Context, leader int32, topic string, b produceBatch) (offset int64, err error) {
	answers, err := c.produce(ctx, leader, topic, []produceBatch{b})
	switch {
	case err != nil:
		return 0, Classify(err)
	case answers[0].err != 0:
		return 0, Classify(&produceError{answers[0]})
	}
	return answers[0].offset, nil
}
