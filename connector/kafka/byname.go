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

// Fetch requests to brokers before Kafka 3.1 name topics, not topic ids. Extra requests make up for what such a
// broker cannot check:
//
//   - After a response with records, the same broker is asked for the ids of its topics. A topic that was deleted and
//     created again has another id, and none of its records is used. A gap remains: for a moment a broker may serve
//     the new topic and still report the id of the old one.
//   - Before v12 of Fetch the broker compares no epochs. A separate request compares a position with the log whenever
//     the leader's epoch is newer than the position's.
//
// All of this needs topic ids. A broker without them (Metadata before v10, Kafka 2.7 and older) is refused, and so is
// a cluster whose topics have none.

// errNoTopicID means that the cluster gives a topic no id.
var errNoTopicID = errors.New("the topic has no id")

// lostBelow returns a text with the checks that a broker with this version of Fetch lacks, "" if it lacks none.
func lostBelow(version int16) string {
	switch {
	case version >= fetchVersion:
		return ""
	case version >= fetchEpochs:
		return "topics are read by name: a topic that was deleted and created again is detected by its id in the metadata, which " +
			"are requested after each response with records and can be old for a moment"
	}
	return lostBelow(fetchEpochs) + "; the broker compares no leader epochs: a truncated log is detected only at a change of " +
		"the leader"
}

// compareTopics compares the topic ids in the cluster with the requested ones. It sets an error on each part that has
// records and whose topic has another id now. It returns an error if the ids cannot be read.
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
			return fmt.Errorf("%w: the response lacks topic %s", errMalformed, ask.name)
		case t.Err != 0:
			p.err = t.Err
		case t.ID != ask.topic:
			p.err = kafka.InconsistentTopicID
		}
	}
	return nil
}

// Broker is a broker of the cluster, and how this program can read from it.
type Broker struct {
	ID   int32
	Host string
	Port int32
	Rack string // "" if it has none
	// Fetch is the version of the Fetch request used with it, 0 if Err is not nil. Lost names the checks that the
	// broker lacks because that version is old, "" if it lacks none.
	Fetch int16
	Lost  string
	// Err is the reason why the broker cannot be reached or used; it may be too old, for example.
	Err error
}

// Brokers reports how each broker of the cluster can be read. The error is that of the metadata request.
func (c *Client) Brokers(ctx context.Context) ([]Broker, error) {
	m, err := c.metadata(ctx)
	if err != nil {
		return nil, AsHold("reading the metadata of the cluster", err)
	}
	brokers := make([]Broker, 0, len(m.Brokers))
	for _, b := range m.Brokers {
		broker := Broker{ID: b.ID, Host: b.Host, Port: b.Port, Rack: b.Rack}
		c.forget(b.ID) // so that the current versions are requested
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

// Old returns the brokers that are now read by topic name: broker id to version of Fetch.
func (l *Log) Old() map[int32]int16 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return maps.Clone(l.old)
}

// spoke records the version of Fetch with which a broker was read. If the broker is old, spoke logs which checks it
// lacks, once for each broker and version. The caller holds the lock.
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

// requireID returns an error for a topic without an id, because its deletion and re-creation would go unnoticed.
func (t *topicMetadata) requireID() error {
	if t.Err == 0 && t.ID == (idempotency.TopicID{}) {
		return classify.Mark(fmt.Errorf("topic %s: %w: the cluster's inter.broker.protocol.version is below 2.8; raise it",
			t.Name, errNoTopicID), classify.Fatal)
	}
	return nil
}
