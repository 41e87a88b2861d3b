package kafka

import (
	"context"
	"net"
	"sync"

	"github.com/segmentio/kafka-go"
)

// transport is kafka-go's transport, except that close really closes it. kafka-go's own close leaves connections open
// that are being dialed or used, and after it a request makes its pool dial for ever. So transport keeps a list of all
// connections.
type transport struct {
	kafka *kafka.Transport
	dial  func(ctx context.Context, network, address string) (net.Conn, error)

	mu     sync.Mutex
	closed bool
	open   map[*transportConn]struct{} // the connections that are open or being dialed
}

// newTransport returns a transport around k, and sets the Dial of k.
func newTransport(k *kafka.Transport, dial func(ctx context.Context, network, address string) (net.Conn, error)) *transport {
	t := &transport{kafka: k, dial: dial, open: map[*transportConn]struct{}{}}
	k.Dial = t.connect
	return t
}

// RoundTrip implements [kafka.RoundTripper].
func (t *transport) RoundTrip(ctx context.Context, address net.Addr, request kafka.Request) (kafka.Response, error) {
	response, err := t.kafka.RoundTrip(ctx, address, request)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed { // a request may have revived kafka-go's pool, and its dials must fail
		t.kafka.CloseIdleConnections()
	}
	return response, err
}

// close ends all exchanges in flight, and makes later ones fail.
func (t *transport) close() {
	var open []net.Conn
	t.mu.Lock()
	t.closed = true
	for c := range t.open {
		c.cancel()
		if c.Conn != nil {
			open = append(open, c.Conn)
		}
	}
	t.mu.Unlock()
	for _, conn := range open {
		_ = conn.Close() // the exchange on this connection then fails with an error
	}
	t.kafka.CloseIdleConnections()
}

func (t *transport) connect(ctx context.Context, network, address string) (net.Conn, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	c := &transportConn{owner: t, cancel: cancel}
	t.mu.Lock()
	if t.closed {
		t.mu.Unlock()
		return nil, net.ErrClosed
	}
	t.open[c] = struct{}{}
	t.mu.Unlock()
	conn, err := t.dial(ctx, network, address)
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case err != nil:
		delete(t.open, c)
		return nil, err
	case t.closed:
		delete(t.open, c)
		_ = conn.Close()
		return nil, net.ErrClosed
	}
	c.Conn = conn
	return c, nil
}

// transportConn is a connection; its Conn is nil while it is being dialed.
type transportConn struct {
	net.Conn
	owner  *transport
	cancel context.CancelFunc
}

// Close implements [net.Conn].
func (c *transportConn) Close() error {
	c.owner.mu.Lock()
	delete(c.owner.open, c)
	c.owner.mu.Unlock()
	return c.Conn.Close()
}
