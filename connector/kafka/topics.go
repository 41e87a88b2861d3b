package kafka

import (
	"context"

	"sluice/connector"
)

// Topics returns those of the topics that exist, by name, and why others are refused to us. One that is in neither does not
// exist. It is one request, is not repeated, and never creates a topic.
func (c *Client) Topics(ctx context.Context, names ...string) (found map[string]connector.Topic, refused map[string]error, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	seen, err := c.topics(ctx, names)
	return seen.topics, seen.refused, err
}
