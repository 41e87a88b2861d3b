package datafile

import (
	"encoding/binary"
	"math/bits"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/bitutil"
)

// valid is a bitmap of the rows that have a value: bit i for row i, padded to whole words. nil means all rows.
type valid []byte

func newValid(n int) valid { return make(valid, (n+63)/64*8) }

// and returns the intersection of v and the rows in which the array has a value. Both must hold, because a value below
// a null struct does not count.
func (v valid) and(a arrow.Array) valid {
	if a.NullBitmapBytes() == nil || a.NullN() == 0 {
		return v
	}
	own, off, out := a.NullBitmapBytes(), a.Data().Offset(), newValid(a.Len())
	if v == nil {
		bitutil.CopyBitmap(own, off, a.Len(), out, 0)
	} else {
		bitutil.BitmapAnd(v, own, 0, int64(off), out, 0, int64(a.Len()))
	}
	return out
}

// count returns how many of n rows are valid.
func (v valid) count(n int) int {
	if v == nil {
		return n
	}
	return bitutil.CountSetBits(v, 0, n)
}

// has reports whether row i is valid.
func (v valid) has(i int) bool { return v == nil || bitutil.BitIsSet(v, i) }

// runs calls f for each run [from, to) of valid rows among n.
func (v valid) runs(n int, f func(from, to int)) {
	if v == nil {
		if n > 0 {
			f(0, n)
		}
		return
	}
	from := -1 // start of the present run of valid rows, -1 outside of one
	for base := 0; base < n; base += 64 {
		word := binary.LittleEndian.Uint64(v[base/8:])
		if left := n - base; left < 64 {
			word &= 1<<left - 1
		}
		for at := 0; at < 64; {
			rest := word >> at
			if from < 0 {
				if rest == 0 {
					break
				}
				at += bits.TrailingZeros64(rest)
				from = base + at
				continue
			}
			ones := bits.TrailingZeros64(^rest)
			if at+ones >= 64 {
				break // the run reaches into the next word
			}
			at += ones
			f(from, base+at)
			from = -1
		}
	}
	if from >= 0 {
		f(from, n)
	}
}
