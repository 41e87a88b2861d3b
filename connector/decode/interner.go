//nolint:gosec // G115: lengths and rows fit 32 bits by ErrChunkFull, and words are taken apart on purpose.
package decode

import "math/bits"

// interner is the dictionary of one string column in one chunk, in order of first occurrence, with a hash table.
// Equal records always give equal dictionaries.
type interner struct {
	slots    []slot // hash table with linear probing; its length is a power of two, and at most half of it is used
	limit    int    // largest number of distinct values
	data     []byte
	offsets  []int32 // value i is data[offsets[i]:offsets[i+1]]
	firstRow []int32 // row in which each value occurred first; if that row is rolled back, the value is removed
}

// slot is an entry of the hash table. It contains a value of up to shortText bytes itself, so that comparing such
// values needs no access to the text of the dictionary.
type slot struct {
	lo, hi uint64 // the value padded with zeros; if it is longer than shortText, its hash and 0
	length int32
	index  int32 // 1 + index of the value; 0 marks a free slot
}

const (
	shortText = 16
	// maxProbes bounds the search for a value. With crafted collisions the column only loses its dictionary, so the
	// hash needs no random seed.
	maxProbes = 64
)

// keep[n] keeps the first n bytes of two words and clears the others. It is read-only.
var keep = func() (m [shortText + 1]struct{ lo, hi uint64 }) {
	for n := range m {
		m[n].lo, m[n].hi = 1<<(8*min(n, 8))-1, 1<<(8*max(n-8, 0))-1
	}
	return m
}()

func newInterner(limit int) *interner {
	return &interner{slots: make([]slot, 64), limit: limit, offsets: make([]int32, 1, 65)}
}

// allocated returns the memory of the dictionary in bytes.
func (t *interner) allocated() int {
	const slot, offset = 24, 4
	return slot*cap(t.slots) + cap(t.data) + offset*(cap(t.offsets)+cap(t.firstRow))
}

func (t *interner) count() int         { return len(t.offsets) - 1 }
func (t *interner) value(i int) []byte { return t.data[t.offsets[i]:t.offsets[i+1]] }

// short finds or adds a value of n <= shortText bytes, given in two words with any bytes after it. It returns the
// index, negative if the column has too many distinct values for a dictionary.
func (t *interner) short(lo, hi uint64, n, row int) int32 {
	// There is no branch on the length: lengths are random, and a mispredicted branch costs more than all other steps.
	lo &= keep[n].lo
	hi &= keep[n].hi
	at := home(lo, hi, n)
	for range maxProbes {
		s := &t.slots[at&(len(t.slots)-1)]
		if s.lo == lo && s.hi == hi && int(s.length) == n && s.index != 0 {
			return s.index - 1
		}
		if s.index == 0 {
			var text [shortText]byte
			store64(text[:], 0, lo)
			store64(text[:], 8, hi)
			return t.add(s, slot{lo: lo, hi: hi}, text[:n], row)
		}
		at++
	}
	return -1
}

// long finds or adds a value of more than shortText bytes; its result is like that of short.
func (t *interner) long(text []byte, row int) int32 {
	lo := hash(text)
	at := home(lo, 0, len(text))
	for range maxProbes {
		s := &t.slots[at&(len(t.slots)-1)]
		if s.lo == lo && int(s.length) == len(text) && s.index != 0 && string(t.value(int(s.index-1))) == string(text) {
			return s.index - 1
		}
		if s.index == 0 {
			return t.add(s, slot{lo: lo}, text, row)
		}
		at++
	}
	return -1
}

func (t *interner) add(free *slot, s slot, text []byte, row int) int32 {
	i := int32(t.count())
	if int(i) == t.limit {
		return -1
	}
	s.length, s.index = int32(len(text)), i+1
	*free = s
	t.data = append(t.data, text...)
	t.offsets = append(t.offsets, int32(len(t.data)))
	t.firstRow = append(t.firstRow, int32(row))
	if 2*t.count() > len(t.slots) {
		t.grow()
	}
	return i
}

// grow inserts the values into a larger table in their order, so that truncate may remove the last one first.
func (t *interner) grow() {
	ordered := make([]slot, t.count())
	for _, s := range t.slots {
		if s.index != 0 {
			ordered[s.index-1] = s
		}
	}
	t.slots = make([]slot, 2*len(t.slots))
	for _, s := range ordered {
		*t.find(s, 0) = s
	}
}

// find returns the first slot on the probe sequence of s that has this index.
func (t *interner) find(s slot, index int32) *slot {
	for at := home(s.lo, s.hi, int(s.length)); ; at++ {
		if found := &t.slots[at&(len(t.slots)-1)]; found.index == index {
			return found
		}
	}
}

// truncate removes the values that occurred first in row n or later, so that no part of a refused record reaches the
// file. It removes the last value first: no other value can have been displaced by it.
func (t *interner) truncate(n int) {
	for last := t.count() - 1; last >= 0 && int(t.firstRow[last]) >= n; last-- {
		text := t.value(last)
		s := slot{length: int32(len(text))}
		if len(text) > shortText {
			s.lo = hash(text)
		} else {
			var words [shortText]byte
			copy(words[:], text)
			s.lo, s.hi = load64(words[:], 0), load64(words[:], 8)
		}
		*t.find(s, int32(last+1)) = slot{}
		t.data = t.data[:t.offsets[last]]
		t.offsets = t.offsets[:last+1]
		t.firstRow = t.firstRow[:last]
	}
}

const hashFactor = 0x9e3779b97f4a7c15

func fold(a, b uint64) uint64 {
	hi, lo := bits.Mul64(a, b)
	return hi ^ lo
}

func home(lo, hi uint64, n int) int {
	return int(fold(lo^hashFactor, hi^uint64(n)<<56^hashFactor>>1))
}

// hash returns a hash of a text of more than 8 bytes. The last word overlaps the one before it.
func hash(text []byte) uint64 {
	h := uint64(0)
	last := len(text) - 8
	for p := 0; p < last; p += 8 {
		h = fold(h^load64(text, p), hashFactor)
	}
	return fold(h^load64(text, last), hashFactor)
}
