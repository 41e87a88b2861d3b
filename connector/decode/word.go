package decode

import "encoding/binary"

// Text is examined in words of eight bytes. So every buffer that is scanned ends in padding: a word may be loaded at
// any byte of the text without a check that eight are left, and NUL, which no JSON token contains, ends every loop.
const padding = 64

// zeroPadding is appended to unpadded text. It is read-only.
var zeroPadding [padding]byte

const (
	ones  = 0x0101010101010101
	highs = 0x8080808080808080
	zeros = ones * '0'
)

// load64 returns the eight bytes at p as a word; the first byte is in the lowest bits.
func load64(b []byte, p int) uint64     { return binary.LittleEndian.Uint64(b[p : p+8]) }
func store64(b []byte, p int, w uint64) { binary.LittleEndian.PutUint64(b[p:p+8], w) }

// special marks each byte of w at which a run of plain ASCII text ends: quote, backslash, control characters and
// non-ASCII. A subtraction borrows only out of a marked byte, so the lowest mark is exact; only that one is used.
func special(w uint64) uint64 { return (stopsOrHigh(w) | w) & highs }

// stops marks the bytes that special marks, except non-ASCII ones.
func stops(w uint64) uint64 { return stopsOrHigh(w) &^ w & highs }

// stopsOrHigh marks the bytes that stops marks in their high bits; for non-ASCII bytes its result is arbitrary.
func stopsOrHigh(w uint64) uint64 {
	// XOR 2 moves the quote (0x22) next to the control characters: one comparison covers both.
	return ((w ^ ones*2) - ones*0x21) | ((w ^ ones*'\\') - ones)
}
