package dial

import (
	"math/rand/v2"
	"net"
	"sync"
	"time"
)

// conn is an open connection that keeps itself authenticated. Brokers limit a session (connections.max.reauth.ms, or
// the end of a token) and close the connection at the first request after it. So before a request that comes near
// that end, conn authenticates again on the same connection (KIP-368), with the current content of the files. It
// needs no timer, because an unused connection needs no session.
//
// One goroutine may write and another one may read, as with any net.Conn.
type conn struct {
	net.Conn
	d      *Dialer
	opened *opening

	// The lifetime of an authenticated session, 0 if it has no end. Only the goroutine that calls Write uses this
	// field.
	lifetime time.Duration

	mu          sync.Mutex
	sent        requests
	pending     []request // requests that were sent and whose responses were not read completely
	renew       time.Time // when to authenticate again; zero if never
	read, write time.Time // the deadlines that the user of the connection has set
	bound       time.Time // the deadline of an authentication in progress, which replaces both deadlines; zero if there is none

	received response // only the goroutine that reads uses it
}

// renewed chooses when to authenticate again. It is called after an authentication, and chooses a random time at 85 to
// 95 % of the session's lifetime, so that not all connections authenticate at the same time.
func (c *conn) renewed() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.renew = time.Time{}
	if c.lifetime > 0 {
		c.renew = time.Now().Add(time.Duration(float64(c.lifetime) * (0.85 + rand.Float64()/10)))
	}
}

// Write writes a part of the stream of requests; b may begin and end anywhere in a request. If a new authentication is
// due, Write authenticates first.
func (c *conn) Write(b []byte) (int, error) {
	if c.due() {
		if err := c.reauthenticate(); err != nil {
			_ = c.Close() // the broker would close the connection as well
			return 0, err
		}
	}
	c.mu.Lock()
	c.pending = append(c.pending, c.sent.advance(b)...) // added before sending, so that the response cannot arrive first
	c.mu.Unlock()
	return c.Conn.Write(b)
}

// due reports whether this is the moment to authenticate again: the chosen time has passed, and no request is half
// written or unanswered.
func (c *conn) due() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.renew.IsZero() && len(c.pending) == 0 && c.sent.between() && time.Now().After(c.renew)
}

// reauthenticate authenticates again, with the current content of the files. If the user of the connection sets
// deadlines meanwhile, they apply after the authentication. Only a write deadline also limits the authentication
// itself.
func (c *conn) reauthenticate() (err error) {
	defer func() { c.d.metrics.reauthenticated(err) }()
	m, err := c.d.files.load()
	if err != nil {
		return err
	}
	o := *c.opened
	o.m = m
	c.mu.Lock()
	c.bound = time.Now().Add(c.d.cfg.Timeout)
	err = c.applyBound()
	c.mu.Unlock()
	if err != nil {
		return o.failed(StepSASL, Closed, "", err)
	}
	c.lifetime, err = o.authenticate(&session{conn: c.Conn, clientID: c.d.cfg.ClientID})
	c.d.note(o.address, m.sum, err)
	if err != nil {
		return err
	}
	c.renewed()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.bound = time.Time{}
	if err := c.Conn.SetReadDeadline(c.read); err != nil {
		return o.failed(StepSASL, Closed, "", err)
	}
	if err := c.Conn.SetWriteDeadline(c.write); err != nil {
		return o.failed(StepSASL, Closed, "", err)
	}
	return nil
}

// applyBound sets the deadline of the authentication in progress: c.bound, or the user's write deadline if that is
// earlier. The caller holds the lock.
func (c *conn) applyBound() error {
	until := c.bound
	if !c.write.IsZero() && c.write.Before(until) {
		until = c.write
	}
	return c.Conn.SetDeadline(until)
}

// SetDeadline implements [net.Conn].
func (c *conn) SetDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read, c.write = t, t
	if !c.bound.IsZero() {
		return c.applyBound()
	}
	return c.Conn.SetDeadline(t)
}

// SetReadDeadline implements [net.Conn].
func (c *conn) SetReadDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.read = t
	if !c.bound.IsZero() {
		return nil // reauthenticate will apply this deadline
	}
	return c.Conn.SetReadDeadline(t)
}

// SetWriteDeadline implements [net.Conn].
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.write = t
	if !c.bound.IsZero() {
		return c.applyBound()
	}
	return c.Conn.SetWriteDeadline(t)
}
