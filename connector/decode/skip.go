//nolint:gosec // G115: lengths and rows fit 32 bits by ErrChunkFull, and words are taken apart on purpose.
package decode

import "hash/maphash"

// undeclared checks and skips an undeclared field of o with its name at `at` and its value at p, and returns the end of
// the field. serial is the number of the object within the record. The value is checked like that of a declared field,
// so that the validity of a record does not depend on the schema.
func (d *jsonDecoder) undeclared(o *object, b []byte, at, p, serial int, name []byte) int {
	if d.limits.Strict {
		d.field = nameOf(name)
		return d.fail(UnknownField, at)
	}
	hash := d.names.hash(name)
	if d.names.add(serial, hash, name) {
		return d.fail(DuplicateKey, at)
	}
	if d.rescue.column != nil {
		return d.keep(o, b, p, name)
	}
	d.ignored.add(o, hash, name)
	return d.skip(b, p, o.depth+1)
}

// skip checks the undeclared value at p and returns its end. depth is the depth of the value, if it is an object or
// array.
func (d *jsonDecoder) skip(b []byte, p, depth int) int {
	if d.values++; d.values > d.limits.MaxValues {
		return d.fail(TooManyValues, p)
	}
	switch b[p] {
	case '"':
		_, _, _, p = d.text(b, p)
		return p
	case 't':
		return d.literal(b, p, "true")
	case 'f':
		return d.literal(b, p, "false")
	case 'n':
		return d.literal(b, p, "null")
	case '{', '[':
		return d.skipNested(b, p, depth)
	}
	_, end, ok := scanNumber(b, p)
	if !ok {
		return d.unexpected(end)
	}
	return end
}

func (d *jsonDecoder) skipNested(b []byte, p, depth int) int {
	if depth > d.limits.MaxDepth {
		return d.fail(TooDeep, p)
	}
	opening, closing := b[p], b[p]+2 // in ASCII, ] is two after [, and } is two after {
	d.objects++
	serial := d.objects
	p = space(b, p+1)
	if b[p] == closing {
		return p + 1
	}
	for {
		if opening == '{' {
			at := p
			name, end := d.name(b, p)
			if p = end; p < 0 {
				return p
			}
			if d.names.add(serial, d.names.hash(name), name) {
				return d.fail(DuplicateKey, at)
			}
		}
		if p = d.skip(b, p, depth+1); p < 0 {
			return p
		}
		p = space(b, p)
		switch b[p] {
		case closing:
			return p + 1
		case ',':
			p = space(b, p+1)
		default:
			return d.unexpected(p)
		}
	}
}

// name parses `"name":` and the white space in and after it. It returns the name and the position after it. The name is
// valid until the next string with an escape is read.
func (d *jsonDecoder) name(b []byte, p int) ([]byte, int) {
	if b[p] != '"' {
		return nil, d.unexpected(p)
	}
	buf, start, end, p := d.text(b, p)
	if p < 0 {
		return nil, p
	}
	p = space(b, p)
	if b[p] != ':' {
		return nil, d.unexpected(p)
	}
	return buf[start:end], space(b, p+1)
}

// nameSet finds repeated names among the undeclared fields of a record, in constant time per name: a record may have
// 100,000 of them. Declared names need only a bit each. The random seed prevents crafted collisions.
type nameSet struct {
	seed  maphash.Seed
	names []seenName
	table []int32 // hash table of 1 + index into names; its length is a power of two, and at most half of it is used
}

type seenName struct {
	hash uint64
	slot int
	text []byte
}

func (s *nameSet) hash(name []byte) uint64 { return maphash.Bytes(s.seed, name) }

// add adds a name of an object, which is given by its serial number within the record. It returns true if the object
// already has that name. Equal names of different objects never have the same hash, because the factor is odd.
func (s *nameSet) add(object int, hash uint64, name []byte) bool {
	if 2*len(s.names) >= len(s.table) {
		s.grow()
	}
	hash += uint64(object) * hashFactor
	at := s.home(hash)
	for ; s.table[at] != 0; at = s.next(at) {
		n := &s.names[s.table[at]-1]
		if n.hash == hash && string(n.text) == string(name) {
			return true
		}
	}
	if len(s.names) < cap(s.names) { // reuse the memory of a name of an earlier record
		s.names = s.names[:len(s.names)+1]
	} else {
		s.names = append(s.names, seenName{})
	}
	n := &s.names[len(s.names)-1]
	*n = seenName{hash, at, append(n.text[:0], name...)}
	s.table[at] = int32(len(s.names))
	return false
}

func (s *nameSet) home(hash uint64) int { return int(hash) & (len(s.table) - 1) }
func (s *nameSet) next(at int) int      { return (at + 1) & (len(s.table) - 1) }

func (s *nameSet) grow() {
	s.table = make([]int32, max(64, 4*len(s.table)))
	for i := range s.names {
		n := &s.names[i]
		for n.slot = s.home(n.hash); s.table[n.slot] != 0; n.slot = s.next(n.slot) {
		}
		s.table[n.slot] = int32(i + 1)
	}
}

// reset empties the set in the time that the last record's names took to add, and releases the memory of an unusually
// large record.
func (s *nameSet) reset() {
	const usualNames, usualText = 1024, 256
	if len(s.names) > usualNames {
		s.names, s.table = nil, nil
		return
	}
	for i := range s.names {
		n := &s.names[i]
		s.table[n.slot] = 0
		if cap(n.text) > usualText {
			n.text = nil
		}
	}
	s.names = s.names[:0]
}
