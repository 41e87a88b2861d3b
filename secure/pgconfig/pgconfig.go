// Package pgconfig reads the URL of a Postgres database and refuses one that would expose the password. By itself, pgx
// treats a URL without sslmode as "prefer": it sends the password in the clear to a server that says it has no TLS. The
// package also bounds what a server may send: pgx allocates the length that a message declares, up to 1 GiB.
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

// Options describes how to connect to a database.
type Options struct {
	// URL is a connection string of libpq, as a URL or as keywords, with user and password.
	URL string
	// CAFile is a file of CA certificates that may have signed the server's certificate. With it, TLS and a verified
	// host name are required. If it is empty, sslrootcert of the URL counts, or the CA certificates of the system.
	CAFile string
	// InsecurePlaintext allows sending the password without TLS, or to an unverified host.
	InsecurePlaintext bool
}

// Parse reads the URL. It opens no connection. The error does not quote the URL. It is a [secure.ErrPlaintext] if the
// password would reach a host that is neither this machine nor verified by sslmode=verify-full.
func Parse(o Options) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(o.URL)
	if err != nil {
		return nil, errors.New("the URL of the Postgres database cannot be read: write postgres://user:password@host:port/database?sslmode=verify-full; files that the URL names must exist")
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
			how = "without verifying the server's certificate"
		}
		return nil, fmt.Errorf("%w: the URL would send the password to %s %s: add sslmode=verify-full to the URL, and set ca_file if you use your own CA", secure.ErrPlaintext, t.Host, how)
	}
	return config, nil
}

// The bounds for what a server may send.
const (
	// maxMessage bounds a message in bytes. A row is one message, and the rows of Sluice's tables have a few KiB.
	maxMessage = 1 << 20
	// maxReply bounds what a server sends in reply to one request: a list of members has 6 MiB at most, a lookup of
	// fingerprints 1 MiB.
	maxReply = 16 << 20
)

// bound makes connections of this configuration fail when the server exceeds maxMessage or maxReply.
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

// boundConn counts the bytes that arrive between two requests. The counter is atomic because pgx reads while it writes.
type boundConn struct {
	net.Conn
	arrived atomic.Int64
}

// Read reads from the connection. It fails once a reply exceeds maxReply.
func (c *boundConn) Read(p []byte) (int, error) {
	n, err := c.Conn.Read(p)
	if c.arrived.Add(int64(n)) > maxReply {
		return 0, fmt.Errorf("reply too large: more than %d MiB from %s", maxReply>>20, c.RemoteAddr())
	}
	return n, err
}

// Write starts a new request, so it resets the counter.
func (c *boundConn) Write(p []byte) (int, error) {
	c.arrived.Store(0)
	return c.Conn.Write(p)
}

// targets returns all hosts that pgx would try, in its order.
func targets(c *pgconn.Config) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: c.Host, Port: c.Port, TLSConfig: c.TLSConfig}}, c.Fallbacks...)
}

// verify makes pgx use TLS for every host, and verify each host with the CA certificates in caFile.
func verify(c *pgconn.Config, caFile string) error {
	type place struct {
		host string
		port uint16
	}
	var own *tls.Config // the client certificate that the URL names, if any
	for _, t := range targets(c) {
		if t.TLSConfig != nil {
			own = t.TLSConfig
		}
	}
	if own == nil {
		return errors.New("ca_file has no effect with sslmode=disable: write sslmode=verify-full into the URL, or remove ca_file")
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
