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

// requestMemory is the memory of one fetch request: first a reservation, then the buffer of the response.
type requestMemory struct {
	pool *bytepool.Pool

	mu       sync.Mutex
	reserved int64
	raw      []byte
	given    bool // true after close; a later call of buffer returns an error
}

// sizeError means that a response of this size does not fit into memory. It is an errResponseSize.
type sizeError struct{ bytes int }

func (e *sizeError) Error() string { return fmt.Sprintf("%v: %d bytes", errResponseSize, e.bytes) }

// Is makes it an errResponseSize.
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

// keep returns all of the reservation except n bytes to the pool.
func (r *requestMemory) keep(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := r.reserved - int64(n); more > 0 {
		r.pool.Release(more)
		r.reserved -= more
	}
}

// close returns the reservation and the buffer to the pool. If the request failed with err, the connection may still
// write into the buffer. Then the pool gets back only the bytes, and not the buffer itself.
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

// lender is the [recordbatch.Memory] for opening a response: it lends first from the reservation of the request, then
// from the pool.
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

// oversize returns the hold for a record batch that does not fit into memory.limit; the position of c is at that batch.
func (q *questions) oversize(c *cursor, format string, args ...any) error {
	return q.oversizeAt(c.req.Next, format, args...)
}

func (q *questions) oversizeAt(offset int64, format string, args ...any) error {
	return hold.New(hold.Oversize, fmt.Sprintf(
		"the record batch at offset %d %s; fetching has %d bytes, a share of memory.limit: raise that, or make smaller batches",
		offset, fmt.Sprintf(format, args...), q.cfg.Memory.Size()), nil)
}
