package scan

import (
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// budget is the memory of one file that is read. It is an allocator, so that pages and rows are counted where they are
// made. Allocators cannot fail: it panics with [tooLarge], which [sound] makes an error of.
type budget struct {
	limit int64
	used  atomic.Int64
	peak  atomic.Int64
}

var _ memory.Allocator = (*budget)(nil)

// tooLarge is what a budget panics with.
type tooLarge struct{ wanted, limit int64 }

func (t tooLarge) String() string {
	return fmt.Sprintf("it takes more than the %d bytes that a scan may hold of a file (%d)", t.limit, t.wanted)
}

// take counts n bytes more, or less.
func (b *budget) take(n int64) {
	used := b.used.Add(n)
	if n > 0 && used > b.limit {
		b.used.Add(-n)
		panic(tooLarge{used, b.limit})
	}
	if used > b.peak.Load() {
		b.peak.Store(used)
	}
}

// Allocate implements memory.Allocator.
func (b *budget) Allocate(size int) []byte {
	b.take(int64(size))
	return memory.DefaultAllocator.Allocate(size)
}

// Reallocate implements memory.Allocator. Old and new exist side by side for a moment.
func (b *budget) Reallocate(size int, old []byte) []byte {
	b.take(int64(size))
	fresh := memory.DefaultAllocator.Reallocate(size, old)
	b.take(-int64(len(old)))
	return fresh
}

// Free implements memory.Allocator.
func (b *budget) Free(p []byte) {
	b.take(-int64(len(p)))
	memory.DefaultAllocator.Free(p)
}
