package open

import (
	"context"
	"fmt"
	"log/slog"

	"sluice/classify"
	"sluice/connector/kafka/dial"
	"sluice/idempotency/postgres"
	"sluice/internal/config"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
)

// Fingerprints returns the store of fingerprints in Postgres. It connects at the first request; all requests go through
// guard. If the server refuses a request, the error is a [hold.Error] with [hold.FingerprintsUnavailable].
func Fingerprints(ctx context.Context, c *config.Config, guard *reliability.Guard, logger *slog.Logger) (*postgres.Store, error) {
	f := c.Fingerprints
	url, err := dial.ReadSecret(f.URLFile)
	if err != nil {
		return nil, err
	}
	return postgres.Open(ctx, postgres.Options{
		URL: url, CAFile: f.CAFile, InsecurePlaintext: f.InsecurePlaintext, Retry: (&fingerprintRetry{guard: guard, logger: logger}).do,
	})
}

// fingerprintRetry retries requests to the store of fingerprints.
type fingerprintRetry struct {
	guard  *reliability.Guard
	logger *slog.Logger
	logged panics.Seen
}

// do runs op through the guard. It treats a panic as a transient failure, because a response of the database has
// probably caused it and a later attempt may succeed. about has attributes for the guard's log lines.
func (r *fingerprintRetry) do(ctx context.Context, op func(context.Context) error, about ...any) error {
	err := r.guard.Do(ctx, func(ctx context.Context) error {
		err := panics.Catch(func() error { return op(ctx) })
		caught, anew := r.logged.Anew(err)
		if anew {
			r.logger.ErrorContext(ctx, "retrying after a panic in the fingerprint store; report it with the stack", "err", err, "stack", caught.Stack)
		}
		if caught != nil {
			return classify.Mark(err, classify.Transient)
		}
		return err
	}, about...)
	switch {
	case err == nil:
		return nil
	case classify.Of(err) == classify.Fatal:
		return hold.New(hold.FingerprintsUnavailable, "Postgres refuses; check user, password, database and its tables", err)
	}
	return fmt.Errorf("fingerprints in Postgres: %w", err)
}
