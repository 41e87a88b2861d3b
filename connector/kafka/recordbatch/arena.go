package recordbatch

import (
	"errors"
	"slices"
)

// Memory lends the buffers that batches are decompressed into. The goroutine of an Opener calls Lend; the goroutine
// that uses the Batches calls Return.
type Memory interface {
	// Lend returns an empty buffer of at least n bytes. held is how much memory the result already has. may is true if
	// Lend may wait, which is so as long as the result is empty. The error is [ErrNoRoom], [ErrNeverRoom] or that of a
	// context.
	Lend(n, held int, may bool) ([]byte, error)
	// Max returns the size of the largest buffer that could be lent to a result that already has held bytes.
	Max(held int) int
	// Return takes a buffer back.
	Return([]byte)
}

var (
	// ErrNoRoom means that there is no memory for the next batch now.
	ErrNoRoom = errors.New("no memory for the record batch now")
	// ErrNeverRoom means that the pool is too small for the next batch beside the memory that the result already has.
	ErrNeverRoom = errors.New("no memory for the record batch, ever")
)

// heap is a Memory without a limit.
type heap struct{}

func (heap) Lend(n, _ int, _ bool) ([]byte, error) { return make([]byte, 0, n), nil }
func (heap) Max(int) int                           { return 1 << 40 }
func (heap) Return([]byte)                         {}

// Bounded is Memory from the heap, with a limit in bytes for one result.
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

// arena is the memory of one result: chunks that are filled one after the other.
type arena struct {
	memory Memory
	chunks [][]byte // the chunks; only the last one has free space after its length
	bytes  int      // the size of all chunks
	used   int      // how many of these bytes are filled
	// likely is the estimated decompressed size of the batches that are not opened yet. growth is how much earlier
	// batches grew by decompression, in sixteenths: 16 means that the size stayed the same.
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

// expect estimates the decompressed size of a batch of n bytes.
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

// grow returns the size to try after size bytes were not enough: twice as many, but at most limit. It is also at most
// what the Memory can lend, unless size has reached that already.
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

// mark is the state of an arena at one time, to which back returns.
type mark struct{ chunks, filled, used int }

func (a *arena) mark() mark { return mark{len(a.chunks), len(a.last()), a.used} }

// back drops everything that was added after m.
func (a *arena) back(m mark) {
	for len(a.chunks) > m.chunks {
		a.drop()
	}
	if n := len(a.chunks); n == m.chunks && n > 0 {
		a.chunks[n-1] = a.chunks[n-1][:m.filled]
	}
	a.used = m.used
}

// close returns empty chunks to the Memory.
func (a *arena) close() {
	for len(a.chunks) > 0 && len(a.last()) == 0 {
		a.drop()
	}
}

// room returns the free part of the last chunk as an empty slice with capacity. Appending to it does not change earlier
// bytes.
func (a *arena) room() []byte {
	last := a.last()
	n := len(last)
	return last[n:n:cap(last)]
}

// keep makes the bytes that were appended to room part of the arena, and returns them.
func (a *arena) keep(out []byte) []byte {
	last := a.last()
	a.chunks[len(a.chunks)-1] = last[:len(last)+len(out)]
	a.used += len(out)
	return slices.Clip(out)
}
