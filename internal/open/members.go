package open

import (
	"context"
	"fmt"

	"sluice/connector/kafka/dial"
	"sluice/health/membership"
	"sluice/health/membership/postgres"
	"sluice/health/membership/redis"
	"sluice/internal/config"
)

// Members opens the store of registrations, nil if the configuration has none. It connects at the first request; the caller
// closes it.
func Members(ctx context.Context, c *config.Config) (store membership.Store, err error) {
	if c.Members.Store == "none" {
		return nil, nil
	}
	url, err := dial.ReadSecret(c.Members.URLFile)
	if err != nil {
		return nil, fmt.Errorf("members.url_file: %w", err)
	}
	m, scope := c.Members, membership.Scope{Pipeline: c.Pipeline, Group: c.Kafka.Group}
	switch m.Store {
	case "redis":
		store, err = redis.Open(redis.Options{URL: url, Scope: scope, CAFile: m.CAFile, InsecurePlaintext: m.InsecurePlaintext})
	case "postgres":
		store, err = postgres.Open(ctx, postgres.Options{URL: url, Scope: scope, CAFile: m.CAFile, InsecurePlaintext: m.InsecurePlaintext})
	}
	if err != nil {
		return nil, fmt.Errorf("members.url_file: %w", err)
	}
	return store, nil
}
