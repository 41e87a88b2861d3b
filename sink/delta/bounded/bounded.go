// Package bounded opens Parquet files that others may have written. What they wrote decides how large pages and values are, and
// the Parquet reader panics on bytes that are no Parquet: every file is read through a [Parquet], with the memory of an
// [Allocator].
package bounded

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Allocator counts what is allocated and refuses to go beyond its limit. An allocator cannot return an error: it panics with a
// [TooLargeError], which the reader of the file recovers.
type Allocator struct {
	limit int64
	used  atomic.Int64
	peak  atomic.Int64
}

var _ memory.Allocator = (*Allocator)(nil)

// New returns an allocator with a limit in bytes.
func New(limit int64) *Allocator { return &Allocator{limit: limit} }

// TooLargeError is what an allocator panics with.
type TooLargeError struct{ Wanted, Limit int64 }

// Error says how much was wanted.
func (t TooLargeError) Error() string {
	return fmt.Sprintf("reading it takes more than the %d bytes that one file may take (%d)", t.Limit, t.Wanted)
}

// Limit returns the largest number of bytes that may be allocated at a time.
func (a *Allocator) Limit() int64 { return a.limit }

// Used returns how many bytes are allocated.
func (a *Allocator) Used() int64 { return a.used.Load() }

// Peak returns the largest number of bytes that were allocated at a time.
func (a *Allocator) Peak() int64 { return a.peak.Load() }

// Take counts n bytes more that the caller holds, or less if n is negative.
func (a *Allocator) Take(n int64) {
	used := a.used.Add(n)
	if n > 0 && used > a.limit {
		a.used.Add(-n)
		panic(TooLargeError{used, a.limit})
	}
	for peak := a.peak.Load(); used > peak && !a.peak.CompareAndSwap(peak, used); peak = a.peak.Load() {
	}
}

// Allocate implements memory.Allocator.
func (a *Allocator) Allocate(size int) []byte {
	a.Take(int64(size))
	return memory.DefaultAllocator.Allocate(size)
}

// Reallocate implements memory.Allocator. Old and new exist side by side for a moment.
func (a *Allocator) Reallocate(size int, old []byte) []byte {
	a.Take(int64(size))
	fresh := memory.DefaultAllocator.Reallocate(size, old)
	a.Take(-int64(len(old)))
	return fresh
}

// Free implements memory.Allocator.
func (a *Allocator) Free(p []byte) {
	a.Take(-int64(len(p)))
	memory.DefaultAllocator.Free(p)
}

// footerShare is the part of the limit that the footer of a file may have. What it becomes in memory is several times larger,
// and comes from no allocator.
const footerShare = 16

// checkFooter returns a [TooLargeError] if the footer of a Parquet file is larger than its share of the limit. It reads the last
// eight bytes of the file alone. Bytes that are no Parquet pass: the Parquet reader says so.
func (a *Allocator) checkFooter(file Source) error {
	var end [8]byte
	size := file.Size()
	if size < int64(len(end)) {
		return nil
	}
	if _, err := file.ReadAt(end[:], size-int64(len(end))); err != nil {
		return err
	}
	if n := int64(binary.LittleEndian.Uint32(end[:4])); n > a.limit/footerShare && n < size {
		return TooLargeError{n * footerShare, a.limit}
	}
	return nil
}
