package datafile

import (
	"bytes"
	"context"
	"math/bits"

	"sluice/reliability/pulse"
)

// Shares bound the parallel encoding of row groups: all tables with the same Shares together encode at most as many
// at a time as there are shares. Each share keeps its buffers for the next row group.
type Shares struct {
	free  chan *share
	whole chan struct{} // held by the one caller at a time that collects all shares
}

// NewShares returns n shares.
func NewShares(n int) *Shares {
	s := &Shares{make(chan *share, max(n, 1)), make(chan struct{}, 1)}
	for range cap(s.free) {
		s.free <- newShare()
	}
	return s
}

// take waits for one share, or for all of them. It cannot deadlock: the owner of a share needs nothing else to
// finish, and only one caller at a time collects all shares.
func (s *Shares) take(ctx context.Context, all bool) ([]*share, error) {
	loop := pulse.Of(ctx)
	loop.Wait()
	defer loop.Done()
	n := 1
	if all {
		n = cap(s.free)
		select {
		case s.whole <- struct{}{}:
			defer func() { <-s.whole }()
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
	var taken []*share
	for range n {
		select {
		case x := <-s.free:
			taken = append(taken, x)
		case <-ctx.Done():
			s.put(taken)
			return nil, ctx.Err()
		}
	}
	return taken, nil
}

func (s *Shares) put(taken []*share) {
	for _, x := range taken {
		if x.buf.Cap() > keptBytes {
			x.buf = bytes.Buffer{}
		}
		s.free <- x
	}
}

// share is the working memory of one encoder. A waiting encoder has no memory, so all tables may wait at the same
// time.
type share struct {
	// buf has the file of one row group. It is kept for the next one, because growing a new buffer is a third of all
	// allocation.
	buf          bytes.Buffer
	memory       recycler
	dictionaries *dictionaries
	sample       *sample
}

func newShare() *share { return &share{dictionaries: newDictionaries(), sample: newSample()} }

// keptBytes is the size in bytes up to which a share keeps each kind of buffer for the next row group.
const keptBytes = 16 << 20

// recycler is an [memory.Allocator] that reuses freed memory. It is for one goroutine.
type recycler struct {
	free  [bits.UintSize][][]byte // the free buffers by size class: buffers of class i have 2^i bytes
	kept  int
	scrub bool // true in tests: freed memory is overwritten
}

const smallest = 6 // the smallest class: 2^6 = 64 bytes, Arrow's alignment

// Allocate implements [memory.Allocator]. The memory is zeroed, as Go's is.
func (r *recycler) Allocate(size int) []byte {
	b, fresh := r.get(size)
	if !fresh {
		clear(b)
	}
	return b
}

func (r *recycler) get(size int) (b []byte, fresh bool) {
	class := max(bits.Len(uint(max(size, 1)-1)), smallest)
	if list := r.free[class]; len(list) > 0 {
		b = list[len(list)-1]
		list[len(list)-1] = nil
		r.free[class] = list[:len(list)-1]
		r.kept -= cap(b)
		return b[:size], false
	}
	return make([]byte, size, 1<<class), true
}

// Reallocate implements [memory.Allocator].
func (r *recycler) Reallocate(size int, b []byte) []byte {
	if cap(b) >= size {
		return b[:size]
	}
	larger, fresh := r.get(size)
	n := copy(larger, b)
	if !fresh {
		clear(larger[n:])
	}
	r.Free(b)
	return larger
}

// Free implements [memory.Allocator].
func (r *recycler) Free(b []byte) {
	n := cap(b)
	if r.scrub {
		b = b[:n]
		for i := range b {
			b[i] = 0xDB
		}
	}
	if n < 1<<smallest || n&(n-1) != 0 || r.kept+n > keptBytes {
		return
	}
	class := bits.Len(uint(n - 1))
	r.free[class] = append(r.free[class], b[:0])
	r.kept += n
}
