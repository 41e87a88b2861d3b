package kafka

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/classify"
	"sluice/idempotency"
)

// Brokers before Kafka 3.1 are read by the names of topics. What the broker cannot tell is asked for around it:
//
//   - After a response that carries records, the same broker is asked which topics it means. One that was deleted and
//     created again has another id, and none of its records is used. What stays open is the time in which a broker
//     already serves the new topic and still knows the id of the old one.
//   - Before v12 the broker compares no epochs, so a position is compared with the log by a question of its own whenever
//     the leader's epoch is newer than the position's.
//
// Without topic ids nothing of this holds: a broker that has none (Metadata before v10, Kafka 2.7 and older), or a
// cluster that gives none to its topics, is refused.

// errNoTopicID says that a topic has no id.
var errNoTopicID = errors.New("the topic has no id")

// lostBelow says what a broker cannot do that speaks this version of Fetch, "" if nothing is lost.
func lostBelow(version int16) string {
	switch {
	case version >= fetchVersion:
		return ""
	case version >= fetchEpochs:
		return "topics are read by name: one that is deleted and created again is told by its id in the metadata, which " +
			"are asked for after each response with records and can be old for a moment"
	}
	return lostBelow(fetchEpochs) + "; the broker compares no leader epochs: a truncated log is looked for at each change of " +
		"the leader"
}

// compareTopics makes an error of the parts with records whose topic is not the one asked for.
func (c *Client) compareTopics(ctx context.Context, req *fetchRequest, f *fetchResponse) error {
	var names []string
	for i := range f.parts {
		name := req.spans[f.parts[i].index].name
		if len(f.parts[i].records) > 0 && (len(names) == 0 || names[len(names)-1] != name) {
			names = append(names, name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	m, err := c.requestMetadata(ctx, req.broker, len(names), names)
	if err != nil {
		return fmt.Errorf("compare the ids of topics that were read by name: %w", err)
	}
	for i := range f.parts {
		p := &f.parts[i]
		if len(p.records) == 0 {
			continue
		}
		ask := &req.spans[p.index]
		switch t := m.topic(ask.name); {
		case t == nil:
			return fmt.Errorf("%w: no word on topic %s", errMalformed, ask.name)
		case t.Err != 0:
			p.err = t.Err
		case t.ID != ask.topic:
			p.err = kafka.InconsistentTopicID
		}
	}
	return nil
}

// Broker is a broker of the cluster and how it is read.
type Broker struct {
	ID   int32
	Host string
	Port int32
	Rack string // "" if it has none
	// Fetch is the version of the protocol's Fetch that is used with it, 0 if Err is not nil, and Lost what the broker
	// cannot do because that version is old, "" if nothing.
	Fetch int16
	Lost  string
	// Err is why it was not reached, or cannot be used: too old, for example.
	Err error
}

// Brokers asks each broker of the cluster how it can be read. The error is that of the metadata.
func (c *Client) Brokers(ctx context.Context) ([]Broker, error) {
	m, err := c.metadata(ctx)
	if err != nil {
		return nil, AsHold("reading the metadata of the cluster", err)
	}
	brokers := make([]Broker, 0, len(m.Brokers))
	for _, b := range m.Brokers {
		broker := Broker{ID: b.ID, Host: b.Host, Port: b.Port, Rack: b.Rack}
		c.forget(b.ID) // what it speaks now
		version, err := c.version(ctx, b.ID, protocol.Fetch, fetchOldest, fetchVersion)
		if err != nil {
			broker.Err = AsHold(fmt.Sprintf("reading from broker %d", b.ID), err)
		} else {
			broker.Fetch, broker.Lost = version, lostBelow(version)
		}
		brokers = append(brokers, broker)
	}
	return brokers, nil
}

// Old are the brokers that are read by topic name now, by id, with the version of Fetch that they speak.
func (l *Log) Old() map[int32]int16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.old)
}

// spoke notes the version of Fetch in which a broker has answered. What an old one cannot do is said once, until it
// speaks another version. The lock is held.
func (l *Log) spoke(broker int32, version int16) {
	was, old := l.old[broker]
	switch {
	case version >= fetchVersion && old:
		delete(l.old, broker)
		l.logger.Info("broker is read by topic id now", "broker", broker, "fetch_version", version)
	case version < fetchVersion:
		l.metrics.byName.Inc()
		if was != version {
			l.old[broker] = version
			l.logger.Warn("broker is old and read with less safety", "broker", broker, "fetch_version", version,
				"lost", lostBelow(version))
		}
	}
}

// requireID refuses a topic without an id. That a topic was deleted and created again could not be seen.
func (t *topicMetadata) requireID() error {
	if t.Err == 0 && t.ID == (idempotency.TopicID{}) {
		return classify.Mark(fmt.Errorf("topic %s: %w: the cluster's inter.broker.protocol.version is below 2.8; raise it",
			t.Name, errNoTopicID), classify.Fatal)
	}
	return nil
}
