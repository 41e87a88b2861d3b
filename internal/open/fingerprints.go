package open

import (
	"context"
	"log/slog"

	"sluice/connector/kafka/dial"
	"sluice/idempotency/postgres"
	"sluice/internal/config"
	"sluice/reliability"
)

// Fingerprints opens the database that remembers fingerprints. Nothing is connected yet.
func Fingerprints(ctx context.Context, c *config.Config, guard *reliability.Guard, logger *slog.Logger) (*postgres.Store, error) {
	f := c.Fingerprints
	url, err := dial.ReadSecret(f.URLFile)
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{
		URL: url, CAFile: f.CAFile, InsecurePlaintext: f.InsecurePlaintext, Guard: guard, Logger: logger,
	})
}
