// Package postgres is what the stores in PostgreSQL share: how they connect, what errors mean, and how their tables are made
// and changed. It knows none of the tables.
package postgres

import (
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/secure/pgconfig"
)

// connectionLife is how long a connection is used at most: after a failover, one to the old server may still answer.
const connectionLife = 5 * time.Minute

// Config returns the configuration of a pool with at most max connections, each of which must be made within the time to
// connect. Nothing is connected yet: the error is a mistake in the URL, which it does not quote, or a password that others
// could see.
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
