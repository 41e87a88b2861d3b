package admin

import (
	"context"

	"sluice/internal/open"
)

// members connects to the store of registrations, if the configuration names one. It creates missing tables in a
// database, as connector run does.
func (k *checks) members(ctx context.Context) {
	const area = "members"
	subject := k.config.Members.Store
	if subject == "none" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	store, err := open.Members(ctx, k.config)
	if err == nil {
		defer func() { _ = store.Close() }()
		_, err = store.Members(ctx)
	}
	if err != nil {
		k.add(StatusWarning, area, subject, "records move without it; check members.url_file, the rights of its user, and the network", "%v", err)
		return
	}
	k.add(StatusOK, area, subject, "", "reachable")
}
