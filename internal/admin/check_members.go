package admin

import (
	"context"

	"sluice/internal/open"
)

// members connects to the store where members register, if there is one. A database gets its tables if they are not there,
// as from connector run.
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
		k.add(StatusWarning, area, subject, "records are moved without it; look at members.url_file, the rights of its user, and the network", "%v", err)
		return
	}
	k.add(StatusOK, area, subject, "", "can be asked")
}
