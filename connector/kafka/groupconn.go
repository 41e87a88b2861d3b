package kafka

import (
	"context"
	"net"
	"sync"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
)

// groupConns are the connections of one ConsumerGroup of kafka-go. They work around three faults of kafka-go. It dials
// without a context, so that closing the group waits for a broker that does not answer. It sends some requests without
// a deadline. Its metadata requests create missing topics.
type groupConns struct {
	dialer *kafka.Dialer
	dial   func(ctx context.Context, network, address string) (net.Conn, error)
	limit  time.Duration // the time limit of an exchange for which kafka-go sets no deadline

	life context.Context // canceled by abort
	end  context.CancelFunc

	mu   sync.Mutex
	open map[*groupConn]struct{}
}

// newGroupConns returns connections that work until abort is called or ctx ends.
func newGroupConns(ctx context.Context, c *Client) *groupConns {
	g := &groupConns{dial: c.dialer.DialContext, limit: c.timeout(), open: make(map[*groupConn]struct{})}
	g.dialer = &kafka.Dialer{ClientID: c.cfg.ClientID, Timeout: c.cfg.Session / 6, DialFunc: g.connect}
	g.life, g.end = context.WithCancel(ctx)
	return g
}

// abort ends all exchanges in flight, and makes later ones fail.
func (g *groupConns) abort() {
	g.end()
	g.mu.Lock()
	defer g.mu.Unlock()
	for c := range g.open {
		_ = c.Conn.Close() // kafka-go gets an error from its next call on the connection
	}
}

func (g *groupConns) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(g.life, cancel)()
	conn, err := g.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &groupConn{Conn: conn, group: g}
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.life.Err() != nil {
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	g.open[c] = struct{}{}
	return c, nil
}

// groupConn is a connection to the group's coordinator, or to a broker that knows the coordinator.
type groupConn struct {
	net.Conn
	group *groupConns

	// These fields are about the request that kafka-go is writing now; it writes one request after the other.
	head [8]byte // size, API key, version
	seen int     // how many bytes of head were written
	rest int     // how many bytes of the request are missing after head
}

// Metadata versions whose last byte is allow_auto_topic_creation. kafka-go writes version 6, if the broker supports
// it, with the value true.
const (
	createFrom = 4
	createTo   = 7
)

// Write passes requests on, but changes metadata requests so that they create no topic.
func (c *groupConn) Write(b []byte) (int, error) {
	var changed []byte
	for i := 0; i < len(b); {
		if c.seen < len(c.head) {
			n := copy(c.head[c.seen:], b[i:])
			c.seen += n
			i += n
			if c.seen < len(c.head) {
				break
			}
			c.rest = int(be.Uint32(c.head[:])) - 4
			if c.rest > 0 {
				continue
			}
		}
		n := min(c.rest, len(b)-i)
		i += n
		if c.rest -= n; c.rest > 0 {
			break
		}
		if n > 0 && c.creates() {
			if changed == nil {
				changed = append(changed, b...)
			}
			changed[i-1] = 0
		}
		c.seen, c.rest = 0, 0
	}
	if changed == nil {
		changed = b
	}
	return c.Conn.Write(changed)
}

func (c *groupConn) creates() bool {
	key, version := be.Uint16(c.head[4:]), be.Uint16(c.head[6:])
	return key == uint16(protocol.Metadata) && version >= createFrom && version <= createTo
}

// SetDeadline implements [net.Conn]. A zero t becomes the time after the limit, so that a deadline is always set.
func (c *groupConn) SetDeadline(t time.Time) error { return c.Conn.SetDeadline(c.bound(t)) }

// SetReadDeadline implements [net.Conn]. A zero t becomes the time after the limit. kafka-go calls it before it reads a
// response.
func (c *groupConn) SetReadDeadline(t time.Time) error { return c.Conn.SetReadDeadline(c.bound(t)) }

// SetWriteDeadline implements [net.Conn]. A zero t becomes the time after the limit. kafka-go calls it before it writes
// a request.
func (c *groupConn) SetWriteDeadline(t time.Time) error { return c.Conn.SetWriteDeadline(c.bound(t)) }

func (c *groupConn) bound(t time.Time) time.Time {
	if t.IsZero() {
		return time.Now().Add(c.group.limit)
	}
	return t
}

// Close closes the connection.
func (c *groupConn) Close() error {
	c.group.mu.Lock()
	delete(c.group.open, c)
	c.group.mu.Unlock()
	return c.Conn.Close()
}
