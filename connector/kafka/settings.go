package kafka

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/segmentio/kafka-go"
)

// TopicSettings is the part of a topic's configuration that limits how long records live and how large they are.
type TopicSettings struct {
	// Delete is true if records are deleted once they are older than RetentionTime or their partition is larger than
	// RetentionBytes; -1 means no limit.
	Delete         bool
	RetentionTime  time.Duration
	RetentionBytes int64
	// Compact is true if records are deleted once their key has a newer record.
	Compact bool
	// MaxBatch is the size of the largest record batch that producers may write, in bytes.
	MaxBatch int64
}

// TopicSettings requests the configuration of a topic. It needs the right to describe it. A refusal is a [hold.Error]
// with hold.KafkaDenied.
func (c *Client) TopicSettings(ctx context.Context, topic string) (TopicSettings, error) {
	ctx, cancel := context.WithTimeout(ctx, c.timeout())
	defer cancel()
	doing := "reading the configuration of topic " + topic
	response, err := c.requests().DescribeConfigs(ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic, ResourceName: topic,
			ConfigNames: []string{"cleanup.policy", "retention.ms", "retention.bytes", "max.message.bytes"},
		}},
	})
	if err == nil && len(response.Resources) != 1 {
		err = fmt.Errorf("%w: %d topics in the answer about one", errMalformed, len(response.Resources))
	}
	if err == nil {
		err = response.Resources[0].Error
	}
	if err != nil {
		return TopicSettings{}, AsHold(doing, fmt.Errorf("%s: %w", doing, err))
	}
	s := TopicSettings{RetentionTime: -1, RetentionBytes: -1}
	for _, e := range response.Resources[0].ConfigEntries {
		if e.ConfigName == "cleanup.policy" {
			s.Delete, s.Compact = strings.Contains(e.ConfigValue, "delete"), strings.Contains(e.ConfigValue, "compact")
			continue
		}
		n, err := strconv.ParseInt(e.ConfigValue, 10, 64)
		if err != nil {
			return TopicSettings{}, fmt.Errorf("%s: %s is %q: %w", doing, e.ConfigName, e.ConfigValue, err)
		}
		switch e.ConfigName {
		case "retention.ms":
			if s.RetentionTime = -1; n >= 0 {
				s.RetentionTime = time.Duration(min(n, int64(1<<63-1)/int64(time.Millisecond))) * time.Millisecond
			}
		case "retention.bytes":
			s.RetentionBytes = n
		case "max.message.bytes":
			s.MaxBatch = n
		}
	}
	return s, nil
}
