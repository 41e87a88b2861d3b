package kafka

import (
	"context"
	"fmt"
	"slices"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// metadataVersion is the first version of Metadata with topic ids (KIP-516), which Kafka has since 2.8. Newer versions
// add nothing that is needed. Every broker that can be read from supports it, so any broker may be asked without
// knowing its versions.
const metadataVersion = 10

// clusterMetadata is the state of the cluster and of some topics as one broker knows it.
type clusterMetadata struct {
	Cluster    string // the cluster's id
	Controller int32  // the broker id of the controller; -1 if there is none
	Brokers    []brokerMetadata
	Topics     []topicMetadata // in the order of the requested names
}

// topic returns a topic by name, nil if it was not requested.
func (m *clusterMetadata) topic(name string) *topicMetadata {
	i := slices.IndexFunc(m.Topics, func(t topicMetadata) bool { return t.Name == name })
	if i < 0 {
		return nil
	}
	return &m.Topics[i]
}

type brokerMetadata struct {
	ID   int32
	Host string
	Port int32
	Rack string
}

type topicMetadata struct {
	Err        kafka.Error
	Name       string
	ID         idempotency.TopicID
	Internal   bool                // one of Kafka's own, such as __consumer_offsets
	Rights     int32               // the operations that this client may do, one bit each (KIP-430); only if requested
	Partitions []partitionMetadata // in ascending order
}

// missing reports whether the broker does not know the topic. The topic may exist nevertheless, because brokers learn
// of a new topic one after the other.
func (t *topicMetadata) missing() bool {
	return t.Err == kafka.UnknownTopicOrPartition || t.Err == kafka.UnknownTopicID
}

// partition returns a partition by id, nil if there is none.
func (t *topicMetadata) partition(id int32) *partitionMetadata {
	i, ok := slices.BinarySearchFunc(t.Partitions, id, func(p partitionMetadata, id int32) int { return int(p.ID) - int(id) })
	if !ok {
		return nil
	}
	return &t.Partitions[i]
}

type partitionMetadata struct {
	Err    kafka.Error
	ID     int32
	Leader int32 // -1 while the partition has none
	Epoch  int32
}

// metadata requests topics by name from any broker; without names, only the state of the cluster. It uses names because
// a response by id could not distinguish a re-created topic from a missing one. It never creates a topic.
func (c *Client) metadata(ctx context.Context, names ...string) (*clusterMetadata, error) {
	m, err := c.requestMetadata(ctx, anyBroker, len(names), names)
	if err != nil {
		return nil, fmt.Errorf("metadata: %w", Classify(err))
	}
	return m, nil
}

// everyTopic, as the number of names, requests all topics that this client may describe. The response leaves out the
// others without an error.
const everyTopic = -1

// requestMetadata requests topics from one broker, or from anyBroker. n is the number of names, or everyTopic. A topic
// without an id is a Fatal error.
func (c *Client) requestMetadata(ctx context.Context, broker int32, n int, names []string) (*clusterMetadata, error) {
	v, err := c.version(ctx, broker, protocol.Metadata, metadataVersion, metadataVersion)
	if err != nil {
		return nil, err
	}
	x := &exchange{}
	e := c.beginMetadata(x, broker, v, n, names, false)
	if err := c.send(ctx, x, &e, 0); err != nil {
		return nil, err
	}
	m, err := decodeMetadata(x.in)
	if err != nil {
		return nil, err
	}
	for i := range m.Topics {
		if err := m.Topics[i].requireID(); err != nil {
			return nil, err
		}
	}
	return m, nil
}

func (c *Client) beginMetadata(x *exchange, broker int32, version int16, n int, names []string, rights bool) encoder {
	e := c.begin(x, broker, protocol.Metadata, version, true)
	e.array(n) // zero requests no topic, -1 all
	for _, name := range names {
		e.uuid(idempotency.TopicID{})
		e.str(name)
		e.tags()
	}
	e.bool(false) // allow_auto_topic_creation: a misspelled name must not create a topic
	e.bool(false) // cluster authorized operations
	e.bool(rights)
	e.tags()
	return e
}

func decodeMetadata(b []byte) (*clusterMetadata, error) {
	d := decoder{b: b, flexible: true}
	m := &clusterMetadata{}
	d.tags() // response header v1
	d.i32()  // throttle time; nothing to do, because the broker itself delays its next response
	for n := d.array(); n > 0 && d.err == nil; n-- {
		m.Brokers = append(m.Brokers, brokerMetadata{ID: d.i32(), Host: d.str(), Port: d.i32(), Rack: d.str()})
		d.tags()
	}
	m.Cluster = d.str()
	m.Controller = d.i32()
	for n := d.array(); n > 0 && d.err == nil; n-- {
		t := topicMetadata{Err: kafka.Error(d.i16()), Name: d.str(), ID: d.uuid()}
		t.Internal = d.i8() != 0
		for n := d.array(); n > 0 && d.err == nil; n-- {
			t.Partitions = append(t.Partitions, partitionMetadata{
				Err: kafka.Error(d.i16()), ID: d.i32(), Leader: d.i32(), Epoch: d.i32(),
			})
			for range 3 { // replicas, in-sync, offline
				d.take(4 * d.array())
			}
			d.tags()
		}
		t.Rights = d.i32()
		d.tags()
		slices.SortFunc(t.Partitions, func(a, b partitionMetadata) int { return int(a.ID) - int(b.ID) })
		m.Topics = append(m.Topics, t)
	}
	return m, d.err
}

// Topic returns the current state of a topic from the cluster's metadata. It is part of [connector.Log].
func (c *Client) Topic(ctx context.Context, name string) (connector.Topic, error) {
	m, err := c.metadata(ctx, name)
	if err != nil {
		return connector.Topic{}, AsHold("reading the metadata of topic "+name, err)
	}
	t := m.topic(name)
	switch {
	case t == nil:
		return connector.Topic{}, fmt.Errorf("metadata: %w: the response lacks topic %s", errMalformed, name)
	case t.missing():
		return connector.Topic{}, hold.New(hold.TopicMissing,
			fmt.Sprintf("cluster %s has no topic %s; create it, or correct the name", m.Cluster, name), nil)
	case t.Err != 0:
		return connector.Topic{}, AsHold("reading the metadata of topic "+name, t.Err)
	}
	topic := connector.Topic{Cluster: m.Cluster, Name: name, ID: t.ID}
	for _, p := range t.Partitions {
		topic.Partitions = append(topic.Partitions, p.ID)
	}
	return topic, nil
}
