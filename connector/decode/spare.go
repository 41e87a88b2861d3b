package decode

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Spare keeps released buffers for reuse. It is safe for concurrent use.
type Spare interface {
	// Take returns a buffer with length 0 and a capacity of at least n bytes; the bytes beyond its length are
	// arbitrary.
	Take(n int) []byte
	// Keep takes over a buffer. The caller must not touch it again.
	Keep([]byte)
}

// heap is a Spare that takes each buffer from Go's memory and keeps none.
type heap struct{}

func (heap) Take(n int) []byte { return make([]byte, 0, n) }
func (heap) Keep([]byte)       {}

// lease gives the memory of Arrow's buffers back to a Spare. It implements [memory.Allocator]; Arrow only calls its
// Free.
type lease struct{ Spare }

var _ memory.Allocator = lease{}

// Allocate implements [memory.Allocator].
func (l lease) Allocate(n int) []byte { return make([]byte, n) }

// Reallocate implements [memory.Allocator].
func (l lease) Reallocate(n int, b []byte) []byte { return append(make([]byte, 0, n), b...)[:n] }

// Free implements [memory.Allocator].
func (l lease) Free(b []byte) { l.Keep(b[:0]) }

// smallBuffer is the size in bytes below which buffers come from Go's memory and are not kept.
const smallBuffer = 4 << 10

func (c *column) bytesOf(n int) []byte {
	if n < smallBuffer {
		return make([]byte, 0, n)
	}
	return c.spare.Take(n)
}

func (c *column) int32sOf(n int) []int32 {
	if 4*n < smallBuffer {
		return make([]int32, 0, n)
	}
	b := c.spare.Take(4 * n)
	return arrow.Int32Traits.CastFromBytes(b[:cap(b)&^3])[:0]
}

// keep gives the memory of v, which no array uses any more, to the Spare.
func (c *column) keep(v []int32) {
	if b := arrow.Int32Traits.CastToBytes(v[:cap(v)]); len(b) >= smallBuffer {
		c.spare.Keep(b[:0])
	}
}

// buffer passes b to Arrow. The Spare gets it back when the last array that uses it is released.
func (c *column) buffer(b []byte) *memory.Buffer {
	if cap(b) < smallBuffer {
		return memory.NewBufferBytes(b)
	}
	return memory.NewBufferWithAllocator(b, lease{c.spare})
}

func (c *column) int32Buffer(v []int32) *memory.Buffer {
	return c.buffer(arrow.Int32Traits.CastToBytes(v))
}
