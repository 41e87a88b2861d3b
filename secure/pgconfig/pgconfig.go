// Package pgconfig reads the URL of a Postgres database and refuses one that would show the password to others. pgx alone
// takes a URL without sslmode for "prefer": it sends the password in the clear to a server that says it has no TLS. It also
// bounds what a server may send: pgx allocates what a message says to have, up to 1 GiB.
package pgconfig

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"sync/atomic"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"sluice/secure"
)

// Options of a database.
type Options struct {
	// URL with user, password and what else libpq's URLs say.
	URL string
	// CAFile holds the authorities that may have signed the server's certificate; with it, TLS and the host's name are
	// required. Empty means sslrootcert of the URL, or the authorities of the system.
	CAFile string
	// InsecurePlaintext allows a password over connections without TLS, or to an unverified host.
	InsecurePlaintext bool
}

// Parse reads the URL. Nothing is connected. The error does not quote the URL; it is a [secure.ErrPlaintext] if a password
// would reach a host that is neither this machine nor verified by sslmode=verify-full.
func Parse(o Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, errors.New("the URL of the Postgres database cannot be read: postgres://user:password@host:port/database?sslmode=verify-full is how it looks, and files that it names must be there")
	}
	bound(&config.ConnConfig.Config)
	if o.CAFile != "" {
		if err := verify(&config.ConnConfig.Config, o.CAFile); err != nil {
			return nil, err
		}
	}
	if config.ConnConfig.Password == "" || o.InsecurePlaintext {
		return config, nil
	}
	for _, t := range targets(&config.ConnConfig.Config) {
		if network, _ := pgconn.NetworkAddress(t.Host, t.Port); network == "unix" || secure.Loopback(t.Host) || secure.Verifies(t.TLSConfig) {
			continue
		}
		how := "without TLS"
		if t.TLSConfig != nil {
			how = "without looking whose certificate it shows"
		}
		return nil, fmt.Errorf("%w: the URL lets the password go to %s %s: add sslmode=verify-full to it, and ca_file if the authority is your own", secure.ErrPlaintext, t.Host, how)
	}
	return config, nil
}

// Bounds of what a server sends.
const (
	// maxMessage bounds a message, of which a row is one: rows of ours have some KiB.
	maxMessage = 1 << 20
	// maxReply bounds what a server sends in reply to one request: a list of members has 6 MiB at most, a lookup of
	// fingerprints 1 MiB.
	maxReply = 16 << 20
)

// bound makes connections of this configuration fail where a server exceeds a bound.
func bound(c *pgconn.Config) {
	c.MaxProtocolMessageBodyLen = maxMessage
	dial := c.DialFunc
	c.DialFunc = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := dial(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &boundConn{Conn: conn}, nil
	}
}

// boundConn counts what arrives between two requests. pgx reads while it writes, too.
type boundConn struct {
	net.Conn
	arrived atomic.Int64
}

// Read implements net.Conn.
func (c *boundConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.arrived.Add(int64(n)) > maxReply {
		return 0, fmt.Errorf("reply too large: more than %d MiB from %s", maxReply>>20, c.RemoteAddr())
	}
	return n, err
}

// Write implements net.Conn.
func (c *boundConn) Write(p []byte) (int, error) {
	c.arrived.Store(0)
	return c.Conn.Write(p)
}

// targets are all ways in which a server may be reached, in the order in which they are tried.
func targets(c *pgconn.Config) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
}

// verify makes every host one that is reached by TLS and verified by the authorities in a file.
func verify(c *pgconn.Config, caFile string) error {
	type place struct {
		host string
		port uint16
	}
	var own *tls.Config // with our certificate, if the URL names one
	for _, t := range targets(c) {
		if t.TLSConfig != nil {
			own = t.TLSConfig
		}
	}
	if own == nil {
		return errors.New("ca_file does not count with sslmode=disable: write sslmode=verify-full into the URL, or remove ca_file")
	}
	seen := map[place]bool{}
	var safe []*pgconn.FallbackConfig
	for _, t := range targets(c) {
		if seen[place{t.Host, t.Port}] {
			continue
		}
		seen[place{t.Host, t.Port}] = true
		config, err := secure.TLS(t.Host, caFile)
		if err != nil {
			return fmt.Errorf("ca_file: %w", err)
		}
		config.Certificates, config.NextProtos = own.Certificates, own.NextProtos
		safe = append(safe, &pgconn.FallbackConfig{Host: t.Host, Port: t.Port, TLSConfig: config})
	}
	c.Host, c.Port, c.TLSConfig, c.Fallbacks = safe[0].Host, safe[0].Port, safe[0].TLSConfig, safe[1:]
	return nil
}
