// Package resp checks the replies of a Redis server before go-redis decodes them. go-redis sizes its allocations by the
// lengths and counts in a reply, so that twenty wrong bytes end the process; [Conn] walks the replies as they arrive
// and fails where one is malformed or exceeds a bound.
//
// The bounds fit the replies of the scripts in package redis: the largest is a list of members, with 30 001 elements
// and 8 MiB at most.
package resp

import (
	"errors"
	"fmt"
	"net"
	"syscall"
)

// Bounds of a reply.
const (
	// maxLine bounds a line: a simple string, an error, a number. The lines of Redis have some hundred bytes.
	maxLine = 4 << 10
	// maxBulk bounds a bulk string, which go-redis allocates before it has read it. A registration has 4 KiB at most.
	maxBulk = 64 << 10
	// maxElements bounds the number of elements that an array, a set, a push, a map or an attribute declares. go-redis
	// allocates them before it has read them.
	maxElements = 1 << 16
	// maxDepth bounds how deep replies are nested, which is how deep go-redis recurses. A reply to HELLO has 4 levels.
	maxDepth = 8
	// maxReply bounds the memory that one reply takes, in bytes, by the lengths of its values and elementWeight.
	maxReply = 16 << 20
	// elementWeight is how many bytes go-redis allocates for an element of a reply beside its value: the slot in a
	// slice, the string header, and the rounding of the allocator.
	elementWeight = 64
)

// Faults of a reply.
var (
	// ErrMalformed means that the received bytes are not a reply of the Redis protocol.
	ErrMalformed = errors.New("malformed reply")
	// ErrTooLarge means that a reply exceeds a bound.
	ErrTooLarge = errors.New("reply too large")
)

// fault is an error of a connection. It has no Unwrap, because go-redis prints only the wrapped error of some types.
type fault struct {
	text string
	kind error
}

// Error implements error.
func (f fault) Error() string { return f.text }

// Is makes errors.Is report true for the kind of f, ErrMalformed or ErrTooLarge.
func (f fault) Is(target error) bool { return target == f.kind }

// Conn is a connection to a Redis server that delivers only bytes that it has checked. The first fault ends it: that
// Read and all later ones return the fault, so that the client closes the connection.
type Conn struct {
	net.Conn // the connection that delivers plaintext: with TLS a tls.Conn
	walk     walker
	fault    error
}

// Check returns conn with its replies checked. The result implements syscall.Conn if conn does, because go-redis looks
// at the socket to find out whether the server has closed an idle connection.
func Check(conn net.Conn) net.Conn {
	checked := &Conn{Conn: conn}
	if socket, ok := conn.(syscall.Conn); ok {
		return withSocket{checked, socket}
	}
	return checked
}

// withSocket is a Conn without TLS, which offers its socket.
type withSocket struct {
	*Conn
	socket syscall.Conn
}

// SyscallConn implements syscall.Conn.
func (c withSocket) SyscallConn() (syscall.RawConn, error) { return c.socket.SyscallConn() }

// Read implements net.Conn.
func (c *Conn) Read(p []byte) (int, error) {
	if c.fault != nil {
		return 0, c.fault
	}
	n, err := c.Conn.Read(p)
	if wrong := c.walk.bytes(p[:n]); wrong != nil {
		c.fault = fault{fmt.Sprintf("%s from %s", wrong, c.RemoteAddr()), errors.Unwrap(wrong)}
		return 0, c.fault
	}
	return n, err
}
