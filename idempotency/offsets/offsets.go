// Package offsets has compact immutable sets of Kafka offsets.
package offsets

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Set is an immutable set of offsets. Each run of consecutive offsets takes two varints: the gap before it, and its
// length minus one. So a single offset after a gap below 2^28 takes 2 to 5 bytes, and a run of a million offsets 2
// bytes more. The zero value is the empty set.
type Set struct {
	end  int64 // the last offset plus one, 0 for the empty set
	n    int64 // number of offsets
	data []byte
}

// Of returns the set of some offsets, in any order; repeats count once. Negative offsets are left out.
func Of(all ...int64) Set {
	if !slices.IsSorted(all) {
		all = slices.Sorted(slices.Values(all))
	}
	var p Packer
	for _, offset := range all {
		p.Add(offset)
	}
	return p.Done()
}

// Len returns the number of offsets.
func (s Set) Len() int64 { return s.n }

// End returns one more than the largest offset, 0 for the empty set.
func (s Set) End() int64 { return s.end }

// Bytes returns the memory that the offsets take.
func (s Set) Bytes() int64 { return int64(len(s.data)) }

// Equal reports whether both sets have the same offsets.
func (s Set) Equal(o Set) bool { return s.end == o.end && string(s.data) == string(o.data) }

// Has reports whether an offset is in the set. It decodes all runs before the offset.
func (s Set) Has(offset int64) bool {
	if offset >= s.end {
		return false
	}
	c := s.From(offset)
	return c.OK && c.At == offset
}

// All yields the offsets in ascending order.
func (s Set) All() iter.Seq[int64] {
	return func(yield func(int64) bool) {
		for c := s.From(0); c.OK; c.Next() {
			if !yield(c.At) {
				return
			}
		}
	}
}

// Runs yields the runs of consecutive offsets, each as its first and last offset, in ascending order.
func (s Set) Runs() iter.Seq2[int64, int64] {
	return func(yield func(int64, int64) bool) {
		for c := s.From(0); c.OK; c.Next() {
			first, last := c.At, c.At+c.left
			if !yield(first, last) {
				return
			}
			c.At, c.left = last, 0
		}
	}
}

// Union returns the offsets that are in at least one of the sets.
func Union(sets ...Set) Set {
	var all []Cursor
	var last Set
	for _, s := range sets {
		if s.n > 0 {
			all, last = append(all, s.From(0)), s
		}
	}
	if len(all) <= 1 { // sets are immutable, so the result may be the given set itself
		return last
	}
	var p Packer
	Merge(all, func(offset int64, _ int) bool { p.Add(offset); return true })
	return p.Done()
}

// Without returns the offsets of s that are not in o.
func (s Set) Without(o Set) Set {
	var p Packer
	other := o.From(0)
	for offset := range s.All() {
		if !other.Has(offset) {
			p.Add(offset)
		}
	}
	return p.Done()
}

// Within returns the offsets of s that are in o, too.
func (s Set) Within(o Set) Set { return s.Without(s.Without(o)) }

// String returns the offsets as text that [Parse] reads: runs in ascending order, such as 12-15,20.
func (s Set) String() string {
	var b strings.Builder
	for first, last := range s.Runs() {
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.FormatInt(first, 10))
		if last > first {
			b.WriteByte('-')
			b.WriteString(strconv.FormatInt(last, 10))
		}
	}
	return b.String()
}

var errMalformed = errors.New("offsets are runs in ascending order, such as 12-15,20")

// Parse returns the set that [Set.String] renders as text. The runs must ascend, with a gap between two of them.
func Parse(text string) (Set, error) {
	var p Packer
	for text != "" {
		run, rest, more := strings.Cut(text, ",")
		if more && rest == "" {
			return Set{}, errMalformed
		}
		from, to, isRun := strings.Cut(run, "-")
		if !isRun {
			to = from
		}
		first, err := parseOffset(from)
		if err != nil {
			return Set{}, err
		}
		last, err := parseOffset(to)
		if err != nil {
			return Set{}, err
		}
		if last < first || isRun && last == first || p.n > 0 && first <= p.end {
			return Set{}, errMalformed
		}
		p.addRun(first, last)
		text = rest
	}
	return p.Done(), nil
}

func parseOffset(text string) (int64, error) {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil || n < 0 || n == math.MaxInt64 || strconv.FormatInt(n, 10) != text {
		return 0, errMalformed
	}
	return n, nil
}

// MarshalJSON writes the text of [Set.String].
func (s Set) MarshalJSON() ([]byte, error) { return json.Marshal(s.String()) }

// UnmarshalJSON reads the text of [Set.String].
func (s *Set) UnmarshalJSON(b []byte) error {
	var text string
	if err := json.Unmarshal(b, &text); err != nil {
		return fmt.Errorf("%w: it is no text", errMalformed)
	}
	found, err := Parse(text)
	*s = found
	return err
}

// Packer makes a set of offsets that come in ascending order. The zero value is ready for use.
type Packer struct {
	Set
	gap  int64 // gap between the run before and the present one
	more int64 // offsets of the present run beyond its first one
	open bool
}

// Add adds an offset. It ignores an offset that is not greater than the one added before, and one that Kafka never has:
// a negative one or the largest int64.
func (p *Packer) Add(offset int64) {
	if offset < 0 || offset == math.MaxInt64 || p.n > 0 && offset < p.end {
		return
	}
	p.addRun(offset, offset)
}

// addRun adds the offsets from first to last, which are greater than all offsets before.
func (p *Packer) addRun(first, last int64) {
	if p.open && first == p.end {
		p.more += last - first + 1
	} else {
		p.close()
		p.gap, p.more, p.open = first-p.end, last-first, true
	}
	p.n += last - first + 1
	p.end = last + 1
}

func (p *Packer) close() {
	if p.open {
		p.data = binary.AppendUvarint(binary.AppendUvarint(p.data, uint64(p.gap)), uint64(p.more)) //nolint:gosec // not negative
		p.open = false
	}
}

// Done returns the set. The Packer must not be used any more.
func (p *Packer) Done() Set {
	p.close()
	return Set{p.end, p.n, slices.Clip(p.data)}
}

// Cursor iterates over the offsets of a set; it is at an offset while OK is true.
type Cursor struct {
	At  int64
	OK  bool
	Tag int // set by the caller, see [Merge]

	data []byte
	left int64 // number of offsets of the run after At
}

// From returns a cursor at the lowest offset of the set that is at least offset. OK is false if the set has none.
func (s Set) From(offset int64) Cursor {
	c := Cursor{data: s.data, At: -1, OK: true}
	for c.Next(); c.OK && c.At+c.left < offset; c.Next() {
		c.At, c.left = c.At+c.left, 0
	}
	if c.OK && c.At < offset {
		c.left -= offset - c.At
		c.At = offset
	}
	return c
}

// Next goes to the next offset.
func (c *Cursor) Next() {
	if c.left > 0 {
		c.At, c.left = c.At+1, c.left-1
		return
	}
	gap, n := binary.Uvarint(c.data)
	more, m := binary.Uvarint(c.data[max(n, 0):])
	if n <= 0 || m <= 0 || gap > math.MaxInt64 || more > math.MaxInt64 {
		c.OK = false
		return
	}
	c.data = c.data[n+m:]
	c.At, c.left = c.At+1+int64(gap), int64(more)
}

// Has reports whether an offset is in the set. It is for offsets in ascending order: the cursor moves up to each of them and
// not back, so a pass over all of them reads the set once.
func (c *Cursor) Has(offset int64) bool {
	for c.OK && c.At < offset {
		c.Next()
	}
	return c.OK && c.At == offset
}

// Merge calls each once for every offset that at least one cursor has, in ascending order. tag is the lowest Tag of the
// cursors that have the offset. Merge stops early if each returns false.
func Merge(cursors []Cursor, each func(offset int64, tag int) bool) {
	for {
		low, tag := int64(math.MaxInt64), -1
		for i := range cursors {
			if c := &cursors[i]; c.OK && (c.At < low || c.At == low && (tag < 0 || c.Tag < tag)) {
				low, tag = c.At, c.Tag
			}
		}
		if tag < 0 || !each(low, tag) {
			return
		}
		for i := range cursors {
			if c := &cursors[i]; c.OK && c.At == low {
				c.Next()
			}
		}
	}
}
