//nolint:gosec // G115: counts are bounded where they are made: row groups, footer, entries of a dictionary.
package datafile

import (
	"bytes"
	"errors"
	"fmt"
	"hash/maphash"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

const (
	// maxEntries is the largest number of entries of a dictionary that this package builds. For text with more distinct
	// values, other encodings are cheaper.
	maxEntries = 4096
	// maxEntryBytes is the largest size of the entries of a dictionary that this package builds. It is well below 1
	// MiB, because the Parquet writer drops a dictionary whose page reaches that size.
	maxEntryBytes = 512 << 10
)

// dictionaries builds dictionary arrays. It is for one goroutine.
type dictionaries struct {
	seed  maphash.Seed
	table []int32 // hash table of 1 + index of an entry; 0 is a free place
}

func newDictionaries() *dictionaries {
	return &dictionaries{seed: maphash.MakeSeed(), table: make([]int32, 4*maxEntries)}
}

// encode returns a string or binary array as a dictionary array if its values repeat enough, else nil. Entries are in
// the order of their first use, so the result does not depend on the seed, and every entry is used.
func (d *dictionaries) encode(a arrow.Array, v valid) *array.Dictionary {
	offsets, text := textOf(a)
	n := a.Len()
	if n == 0 {
		return nil
	}
	clear(d.table)
	mask := uint64(len(d.table) - 1)
	entries := make([][]byte, 0, 64)
	size, values, room := 0, 0, true
	indices := make([]int32, n)
	last := int32(-1) // rows often repeat the value before them, so compare before hashing
	v.runs(n, func(from, to int) {
		values += to - from
		for i := from; i < to && room; i++ {
			x := text[offsets[i]-offsets[0] : offsets[i+1]-offsets[0]]
			if last >= 0 && bytes.Equal(entries[last], x) {
				indices[i] = last
				continue
			}
			at := maphash.Bytes(d.seed, x) & mask
			for d.table[at] != 0 && !bytes.Equal(entries[d.table[at]-1], x) {
				at = (at + 1) & mask
			}
			if d.table[at] == 0 {
				if size += len(x); len(entries) == maxEntries || size > maxEntryBytes {
					room = false
					return
				}
				entries = append(entries, x)
				d.table[at] = int32(len(entries))
			}
			last = d.table[at] - 1
			indices[i] = last
		}
	})
	if !room || len(entries) == 0 || 2*len(entries) > values {
		return nil
	}
	dict := buildText(a.DataType(), len(entries), func(i int) ([]byte, bool) { return entries[i], true })
	defer dict.Release()
	buffers := []*memory.Buffer{v.buffer(), memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(indices))}
	data := array.NewData(arrow.PrimitiveTypes.Int32, n, buffers, nil, n-values, 0)
	defer data.Release()
	index := array.NewInt32Data(data)
	defer index.Release()
	t := &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: a.DataType()}
	return array.NewDictionaryArray(t, index, dict)
}

// textOf returns the offsets of a string or binary array slice, and its bytes from the first offset on.
func textOf(a arrow.Array) (offsets []int32, text []byte) {
	if a.Len() == 0 {
		return nil, nil // an empty array may have no buffers
	}
	switch a := a.(type) {
	case *array.String:
		return a.ValueOffsets(), a.ValueBytes()
	case *array.Binary:
		return a.ValueOffsets(), a.ValueBytes()
	}
	panic(fmt.Sprintf("datafile: %s is no text", a.DataType()))
}

// buildText makes a string or binary array of n values. value returns ok = false for a null.
func buildText(t arrow.DataType, n int, value func(i int) (text []byte, ok bool)) arrow.Array {
	b := array.NewBinaryBuilder(memory.DefaultAllocator, t.(arrow.BinaryDataType))
	defer b.Release()
	b.Reserve(n)
	for i := range n {
		if text, ok := value(i); ok {
			b.Append(text)
		} else {
			b.AppendNull()
		}
	}
	binary := b.NewArray()
	defer binary.Release()
	return array.MakeFromData(binary.Data()) // a string array if t is the string type
}

// usable reports whether the Parquet writer accepts a dictionary array as it is. The writer requires entries that begin
// at the start of their buffer, no null entry and at least one value. A dictionary with many more entries than rows, as
// after slicing, is not usable either: it would make the file larger.
func usable(d *array.Dictionary) bool {
	dict := d.Dictionary()
	if d.Len() == 0 || dict.Len() == 0 || dict.NullN() > 0 {
		return false
	}
	offsets, _ := textOf(dict)
	return offsets[0] == 0 && 2*dict.Len() <= d.Len()
}

var errIndex = errors.New("an index is outside of its dictionary")

// usedEntries returns which entries the valid rows refer to. It returns an error if a row refers to an entry that does
// not exist.
func usedEntries(d *array.Dictionary, v valid) (valid, error) {
	used := newValid(d.Dictionary().Len())
	n, outside := uint(d.Dictionary().Len()), false
	mark := func(k uint) {
		if k >= n { // also true for a negative index, which is a large k
			outside = true
			return
		}
		used[k/8] |= 1 << (k % 8)
	}
	indices, ok := d.Indices().(*array.Int32)
	v.runs(d.Len(), func(from, to int) {
		if !ok {
			for i := from; i < to; i++ {
				mark(uint(d.GetValueIndex(i)))
			}
			return
		}
		for _, k := range indices.Int32Values()[from:to] {
			mark(uint(k))
		}
	})
	if outside {
		return nil, errIndex
	}
	return used, nil
}

// withoutDictionary returns the values of a dictionary array as a plain array. Rows that are not in v are null. It
// returns an error if a row in v refers to an entry that does not exist.
func withoutDictionary(d *array.Dictionary, v valid) (arrow.Array, error) {
	dict := d.Dictionary()
	offsets, text := textOf(dict)
	outside := false
	plain := buildText(dict.DataType(), d.Len(), func(i int) ([]byte, bool) {
		if !v.has(i) {
			return nil, false
		}
		k := d.GetValueIndex(i)
		if k < 0 || k >= dict.Len() {
			outside = true
			return nil, false
		}
		return text[offsets[k]-offsets[0] : offsets[k+1]-offsets[0]], dict.IsValid(k)
	})
	if outside {
		plain.Release()
		return nil, errIndex
	}
	return plain, nil
}
