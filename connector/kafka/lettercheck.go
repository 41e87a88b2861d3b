package kafka

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/classify"
)

// LetterTopicState describes a dead-letter topic before its first dead letter.
type LetterTopicState struct {
	// Partitions is 0 if the topic does not exist. CreateErr is then the reason why it could not be created, nil if
	// it could.
	Partitions int
	CreateErr  error
	// WriteErr is the reason why an existing topic cannot be written to, nil if no reason is known.
	WriteErr error
	// Settings are those of an existing topic. SettingsErr is the reason why they could not be read.
	Settings    TopicSettings
	SettingsErr error
}

// writeBit is the right to write in the bit field of a topic's rights (Kafka's AclOperation).
const writeBit = 1 << 4

// LetterTopicState checks the dead-letter topic of a source topic without changing anything. CreateErr and WriteErr
// are [hold.Error]s, the same ones that a writer of dead letters would hold for.
func (c *Client) LetterTopicState(ctx context.Context, to LetterTopic, source string) (s LetterTopicState, err error) {
	t := &letterTopic{LetterTopic: to, source: source}
	topic, err := c.topicWithRights(ctx, to.Name)
	switch {
	case err != nil:
		return s, AsHold("reading the metadata of topic "+to.Name, err)
	case topic.missing() && !to.Create:
		s.CreateErr = t.asHold(t.missing())
		return s, nil
	case topic.missing():
		n, err := c.newLetterTopic(ctx, to, source)
		if err == nil {
			err = c.createTopic(ctx, n, true)
		}
		switch err = Classify(err); {
		case err == nil, errors.Is(err, kafka.TopicAlreadyExists):
			return s, nil
		case classify.Of(err) == classify.Transient:
			return s, err
		}
		s.CreateErr = t.asHold(&createError{err})
		return s, nil
	case topic.Err != 0 && !denied(topic.Err):
		return s, AsHold("reading the metadata of topic "+to.Name, topic.Err)
	}
	s.Partitions = max(len(topic.Partitions), 1)
	if denied(topic.Err) || topic.Rights != math.MinInt32 && topic.Rights&writeBit == 0 {
		s.WriteErr = t.asHold(kafka.TopicAuthorizationFailed)
	}
	if s.Settings, s.SettingsErr = c.TopicSettings(ctx, to.Name); s.SettingsErr == nil && s.Settings.Compact {
		s.WriteErr = t.compacted()
	}
	return s, nil
}

func (c *Client) topicWithRights(ctx context.Context, name string) (*topicMetadata, error) {
	if _, err := c.version(ctx, anyBroker, protocol.Metadata, metadataVersion, metadataVersion); err != nil {
		return nil, err
	}
	x := &exchange{}
	e := c.beginMetadata(x, anyBroker, metadataVersion, 1, []string{name}, true)
	if err := c.send(ctx, x, &e, 0); err != nil {
		return nil, err
	}
	m, err := decodeMetadata(x.in)
	if err != nil {
		return nil, err
	}
	t := m.topic(name)
	if t == nil {
		return nil, fmt.Errorf("metadata: %w: the response lacks topic %s", errMalformed, name)
	}
	return t, nil
}
