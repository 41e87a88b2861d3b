package kafka

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"sluice/connector/kafka/recordbatch"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
)

// room is the memory of one request: what was reserved before it was sent, and then the buffer of its response.
type room struct {
	pool *bytepool.Pool

	mu       sync.Mutex
	reserved int64
	raw      []byte
	given    bool // nothing is taken any more
}

// sizeError is a response that there is no memory for.
type sizeError struct{ bytes int }

func (e *sizeError) Error() string { return fmt.Sprintf("%v: %d bytes", errResponseSize, e.bytes) }

// Is makes it an errResponseSize.
func (e *sizeError) Is(target error) bool { return target == errResponseSize }

// buffer is where a response of n bytes is read into. It is called by the goroutine of the connection, perhaps after
// the request was given up.
func (r *room) buffer(n int) ([]byte, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.given {
		return nil, fmt.Errorf("response of %d bytes: %w", n, context.Canceled)
	}
	b, left, ok := r.pool.Draw(max(n, 1), r.reserved)
	if !ok {
		return nil, &sizeError{n}
	}
	r.raw, r.reserved = b, left
	return b[:n], nil
}

// keep gives back what was reserved beyond n bytes.
func (r *room) keep(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := r.reserved - int64(n); more > 0 {
		r.pool.Release(more)
		r.reserved -= more
	}
}

// close gives everything back. After an error somebody may still write into the buffer, so that nobody else may have it.
func (r *room) close(err error) {
	r.keep(0)
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.raw == nil:
	case err != nil:
		r.pool.Release(int64(cap(r.raw)))
	default:
		r.pool.Put(r.raw)
	}
	r.raw, r.given = nil, true
}

// lender is the memory that a fetcher opens record batches with: first what was reserved for the request, then what the
// pool has. It implements [recordbatch.Memory].
type lender struct {
	pool *bytepool.Pool
	room *room
	// wait waits for a buffer before all others.
	wait func(n int, held int64) ([]byte, error)
}

var _ recordbatch.Memory = (*lender)(nil)

// Lend implements [recordbatch.Memory]. One caller at a time waits, with what it holds; the others come back empty, so
// that everything but that one drains.
func (l *lender) Lend(n, held int, may bool) ([]byte, error) {
	b, left, ok := l.pool.Draw(n, l.room.reserved)
	l.room.reserved = left
	if ok {
		return b, nil
	}
	if n > l.Max(held) {
		return nil, recordbatch.ErrNeverRoom
	}
	if !may {
		return nil, recordbatch.ErrNoRoom
	}
	l.room.keep(0)
	b, err := l.wait(n, int64(held+cap(l.room.raw)))
	if errors.Is(err, bytepool.ErrTaken) {
		return nil, recordbatch.ErrNoRoom
	}
	return b, err
}

// Max implements [recordbatch.Memory].
func (l *lender) Max(held int) int { return int(l.pool.Size()) - held - cap(l.room.raw) }

// Return implements [recordbatch.Memory].
func (l *lender) Return(b []byte) { l.pool.Put(b) }

// oversize holds a partition before a record batch that memory.limit has no room for.
func (q *questions) oversize(c *cursor, format string, args ...any) error {
	return q.oversizeAt(c.req.Next, format, args...)
}

func (q *questions) oversizeAt(offset int64, format string, args ...any) error {
	return hold.New(hold.Oversize, fmt.Sprintf(
		"the record batch at offset %d %s; fetching has %d bytes, a share of memory.limit: raise that, or make smaller batches",
		offset, fmt.Sprintf(format, args...), q.cfg.Memory.Size()), nil)
}
