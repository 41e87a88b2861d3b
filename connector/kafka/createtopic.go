package kafka

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// createTopicsVersion is the first flexible version of CreateTopics; every Kafka from 2.8 on has it. A replication
// factor of -1 means the cluster's default (KIP-464).
const createTopicsVersion = 5

// newTopic is a topic to create.
type newTopic struct {
	name       string
	partitions int
	settings   [][2]string
}

// createTopic asks the controller to create a topic; with dry the controller only checks whether it could. kafka-go's
// own method would wait for metadata of the topic afterwards, which kafka-go does not get in this client.
func (c *Client) createTopic(ctx context.Context, t newTopic, dry bool) error {
	m, err := c.metadata(ctx)
	if err != nil {
		return err
	}
	if _, err := c.version(ctx, m.Controller, protocol.CreateTopics, createTopicsVersion, createTopicsVersion); err != nil {
		return err
	}
	x := &exchange{}
	e := c.begin(x, m.Controller, protocol.CreateTopics, createTopicsVersion, true)
	e.array(1)
	e.str(t.name)
	e.size(t.partitions)
	e.i16(-1) // replication factor
	e.array(0)
	e.array(len(t.settings))
	for _, s := range t.settings {
		e.str(s[0])
		e.str(s[1])
		e.tags()
	}
	e.tags()
	e.size(int(c.timeout() / 2 / time.Millisecond))
	e.bool(dry)
	e.tags()
	if err := c.send(ctx, x, &e, 0); err != nil {
		return err
	}
	d := decoder{b: x.in, flexible: true}
	d.tags() // response header v1
	d.i32()  // throttle time
	n, name, code, detail := d.array(), d.str(), kafka.Error(d.i16()), d.str()
	switch {
	case d.err != nil:
		return d.err
	case n != 1 || name != t.name:
		return fmt.Errorf("%w: the response lacks topic %s", errMalformed, t.name)
	case code != 0:
		return &produceError{produced{err: code, detail: detail}}
	}
	return nil
}

// newLetterTopic returns a dead-letter topic to create. It has the settings of t, and as many partitions as the source
// topic; one partition if the source no longer exists.
func (c *Client) newLetterTopic(ctx context.Context, t LetterTopic, source string) (newTopic, error) {
	n := newTopic{name: t.Name, partitions: 1}
	m, err := c.metadata(ctx, source)
	if err != nil {
		return n, err
	}
	if s := m.topic(source); s != nil && s.Err == 0 {
		n.partitions = min(max(len(s.Partitions), 1), maxLetterPartitions)
	}
	retention := int64(-1)
	if t.Retention >= 0 {
		retention = t.Retention.Milliseconds()
	}
	n.settings = [][2]string{{"cleanup.policy", "delete"}, {"retention.ms", strconv.FormatInt(retention, 10)}}
	if s, err := c.TopicSettings(ctx, source); err == nil && s.MaxBatch > 0 && s.MaxBatch < 1<<30 {
		// Makes room for the largest record of the source with what a dead letter adds to it.
		n.settings = append(n.settings, [2]string{"max.message.bytes", strconv.FormatInt(s.MaxBatch+letterOverhead, 10)})
	}
	return n, nil
}
