// Package bytepool implements a budget of bytes that many goroutines share, and buffers that count against it.
//
// The bytes in use never exceed the size of the pool, except after [Pool.Adjust]. Returned buffers stay idle in the
// pool as long as the budget has room for them, so that steady work makes no garbage.
package bytepool

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/bits"
	"slices"
	"sync"
)

var (
	// ErrTooLarge means that a request is larger than the whole pool.
	ErrTooLarge = errors.New("more than the pool has")
	// ErrTaken means that another caller of [Pool.GetFirst] waits already.
	ErrTaken = errors.New("another caller waits first")
)

// Pool is a budget of bytes. All methods may be called from any goroutine.
//
// Callers of [Pool.Acquire] wait in their order. At most one caller of [Pool.GetFirst] waits before all of them. While
// it waits, no other caller gets bytes, so that all released bytes go to it.
type Pool struct {
	size  int64
	scrub bool
	// pressed gets a signal when a caller begins to wait; it has room for one.
	pressed chan struct{}

	mu        sync.Mutex
	used      int64
	first     *waiter
	waiting   []*waiter
	idle      map[int][][]byte // idle buffers by their capacity
	idleBytes int64
	waits     uint64
}

// waiter is a caller that waits for n bytes. ready is closed once the bytes are taken for it.
type waiter struct {
	n     int64
	ready chan struct{}
}

// New returns a pool of size bytes.
func New(size int64) *Pool {
	return &Pool{size: size, pressed: make(chan struct{}, 1), idle: map[int][][]byte{}}
}

// NewScrubbing returns a pool that overwrites each returned buffer, so that a test notices code that still reads one.
func NewScrubbing(size int64) *Pool {
	p := New(size)
	p.scrub = true
	return p
}

// Size returns the budget in bytes.
func (p *Pool) Size() int64 { return p.size }

// Used returns the bytes that are in use now.
func (p *Pool) Used() int64 {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.used
}

// Short reports whether a caller waits.
func (p *Pool) Short() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.first != nil || len(p.waiting) > 0
}

// Pressed returns a channel that gets a value when a caller begins to wait. Only one goroutine may receive from it.
func (p *Pool) Pressed() <-chan struct{} { return p.pressed }

// TryAcquire takes n bytes if they are free, and reports whether it did. It overtakes callers that wait in
// [Pool.Acquire]: it is for callers that must not wait, such as the reader, or one that already holds bytes of the
// pool. It fails while a caller waits in [Pool.GetFirst].
func (p *Pool) TryAcquire(n int64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil || p.used+n > p.size {
		return false
	}
	p.take(n)
	return true
}

// Acquire takes n bytes, and waits in order until they are free. If ctx ends first, it takes none and returns the cause
// of ctx. The error is [ErrTooLarge] if n exceeds the size.
func (p *Pool) Acquire(ctx context.Context, n int64) error {
	if n > p.size {
		return fmt.Errorf("%w: %d of %d bytes", ErrTooLarge, n, p.size)
	}
	p.mu.Lock()
	if p.first == nil && len(p.waiting) == 0 && p.used+n <= p.size {
		p.take(n)
		p.mu.Unlock()
		return nil
	}
	w := p.wait(n)
	p.waiting = append(p.waiting, w)
	p.mu.Unlock()
	p.press()
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	i := slices.Index(p.waiting, w)
	if i < 0 { // the bytes were granted meanwhile
		p.give(n)
	} else {
		p.waiting = slices.Delete(p.waiting, i, i+1)
		p.serve()
	}
	return context.Cause(ctx)
}

// Release returns n bytes to the budget. It panics if more bytes are released than were taken.
func (p *Pool) Release(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.give(n)
}

// Adjust changes the used bytes by n, up or down, without waiting, for a caller that knows its use only afterwards. The
// used bytes may then exceed the size: no caller gets bytes until they no longer do.
func (p *Pool) Adjust(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if n > 0 {
		p.take(n)
		return
	}
	p.give(-n)
}

// TryGet returns a buffer of length 0 and capacity of at least n, if there is room, and reports whether there was. The
// whole capacity counts as used until [Pool.Put].
func (p *Pool) TryGet(n int) ([]byte, bool) {
	b, _, ok := p.Draw(n, 0)
	return b, ok
}

// Draw is TryGet for a caller that has acquired bytes in advance. The buffer uses these bytes first; left is how many
// of them it did not need. If ok is false, it changes nothing.
func (p *Pool) Draw(n int, acquired int64) (b []byte, left int64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if more := int64(n) - acquired; more > 0 && (p.first != nil || p.used+more > p.size) {
		return nil, acquired, false
	}
	p.used -= acquired
	b = p.get(n)
	left = max(acquired-int64(cap(b)), 0)
	p.used += left
	return b, left, true
}

// GetFirst is a TryGet that waits for room, before all callers of [Pool.Acquire]. If ctx ends first, the error is the
// cause of ctx. held is the number of bytes that the caller already has of the pool: if n does not fit beside them,
// waiting would not help, and the error is [ErrTooLarge]. The error is [ErrTaken] while another caller waits in
// GetFirst, because two callers that hold bytes could wait for each other.
func (p *Pool) GetFirst(ctx context.Context, n int, held int64) ([]byte, error) {
	if held+int64(n) > p.size {
		return nil, fmt.Errorf("%w: %d beside %d of %d bytes", ErrTooLarge, n, held, p.size)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.first != nil {
		return nil, ErrTaken
	}
	if p.used+int64(n) <= p.size {
		return p.get(n), nil
	}
	w := p.wait(int64(n))
	p.first = w
	p.mu.Unlock()
	p.press()
	var err error
	select {
	case <-w.ready:
	case <-ctx.Done():
		err = context.Cause(ctx)
	}
	p.mu.Lock()
	switch {
	case err == nil: // the budget has granted n bytes; the buffer may need more
		p.used -= int64(n)
		return p.get(n), nil
	case p.first == w:
		p.first = nil
		p.serve()
	default: // the bytes were granted meanwhile
		p.give(int64(n))
	}
	return nil, err
}

// Put gives back a buffer of TryGet, Draw or GetFirst. The caller must not touch it afterwards.
func (p *Pool) Put(b []byte) {
	n := cap(b)
	if p.scrub {
		b = b[:n]
		for i := range b {
			b[i] = 0xDB
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if n == class(n) && p.used+p.idleBytes <= p.size { // the buffer still counts as used here
		p.idle[n] = append(p.idle[n], b[:0])
		p.idleBytes += int64(n)
	}
	p.give(int64(n))
}

// Take returns an idle buffer of at least n bytes, or a new one. Unlike a buffer of [Pool.TryGet], the pool does not
// count it as used: the caller counts it, for example with [Pool.Adjust]. The caller may give it back with [Pool.Keep],
// or drop it.
func (p *Pool) Take(n int) []byte {
	size := class(n)
	p.mu.Lock()
	b := p.find(size, math.MaxInt64)
	p.mu.Unlock()
	if b == nil {
		b = make([]byte, 0, size)
	}
	return b
}

// Keep stores a buffer that does not count as used, for a later caller, as long as the budget has room for it. The
// caller must not touch it afterwards.
func (p *Pool) Keep(b []byte) {
	n := cap(b)
	if p.scrub {
		b = b[:n]
		for i := range b {
			b[i] = 0xDB
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.used+p.idleBytes+int64(n) <= p.size {
		p.idle[n] = append(p.idle[n], b[:0])
		p.idleBytes += int64(n)
	}
}

// get finds or makes a buffer. The caller holds the lock, even while the buffer is made: that is rare in steady work.
func (p *Pool) get(n int) []byte {
	size := class(n)
	if p.used+int64(size) > p.size {
		size = n // the rounded size must not exceed the budget
	}
	if b := p.find(size, p.size-p.used); b != nil {
		p.used += int64(cap(b))
		return b
	}
	p.take(int64(size))
	return make([]byte, 0, size)
}

// find removes and returns the smallest idle buffer of at least size bytes, or nil if there is none. The capacity of
// the buffer is at most one and a half times size, and does not exceed most.
func (p *Pool) find(size int, most int64) []byte {
	best := 0
	if len(p.idle[size]) > 0 && int64(size) <= most {
		best = size
	}
	for n, list := range p.idle {
		if best == size {
			break
		}
		if len(list) > 0 && n >= size && n <= size+size/2 && (best == 0 || n < best) && int64(n) <= most {
			best = n
		}
	}
	if best == 0 {
		return nil
	}
	list := p.idle[best]
	b := list[len(list)-1]
	list[len(list)-1] = nil
	if list = list[:len(list)-1]; len(list) == 0 && best != class(best) {
		delete(p.idle, best) // empty entries of sizes outside of the classes would otherwise accumulate in the map
	} else {
		p.idle[best] = list
	}
	p.idleBytes -= int64(best)
	return b
}

// wait counts a wait, and returns the waiter for n bytes.
func (p *Pool) wait(n int64) *waiter {
	p.waits++
	return &waiter{n, make(chan struct{})}
}

// press signals that a caller began to wait. If the channel still has a signal, it adds none.
func (p *Pool) press() {
	select {
	case p.pressed <- struct{}{}:
	default:
	}
}

// take counts n bytes as used and drops the idle buffers that no longer fit into the budget.
func (p *Pool) take(n int64) {
	if p.used += n; p.used+p.idleBytes <= p.size {
		return
	}
	for size, list := range p.idle {
		for p.used+p.idleBytes > p.size && len(list) > 0 {
			list[len(list)-1] = nil
			list = list[:len(list)-1]
			p.idleBytes -= int64(size)
		}
		if p.idle[size] = list; len(list) == 0 {
			delete(p.idle, size)
		}
	}
}

// give returns n bytes to the budget and grants them to the callers that wait first.
func (p *Pool) give(n int64) {
	if p.used -= n; p.used < 0 {
		panic(fmt.Sprintf("bytepool: %d bytes more released than taken", -p.used))
	}
	p.serve()
}

// serve grants bytes to waiting callers, in order, as far as there is room.
func (p *Pool) serve() {
	if w := p.first; w != nil {
		if p.used+w.n > p.size {
			return
		}
		p.take(w.n)
		p.first = nil
		close(w.ready)
	}
	for len(p.waiting) > 0 && p.used+p.waiting[0].n <= p.size {
		w := p.waiting[0]
		p.take(w.n)
		p.waiting[0] = nil
		p.waiting = p.waiting[1:]
		close(w.ready)
	}
}

// class rounds a size up, so that buffers fit later callers: to a power of two, and above 64 KiB to one of four steps
// between two powers.
func class(n int) int {
	const smallest, fine = 4 << 10, 64 << 10
	if n <= smallest {
		return smallest
	}
	step := 1 << bits.Len(uint(n-1))
	if n > fine {
		step >>= 3 // n is in (4 steps, 8 steps]
	}
	return (n + step - 1) / step * step
}
