package recordbatch

import (
	"errors"
	"slices"
)

// Memory lends the buffers into which batches are decompressed. The goroutine of an Opener calls Lend; the goroutine
// that uses the Batches calls Return.
type Memory interface {
	// Lend returns an empty buffer of at least n bytes for a fetch result that already has held bytes. Lend may wait
	// for memory only if may is true, which it is while the result has no batch. The error is [ErrNoRoom],
	// [ErrNeverRoom], or that of a context.
	Lend(n, held int, may bool) ([]byte, error)
	// Max returns the size of the largest buffer that could be lent to a result that already has held bytes.
	Max(held int) int
	// Return takes a buffer back.
	Return([]byte)
}

var (
	// ErrNoRoom means that there is no memory for the next batch now.
	ErrNoRoom = errors.New("no memory for the record batch now")
	// ErrNeverRoom means that the next batch will not fit even if all other memory is free, because the pool is too
	// small for it together with the memory that the result already has.
	ErrNeverRoom = errors.New("no memory for the record batch, ever")
)

// heap is a Memory without a limit.
type heap struct{}

func (heap) Lend(n, _ int, _ bool) ([]byte, error) { return make([]byte, 0, n), nil }
func (heap) Max(int) int                           { return 1 << 40 }
func (heap) Return([]byte)                         {}

// Bounded is a Memory from the heap that lends each result at most this many bytes.
type Bounded int

// Lend implements [Memory].
func (m Bounded) Lend(n, held int, _ bool) ([]byte, error) {
	if n > m.Max(held) {
		return nil, ErrNeverRoom
	}
	return make([]byte, 0, n), nil
}

// Max implements [Memory].
func (m Bounded) Max(held int) int { return int(m) - held }

// Return implements [Memory].
func (Bounded) Return([]byte) {}

// chunkSize is the size of the pieces in which the memory of a result grows.
const chunkSize = 1 << 20

// arena is the memory for the decompressed records of one result: chunks that are filled one after the other.
type arena struct {
	memory Memory
	chunks [][]byte // the chunks; only the last one has free space after its length
	bytes  int      // the size of all chunks
	used   int      // how many of these bytes are filled
	// likely is the estimated decompressed size of the batches that are not opened yet. growth is the factor by which
	// earlier batches grew when they were decompressed, in sixteenths: 16 means that they did not grow.
	likely, growth int
	opened         bool  // true once at least one batch is open
	failed         error // the error of the Memory, if one was returned
}

func (a *arena) last() []byte {
	if len(a.chunks) == 0 {
		return nil
	}
	return a.chunks[len(a.chunks)-1]
}

// expect estimates the decompressed size of a batch that has n bytes.
func (a *arena) expect(n int) int { return n * a.growth / 16 }

// reserve makes sure that the last chunk has n free bytes. If it does not have them, reserve takes a new chunk from the
// Memory. An error of the Memory is also kept in a.failed.
func (a *arena) reserve(n int) error {
	last := a.last()
	if cap(last)-len(last) >= n {
		return nil
	}
	if len(a.chunks) > 0 && len(last) == 0 { // the last chunk is empty but too small, so it is replaced
		a.drop()
	}
	size := max(n, min(a.likely, chunkSize))
	chunk, err := a.memory.Lend(size, a.bytes, !a.opened && size == n)
	if err != nil && size > n {
		chunk, err = a.memory.Lend(n, a.bytes, !a.opened)
	}
	if a.failed = err; err != nil {
		return err
	}
	a.chunks = append(a.chunks, chunk)
	a.bytes += cap(chunk)
	return nil
}

// grow returns the next size for a buffer, after a buffer of size bytes was too small: twice that size, but at most
// limit. If the Memory can lend more than size but not twice as much, it returns what the Memory can lend.
func (a *arena) grow(size, limit int) int {
	held := a.bytes
	if last := a.last(); last != nil && len(last) == 0 {
		held -= cap(last)
	}
	if most := a.memory.Max(held); size < most {
		return min(2*size, limit, most)
	}
	return min(2*size, limit)
}

// drop returns the last chunk to the Memory.
func (a *arena) drop() {
	last := a.last()
	a.chunks = a.chunks[:len(a.chunks)-1]
	a.bytes -= cap(last)
	a.memory.Return(last)
}

// mark is a state of an arena that the method back can restore.
type mark struct{ chunks, filled, used int }

func (a *arena) mark() mark { return mark{len(a.chunks), len(a.last()), a.used} }

// back restores the state m: it drops all that was added to the arena since.
func (a *arena) back(m mark) {
	for len(a.chunks) > m.chunks {
		a.drop()
	}
	if n := len(a.chunks); n == m.chunks && n > 0 {
		a.chunks[n-1] = a.chunks[n-1][:m.filled]
	}
	a.used = m.used
}

// close returns unused chunks to the Memory; only the last chunks can be unused.
func (a *arena) close() {
	for len(a.chunks) > 0 && len(a.last()) == 0 {
		a.drop()
	}
}

// room returns the unused part of the last chunk, as an empty slice to append to. Appending changes no bytes that are
// in use.
func (a *arena) room() []byte {
	last := a.last()
	n := len(last)
	return last[n:n:cap(last)]
}

// keep marks the bytes out, which the caller appended to room, as used, and returns them.
func (a *arena) keep(out []byte) []byte {
	last := a.last()
	a.chunks[len(a.chunks)-1] = last[:len(last)+len(out)]
	a.used += len(out)
	return slices.Clip(out)
}
