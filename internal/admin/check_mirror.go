package admin

import (
	"context"

	"sluice/internal/open"
)

// mirror connects to the database of the copies of the operations log, if the configuration names one. It creates the
// missing table, as connector run does.
func (k *checks) mirror(ctx context.Context) {
	const area, subject = "audit", "ops.mirror_url_file"
	if k.config.Ops.Mirror.URLFile == "" {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, k.timeout)
	defer cancel()
	store, err := open.Mirror(ctx, k.config)
	if err == nil {
		defer store.Close()
		_, err = store.Newest(ctx, 1)
	}
	if err != nil {
		k.add(StatusWarning, area, subject, "records and operations continue without it; check the URL in the file, the rights of its user, and the network", "%v", err)
		return
	}
	k.add(StatusOK, area, subject, "", "reachable")
}
