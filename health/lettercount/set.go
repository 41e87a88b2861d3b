package lettercount

import (
	"encoding/binary"
	"math"
)

// set is an immutable set of offsets, ascending. Each run of consecutive offsets is stored as two varints: the gap before
// it, and its length minus one. A single dead letter takes 3 to 5 bytes, a flood almost none.
type set struct {
	end  int64 // one after the last offset, 0 for none
	data []byte
}

// packer makes a set of offsets that come in ascending order.
type packer struct {
	set
	gap  int64 // before the run that is open
	more int64 // offsets of that run beside its first one
	open bool
}

// add adds an offset. Offsets come in ascending order; a repeated or a negative one is ignored.
func (p *packer) add(offset int64) {
	switch {
	case p.open && offset < p.end || offset < 0:
		return
	case p.open && offset == p.end:
		p.more++
	default:
		p.close()
		p.gap, p.more, p.open = offset-p.end, 0, true
	}
	p.end = offset + 1
}

func (p *packer) close() {
	if p.open {
		p.data = binary.AppendUvarint(binary.AppendUvarint(p.data, uint64(p.gap)), uint64(p.more)) //nolint:gosec // not negative
		p.open = false
	}
}

// done returns the set. The packer must not be used any more.
func (p *packer) done() set {
	p.close()
	return set{p.end, append([]byte(nil), p.data...)}
}

// pack makes a set of sorted offsets, which may repeat.
func pack(sorted []int64) set {
	var p packer
	for _, offset := range sorted {
		p.add(offset)
	}
	return p.done()
}

// cursor iterates over the offsets of a set; it is at an offset while ok is true.
type cursor struct {
	data []byte
	at   int64
	left int64 // offsets of the run after at
	ok   bool
	tag  int // set by the caller, passed on by union
}

// from returns a cursor at the first offset of a set that is not below offset.
func (s set) from(offset int64) cursor {
	c := cursor{data: s.data, at: -1, ok: true}
	for c.next(); c.ok && c.at+c.left < offset; c.next() {
		c.at, c.left = c.at+c.left, 0
	}
	if c.ok && c.at < offset {
		c.left -= offset - c.at
		c.at = offset
	}
	return c
}

// next goes to the next offset.
func (c *cursor) next() {
	if c.left > 0 {
		c.at, c.left = c.at+1, c.left-1
		return
	}
	gap, n := binary.Uvarint(c.data)
	more, m := binary.Uvarint(c.data[max(n, 0):])
	if n <= 0 || m <= 0 || gap > math.MaxInt64 || more > math.MaxInt64 {
		c.ok = false
		return
	}
	c.data = c.data[n+m:]
	c.at, c.left = c.at+1+int64(gap), int64(more)
}

// union calls each with the offsets of all cursors, ascending and once, and with the lowest tag of those that have it, until it
// returns false.
func union(cursors []cursor, each func(offset int64, tag int) bool) {
	for {
		low, tag := int64(math.MaxInt64), -1
		for i := range cursors {
			if c := &cursors[i]; c.ok && (c.at < low || c.at == low && (tag < 0 || c.tag < tag)) {
				low, tag = c.at, c.tag
			}
		}
		if tag < 0 || !each(low, tag) {
			return
		}
		for i := range cursors {
			if c := &cursors[i]; c.ok && c.at == low {
				c.next()
			}
		}
	}
}
