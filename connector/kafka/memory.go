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

// requestMemory is the memory of one request: first the reservation, then the buffer of its response.
type requestMemory struct {
	pool *bytepool.Pool

	mu       sync.Mutex
	reserved int64
	raw      []byte
	given    bool // close was called, so a later call of buffer returns an error
}

// sizeError means that a response of this size does not fit into memory. It is an errResponseSize.
type sizeError struct{ bytes int }

func (e *sizeError) Error() string { return fmt.Sprintf("%v: %d bytes", errResponseSize, e.bytes) }

// Is makes it an errResponseSize.
func (e *sizeError) Is(target error) bool { return target == errResponseSize }

// buffer returns the buffer for a response of n bytes. The connection's goroutine calls it, perhaps after the request
// was given up.
func (r *requestMemory) buffer(n int) ([]byte, error) {
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

// keep returns the reserved memory beyond n bytes to the pool.
func (r *requestMemory) keep(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := r.reserved - int64(n); more > 0 {
		r.pool.Release(more)
		r.reserved -= more
	}
}

// close returns the reservation and the buffer to the pool. After an error the pool gets only the bytes back and not
// the buffer: the connection may still write into it.
func (r *requestMemory) close(err error) {
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

// lender provides the memory to open record batches: first the reservation of the request, then the pool. It
// implements [recordbatch.Memory].
type lender struct {
	pool *bytepool.Pool
	room *requestMemory
	// wait waits for a buffer of n bytes, with priority over all other requests to the pool. held is the memory that
	// the caller keeps while it waits.
	wait func(n int, held int64) ([]byte, error)
}

var _ recordbatch.Memory = (*lender)(nil)

// Lend implements [recordbatch.Memory]. Of the callers that may wait, only one at a time waits, because a waiting
// caller keeps its memory. The others get ErrNoRoom, so that their results are delivered and later released.
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

// oversize returns the hold before a record batch that does not fit into memory.limit.
func (q *questions) oversize(c *cursor, format string, args ...any) error {
	return q.oversizeAt(c.req.Next, format, args...)
}

func (q *questions) oversizeAt(offset int64, format string, args ...any) error {
	return hold.New(hold.Oversize, fmt.Sprintf(
		"the record batch at offset %d %s; fetching has %d bytes, a share of memory.limit: raise that, or make smaller batches",
		offset, fmt.Sprintf(format, args...), q.cfg.Memory.Size()), nil)
}
