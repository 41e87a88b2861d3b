// Package bounded reads Parquet files that other programs may have written. Such a file decides how large its pages
// and values are, and the Parquet reader panics on bytes that are not Parquet. So every file is read through a
// [Parquet], with memory from an [Allocator].
package bounded

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow/memory"
)

// Allocator counts allocated memory and enforces a limit. Since an allocator cannot return an error, it panics with a
// [TooLargeError], which [Parquet.Do] recovers.
type Allocator struct {
	limit int64
	used  atomic.Int64
	peak  atomic.Int64
}

var _ memory.Allocator = (*Allocator)(nil)

// New returns an allocator with a limit in bytes.
func New(limit int64) *Allocator { return &Allocator{limit: limit} }

// TooLargeError is the panic value of an allocator beyond its limit.
type TooLargeError struct{ Wanted, Limit int64 }

// Error returns the wanted size and the limit.
func (t TooLargeError) Error() string {
	return fmt.Sprintf("reading it takes more than the %d bytes that one file may take (%d)", t.Limit, t.Wanted)
}

// Limit returns the largest number of bytes that may be allocated at the same moment.
func (a *Allocator) Limit() int64 { return a.limit }

// Used returns the number of bytes that are allocated now.
func (a *Allocator) Used() int64 { return a.used.Load() }

// Peak returns the largest number of bytes that were allocated at the same moment.
func (a *Allocator) Peak() int64 { return a.peak.Load() }

// Take counts n bytes that the caller allocated elsewhere; a negative n returns them. It panics with a [TooLargeError]
// if they exceed the limit, and then counts nothing.
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

// Reallocate implements memory.Allocator. The old and the new buffer exist at the same time.
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

// footerShare is the divisor of the limit that gives the limit for the footer of a file. A parsed footer takes several
// times its size, and none of that memory comes from the allocator.
const footerShare = 16

// checkFooter returns a [TooLargeError] if the footer of a Parquet file exceeds its share of the limit. It reads only
// the last eight bytes of the file. Bytes that are not Parquet pass, because the Parquet reader reports them.
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
