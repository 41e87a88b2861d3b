// Package connlimit bounds the connections of an HTTP server.
package connlimit

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/reliability"
)

// floodLogEvery is how often the log says that connections were closed to make room for others.
const floodLogEvery = time.Minute

// state is what a connection does at the moment; it is derived from [http.ConnState] and from the calls of the handler.
type state int

// The order is the order in which connections are closed to make room.
const (
	idle    state = iota // the response to its last request was written
	reading              // its next request has not arrived completely
	serving              // a handler answers its request
)

// Listener is a listener that holds at most limit connections. It always accepts a new one: when all places are taken,
// it closes an idle connection, else one whose request has not arrived as a whole, else one whose request is being
// answered; each time the oldest. So a client that opens connections and sends nothing cannot keep a request out, and
// costs a bounded number of sockets and goroutines.
type Listener struct {
	net.Listener // the listener that accepts connections, set by Listen

	server string
	limit  int
	logger *slog.Logger
	lines  *reliability.Sparse // limits the log lines about closed connections
	closed prometheus.Counter

	mu    sync.Mutex
	open  map[*conn]struct{}
	turns uint64 // number of changes of state so far, of all connections
}

// conn is a connection that the listener let in.
type conn struct {
	net.Conn
	client string
	ended  chan struct{} // closed when the goroutine of the connection in net/http ends

	// Guarded by Listener.mu.
	state state
	since uint64 // value of Listener.turns at the last change of its state
}

// New returns a listener. server is the name of the server in log lines. closed counts the connections that were closed
// to make room for newer ones.
func New(server string, limit int, closed prometheus.Counter, logger *slog.Logger) *Listener {
	return &Listener{
		server: server, limit: limit, logger: logger, lines: reliability.NewSparse(1, floodLogEvery), open: map[*conn]struct{}{}, closed: closed,
	}
}

// Listen binds an address unless it is bound already, and returns it. So an address in use is known before anything else
// starts.
func (l *Listener) Listen(ctx context.Context, address string) (net.Addr, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Listener == nil {
		var c net.ListenConfig
		inner, err := c.Listen(ctx, "tcp", address)
		if err != nil {
			return nil, fmt.Errorf("listen on %s: %w", address, err)
		}
		l.Listener = inner
	}
	return l.Addr(), nil
}

// Serve runs serve, which is a Serve method of s, until ctx ends. Then it finishes the requests under way within a grace
// period and returns nil; a client that is slower must not delay the end.
func Serve(ctx context.Context, s *http.Server, grace time.Duration, serve func() error) error {
	ended := make(chan error, 1)
	go func() { ended <- serve() }()
	select {
	case err := <-ended:
		return fmt.Errorf("serve: %w", err)
	case <-ctx.Done():
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), grace)
	defer cancel()
	err := s.Shutdown(ending)
	if err != nil {
		err = s.Close()
	}
	if served := <-ended; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	if err != nil {
		return fmt.Errorf("stop: %w", err)
	}
	return nil
}

// Accept implements net.Listener. If it closes a connection to make room, it waits until the goroutine of that
// connection ends, unless a handler is answering its request. So goroutines stay bounded, and under a flood each
// connection has time to read its request.
func (l *Listener) Accept() (net.Conn, error) {
	inner, err := l.Listener.Accept()
	if err != nil {
		return nil, err //nolint:wrapcheck // net/http tells the errors of a listener apart
	}
	c := &conn{Conn: inner, client: inner.RemoteAddr().String(), ended: make(chan struct{}), state: reading}
	victim, busy := l.admit(c)
	if victim == nil {
		return c, nil
	}
	_ = victim.Close()
	l.told()
	if !busy { // a handler that hangs must not keep out new connections
		<-victim.ended
	}
	return c, nil
}

// admit adds c. If the listener then has too many connections, admit removes another connection and returns it as
// victim. busy is true if a handler is answering a request of the victim.
func (l *Listener) admit(c *conn) (victim *conn, busy bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.open) >= l.limit {
		for o := range l.open {
			if victim == nil || o.state < victim.state || o.state == victim.state && o.since < victim.since {
				victim = o
			}
		}
		delete(l.open, victim)
		busy = victim.state == serving
	}
	l.turns++
	c.since = l.turns
	l.open[c] = struct{}{}
	return victim, busy
}

// told counts a closed connection and logs the first one in each minute.
func (l *Listener) told() {
	l.closed.Inc()
	if left, ok := l.lines.Next(); ok {
		l.logger.Warn("too many connections; closing the oldest ones", "server", l.server, "limit", l.limit, "left_out", left)
	}
}

// note sets the state of a connection. It returns false for a connection that was closed to make room.
func (l *Listener) note(c *conn, s state) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := l.open[c]; !ok {
		return false
	}
	l.turns++
	c.state, c.since = s, l.turns
	return true
}

// Follow is the ConnState hook of the server: it stores the state of a connection, and forgets a closed one.
func (l *Listener) Follow(nc net.Conn, is http.ConnState) {
	if t, ok := nc.(*tls.Conn); ok {
		nc = t.NetConn()
	}
	c, ok := nc.(*conn)
	if !ok {
		return
	}
	switch is {
	case http.StateIdle:
		l.note(c, idle)
	case http.StateActive:
		l.note(c, reading)
	case http.StateClosed, http.StateHijacked:
		l.mu.Lock()
		delete(l.open, c)
		l.mu.Unlock()
		close(c.ended)
	case http.StateNew: // Accept has already added the connection
	}
}

// Marks wraps a handler, so that the listener knows which connections have a request that is being answered. It finds
// the connection of a request by the address of its client, and drops the request if that connection was closed to make
// room.
func (l *Listener) Marks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if c := l.from(r.RemoteAddr); c != nil && l.note(c, serving) {
			next.ServeHTTP(w, r)
		}
	})
}

// Abort closes the connection of a client address, if it is open, and drops what the client has not read: otherwise the
// kernel would keep it for minutes, for each connection of a client that never reads.
func (l *Listener) Abort(client string) {
	c := l.from(client)
	if c == nil {
		return
	}
	if t, ok := c.Conn.(interface{ SetLinger(sec int) error }); ok {
		_ = t.SetLinger(0) // fails only if the connection is closed already
	}
	_ = c.Close()
}

// from returns the connection of a client address, nil if it was closed to make room.
func (l *Listener) from(client string) *conn {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.open {
		if c.client == client {
			return c
		}
	}
	return nil
}
