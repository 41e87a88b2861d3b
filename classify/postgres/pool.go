// Package postgres holds what the stores in PostgreSQL share: connection settings, error classes, and migrations of
// tables. It knows no table by name: each store describes its tables in a [Tables].
package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/secure/pgconfig"
)

// connectionLife bounds the life of a connection: after a failover, an old connection may still reach the old server.
const connectionLife = 5 * time.Minute

// Config returns the configuration of a pool with at most maxConnections connections; connect bounds the time to open
// one. Config itself opens no connection. The error is a mistake in the URL, which it does not quote, or a
// [secure.ErrPlaintext].
func Config(o pgconfig.Options, maxConnections int32, connect time.Duration) (*pgxpool.Config, error) {
	config, err := pgconfig.Parse(o)
	if err != nil {
		return nil, err
	}
	config.MinConns, config.MaxConns = 0, maxConnections
	config.MaxConnLifetime = connectionLife
	config.ConnConfig.ConnectTimeout = connect
	if _, named := config.ConnConfig.RuntimeParams["application_name"]; !named {
		config.ConnConfig.RuntimeParams["application_name"] = "sluice"
	}
	return config, nil
}
