package kafka

import (
	"context"

	"sluice/connector"
)

// Topics returns the named topics that exist, and the error of each topic that is refused. A name in neither map does
// not exist. Topics sends one request without retries and never creates a topic.
func (c *Client) Topics(ctx context.Context, names ...string) (found map[string]connector.Topic, refused map[string]error, err error) {
	if len(names) == 0 {
		return nil, nil, nil
	}
	seen, err := c.topics(ctx, names)
	return seen.topics, seen.refused, err
}
