package dial

import (
	"fmt"
	"io"
	"net"

	"github.com/segmentio/kafka-go/protocol"

	"sluice/connector/kafka/frame"
)

// request is what must be known about a request to read its response.
type request struct {
	key     protocol.ApiKey
	version int16
	corr    uint32
}

// requests finds the requests in the stream of bytes that is written. A request begins with four bytes of length, then
// API key, version and correlation id.
type requests struct {
	head [12]byte
	seen int // how many bytes of head have arrived
	rest int // how many bytes of the request are missing after head
}

// between reports whether everything written so far is whole requests.
func (r *requests) between() bool { return r.seen == 0 }

// advance consumes the bytes b of the stream. It returns the requests whose heads became complete.
func (r *requests) advance(b []byte) (began []request) {
	for len(b) > 0 {
		if r.seen < len(r.head) {
			n := copy(r.head[r.seen:], b)
			r.seen += n
			b = b[n:]
			if r.seen < len(r.head) {
				break
			}
			r.rest = max(int(be.Uint32(r.head[:]))-8, 0)
			began = append(began, request{
				key:     protocol.ApiKey(be.Uint16(r.head[4:])), //nolint:gosec // as bits
				version: int16(be.Uint16(r.head[6:])),           //nolint:gosec // as bits
				corr:    be.Uint32(r.head[8:]),
			})
		}
		n := min(r.rest, len(b))
		b = b[n:]
		if r.rest -= n; r.rest == 0 {
			r.seen = 0
		}
	}
	return began
}

// response is the state of reading one response: the one to the oldest request that waits for its response.
type response struct {
	head  [8]byte     // the size and the correlation id
	seen  int         // how many bytes of head have arrived
	ready net.Buffers // bytes that were checked, for the caller to read
	rest  int         // how many bytes the caller may read from the connection after ready
	err   error       // the error that ended reading
}

// Read reads a part of the stream of responses. A response that kafka-go will decode is read and checked as a whole
// before Read returns its first byte. The response belongs to the oldest pending request, because brokers answer in
// order.
func (c *conn) Read(b []byte) (int, error) {
	r := &c.received
	if len(b) == 0 || r.err != nil {
		return 0, r.err
	}
	if len(r.ready) == 0 && r.rest == 0 {
		if err := c.next(); err != nil {
			return 0, err
		}
	}
	var n int
	var err error
	if len(r.ready) > 0 {
		n, _ = r.ready.Read(b) // the end of ready is not the end of the connection
	} else {
		n, err = c.Conn.Read(b[:min(len(b), r.rest)])
		r.rest -= n
	}
	if len(r.ready) == 0 && r.rest == 0 {
		r.seen, r.ready = 0, nil
		c.mu.Lock()
		c.pending = c.pending[1:]
		c.mu.Unlock()
	}
	return n, err
}

// next reads the head of the next response. If the user of the connection does not decode this kind of response itself,
// next also reads and checks the whole body.
func (c *conn) next() error {
	r := &c.received
	n, err := io.ReadFull(c.Conn, r.head[r.seen:])
	if r.seen += n; err != nil {
		return err
	}
	c.mu.Lock()
	var to request
	if len(c.pending) > 0 {
		to = c.pending[0]
	}
	asked := len(c.pending) > 0
	c.mu.Unlock()
	size, corr := int64(int32(be.Uint32(r.head[:]))), be.Uint32(r.head[4:]) //nolint:gosec // a signed number on the wire
	switch {
	case !asked:
		return c.malformed("it answers without a request", nil)
	case size < 4:
		return c.malformed(fmt.Sprintf("%v v%d: %d bytes", to.key, to.version, size), nil)
	case corr != to.corr:
		return c.malformed(fmt.Sprintf("%v v%d: correlation id %d instead of %d", to.key, to.version, corr, to.corr), nil)
	}
	if own := c.d.cfg.Own; own != nil && own(to.key, to.version) {
		r.ready, r.rest = net.Buffers{r.head[:]}, int(size)-4
		return nil
	}
	return c.check(to, int(size)-4)
}

// check reads the n bytes after the head of a response. If [frame.Check] accepts them, the user of the connection can
// read them; otherwise check returns an error, and no more can be read.
func (c *conn) check(to request, n int) error {
	r := &c.received
	what := fmt.Sprintf("%v v%d", to.key, to.version)
	if n > frame.MaxSize {
		return c.malformed(fmt.Sprintf("%s: %d bytes, the limit is %d", what, n, frame.MaxSize), frame.ErrTooLarge)
	}
	body, err := frame.Read(c.Conn, n)
	if err != nil {
		r.err = err // part of the response is lost, so reading cannot continue
		return err
	}
	if err := frame.Check(int16(to.key), to.version, body); err != nil {
		return c.malformed(fmt.Sprintf("%s: %v", what, err), err)
	}
	r.ready = net.Buffers{r.head[:], body}
	return nil
}

// malformed makes this call and all later calls of Read fail. It also counts and logs the error, because kafka-go shows
// some callers only that a broker is missing.
func (c *conn) malformed(detail string, err error) error {
	if err == nil {
		err = errMalformed
	}
	e := c.opened.failed(StepUse, Malformed, detail, err)
	c.received.err = e
	c.d.metrics.malformed.Inc()
	if left, ok := c.d.lines(c.opened.address).Next(); ok {
		c.d.cfg.Logger.Warn("refused a malformed response; closing the connection to the broker", "broker", c.opened.address, "response", detail, "left_out", left)
	}
	return e
}
