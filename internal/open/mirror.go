package open

import (
	"context"
	"fmt"

	"sluice/connector/kafka/dial"
	"sluice/internal/config"
	"sluice/sink/opslog/mirror/postgres"
)

// Mirror opens the database of the copies of the operations log, nil if the configuration has none. It connects at the first
// request; the caller closes it.
func Mirror(ctx context.Context, c *config.Config) (*postgres.Store, error) {
	m := c.Ops.Mirror
	if m.URLFile == "" {
		return nil, nil
	}
	url, err := dial.ReadSecret(m.URLFile)
	if err != nil {
		return nil, fmt.Errorf("ops.mirror_url_file: %w", err)
	}
	store, err := postgres.Open(ctx, postgres.Options{URL: url, Pipeline: c.Pipeline, CAFile: m.CAFile, InsecurePlaintext: m.InsecurePlaintext})
	if err != nil {
		return nil, fmt.Errorf("ops.mirror_url_file: %w", err)
	}
	return store, nil
}
