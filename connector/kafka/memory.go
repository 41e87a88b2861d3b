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

// requestMemory is the memory of one fetch request in the pool: at first a reservation for the response, and then the
// buffer with the response.
type requestMemory struct {
	pool *bytepool.Pool

	mu       sync.Mutex
	reserved int64
	raw      []byte
	given    bool // true after close; a later call of buffer returns an error
}

// sizeError means that there is no memory for a response; its value is the size of the response. It counts as
// errResponseSize.
type sizeError struct{ bytes int }

func (e *sizeError) Error() string { return fmt.Sprintf("%v: %d bytes", errResponseSize, e.bytes) }

// Is makes errors.Is(e, errResponseSize) true.
func (e *sizeError) Is(target error) bool { return target == errResponseSize }

// buffer returns the buffer for a response of n bytes. The goroutine of the connection calls it, perhaps after the
// caller of the request has returned.
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

// keep reduces the reservation to at most n bytes. The bytes above n go back to the pool.
func (r *requestMemory) keep(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := r.reserved - int64(n); more > 0 {
		r.pool.Release(more)
		r.reserved -= more
	}
}

// close returns the memory to the pool. err is the error of the request. If it is not nil, the connection may still
// write into the buffer; so the pool gets the bytes of the buffer to count as free, and does not lend the buffer itself
// again.
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

// lender lends buffers for the decompressed records of one response. It takes them from the reservation of the request
// while that lasts, and then from the pool.
type lender struct {
	pool *bytepool.Pool
	room *requestMemory
	// wait waits for a buffer of n bytes, with priority over all other requests to the pool. held is the memory that
	// the caller keeps while it waits.
	wait func(n int, held int64) ([]byte, error)
}

var _ recordbatch.Memory = (*lender)(nil)

// Lend implements [recordbatch.Memory]. A caller that waits keeps the memory that it already has, so only one waits at
// a time. Another caller gets ErrNoRoom, so that the records that it has opened so far are delivered, decoded and
// released.
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

// oversize returns the hold for a record batch that does not fit into memory.limit; the position of c is at that batch.
func (q *questions) oversize(c *cursor, format string, args ...any) error {
	return q.oversizeAt(c.req.Next, format, args...)
}

func (q *questions) oversizeAt(offset int64, format string, args ...any) error {
	return hold.New(hold.Oversize, fmt.Sprintf(
		"the record batch at offset %d %s; fetching has %d bytes, a share of memory.limit: raise that, or make smaller batches",
		offset, fmt.Sprintf(format, args...), q.cfg.Memory.Size()), nil)
}
