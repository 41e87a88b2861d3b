package admin

import (
	"context"
	"log/slog"

	"sluice/idempotency"
	"sluice/internal/open"
	"sluice/reliability"
)

// fingerprints connects to the Postgres that stores fingerprints, if the configuration names one. It creates the
// missing tables, as connector run does.
func (k *checks) fingerprints(ctx context.Context) {
	const area, subject = "fingerprints", "postgres"
	if k.config.Fingerprints.Store != subject {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	silent := slog.New(slog.DiscardHandler)
	guard := reliability.NewGuard(subject, k.config.Guard(), silent, nil)
	hint := "check fingerprints.url_file, the rights of its user, and the network"
	store, err := open.Fingerprints(ctx, k.config, guard, silent)
	if err == nil {
		defer store.Close()
		_, err = store.Through(ctx, idempotency.Scope{Pipeline: k.config.Pipeline})
	}
	if last := guard.Status().Err; err != nil && ctx.Err() != nil && last != nil {
		err = last // the last error is the reason why the time limit was reached
	}
	if err != nil {
		k.add(StatusFailed, area, subject, hint, "%v", err)
		return
	}
	k.add(StatusOK, area, subject, "", "reachable")
}
