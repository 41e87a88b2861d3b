package decode

import (
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"pgregory.net/rapid"
)

// intern returns the index of a text of any length in the dictionary, and adds the text if it is missing.
func (t *interner) intern(text []byte, row int) int32 {
	if len(text) > shortText {
		return t.long(text, row)
	}
	b := padded(string(text))
	return t.short(load64(b, 0), load64(b, 8), len(text), row)
}

// TestTrailingZeros: texts that differ only in the number of NULs at their end look the same in the words of a slot of
// the hash table. The dictionary still keeps them apart.
func TestTrailingZeros(t *testing.T) {
	in := newInterner(4096)
	for letter := range 20 {
		for n := range shortText + 1 {
			b := make([]byte, n)
			if n > 0 {
				b[0] = 'a' + byte(letter)
			}
			for range 2 {
				if i := in.intern(b, 0); i < 0 || string(in.value(int(i))) != string(b) {
					t.Fatal(letter, n, i)
				}
			}
		}
	}
}

// collide returns a text of 24 bytes for each w. The texts of all w have the same hash.
func collide(w uint64) []byte {
	b := make([]byte, 24)
	store64(b, 0, w)
	store64(b, 8, fold(w, hashFactor))
	return b
}

// TestCollisions: among values with equal hashes the dictionary finds each of the first maxProbes, and refuses the
// others.
func TestCollisions(t *testing.T) {
	if hash(collide(1)) != hash(collide(2)) {
		t.Fatal("no collision")
	}
	in := newInterner(4096)
	gaveUp := 0
	for w := range uint64(200) {
		text := collide(w + 1)
		if i := in.intern(text, 0); i < 0 {
			gaveUp++
		} else if string(in.value(int(i))) != string(text) {
			t.Fatal("two values taken for one")
		}
	}
	if gaveUp != 200-maxProbes {
		t.Fatalf("gave up %d times", gaveUp)
	}
}

// TestInterner: after any sequence of additions and rollbacks, the dictionary has the distinct values in the order of
// their first rows, and the hash table is the same as if only these values had been added.
func TestInterner(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		in := newInterner(200)
		var order []string // the value of each row
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			if len(order) > 0 && rapid.IntRange(0, 3).Draw(t, "what") == 0 {
				order = order[:rapid.IntRange(0, len(order)).Draw(t, "keep")]
				in.truncate(len(order))
			} else {
				n := rapid.IntRange(0, 30).Draw(t, "values")
				base := rapid.IntRange(0, 150).Draw(t, "base")
				for i := range n {
					text := fmt.Sprintf("%0*d", []int{1, 8, 16, 17, 40}[base%5], base+i)
					if rapid.IntRange(0, 9).Draw(t, "crafted") == 0 {
						text = string(collide(uint64(base + i)))
					}
					if in.intern([]byte(text), len(order)) < 0 {
						break
					}
					order = append(order, text)
				}
			}
			var distinct []string
			seen := map[string]bool{}
			for _, v := range order {
				if !seen[v] {
					seen[v] = true
					distinct = append(distinct, v)
				}
			}
			if in.count() != len(distinct) || len(in.firstRow) != len(distinct) {
				t.Fatalf("%d values, want %d", in.count(), len(distinct))
			}
			used := 0
			for _, s := range in.slots {
				if s.index != 0 {
					used++
				}
			}
			if used != len(distinct) || 2*used > len(in.slots) {
				t.Fatalf("%d of %d slots used for %d values", used, len(in.slots), len(distinct))
			}
			for i, v := range distinct {
				if string(in.value(i)) != v || in.intern([]byte(v), len(order)) != int32(i) {
					t.Fatalf("value %d is not %q", i, v)
				}
			}
		}
	})
}

// TestDictionaryIsLearned: after a chunk with too many distinct values, the decoder writes the column without a
// dictionary for retryDictionary chunks, and then tries a dictionary again.
func TestDictionaryIsLearned(t *testing.T) {
	d := open(t, parse(t, "id string, k string"), JSON{}, 100)
	chunk := func(ids int) (id, k arrow.Type) {
		for i := range 2000 {
			if err := d.addValue(fmt.Appendf(nil, `{"id":"id-%d","k":"%d"}`, i%ids, i%7)); err != nil {
				t.Fatal(err)
			}
		}
		b := d.Seal()
		for i := range 2000 {
			if got := rowOf(b, i)[4:]; !same(got, []any{fmt.Sprintf("id-%d", i%ids), fmt.Sprint(i % 7)}) {
				t.Fatal(i, got)
			}
		}
		return b.Schema().Field(4).Type.ID(), b.Schema().Field(5).Type.ID()
	}
	for i := range retryDictionary + 4 {
		ids := 50
		if i == 1 {
			ids = 500
		}
		id, k := chunk(ids)
		if want := i == 0 || i > retryDictionary+1; k != arrow.DICTIONARY || (id == arrow.DICTIONARY) != want {
			t.Fatalf("chunk %d: %v %v", i, id, k)
		}
	}
}

// TestShortChunksDoNotTeach: if a chunk has too few rows for a dictionary, the next chunk still tries one.
func TestShortChunksDoNotTeach(t *testing.T) {
	d := open(t, parse(t, "k string"), JSON{}, maxDistinct)
	for rows, want := range map[int]arrow.Type{1: arrow.STRING, 100: arrow.DICTIONARY} {
		for i := range rows {
			if err := d.addValue(fmt.Appendf(nil, `{"k":"%d"}`, i%10)); err != nil {
				t.Fatal(err)
			}
		}
		if got := d.Seal().Column(4).DataType().ID(); got != want {
			t.Errorf("%d rows: %v", rows, got)
		}
	}
}
