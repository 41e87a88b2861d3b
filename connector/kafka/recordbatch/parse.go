package recordbatch

import (
	"encoding/binary"

	"sluice/connector"
)

var be = binary.BigEndian

// fields are the parts of a record. Offset and time are relative to those of the batch, and the slices share the
// batch's memory.
type fields struct {
	offset, time int64
	key, value   []byte
	headers      []byte // the headers, not decoded
	count        int    // the number of headers
	end          int    // the position after the record
}

// parse parses the record at p of a decompressed batch. It returns false if the record is malformed. Source:
// https://kafka.apache.org/documentation/#record.
func parse(b []byte, p int, f *fields) bool {
	n, p := varint(b, p)
	if p < 0 || n < 0 || n > int64(len(b)-p) {
		return false
	}
	f.end = p + int(n)
	b = b[:f.end]
	p++ // attributes, unused
	f.time, p = varint(b, p)
	f.offset, p = varint(b, p)
	f.key, p = span(b, p)
	f.value, p = span(b, p)
	n, p = varint(b, p)
	// A header takes at least two bytes, so a count beyond the remaining bytes is an error and never sizes an
	// allocation.
	if p < 0 || n < 0 || n > int64(f.end-p)/2 {
		return false
	}
	f.headers, f.count = b[p:], int(n)
	return n > 0 || p == f.end
}

// walkHeaders reports whether the headers of a record are well-formed. It does not keep them.
func walkHeaders(f *fields) bool {
	b, p := f.headers, 0
	for range f.count {
		var name []byte
		if name, p = span(b, p); p < 0 || name == nil {
			return false
		}
		if _, p = span(b, p); p < 0 {
			return false
		}
	}
	return p == len(b)
}

// appendHeaders appends to dst the headers of a record that walkHeaders accepted, and returns dst and names. names are
// the header names of the record before: most records have the same names, and then they share the strings.
func appendHeaders(dst []connector.Header, f *fields, names []string) ([]connector.Header, []string) {
	b, p := f.headers, 0
	for i := range f.count {
		var name, value []byte
		name, p = span(b, p)
		value, p = span(b, p)
		if i == len(names) {
			names = append(names, string(name))
		} else if names[i] != string(name) {
			names[i] = string(name)
		}
		dst = append(dst, connector.Header{Key: names[i], Value: value})
	}
	return dst, names
}

// varint reads a zigzag varint at position p, and returns it with the position after it, which is -1 after an error.
// For p = -1 it returns -1 again, so one check after several reads is enough.
func varint(b []byte, p int) (int64, int) {
	if uint(p) >= uint(len(b)) {
		return 0, -1
	}
	c := b[p]
	if c < 0x80 {
		return int64(c>>1) ^ -int64(c&1), p + 1
	}
	if p+1 < len(b) && b[p+1] < 0x80 {
		u := uint32(c&0x7f) | uint32(b[p+1])<<7
		return int64(u>>1) ^ -int64(u&1), p + 2
	}
	u, n := uvarint(b[p:])
	if n < 0 {
		return 0, -1
	}
	return int64(u>>1) ^ -int64(u&1), p + n
}

// uvarint reads a varint at the start of b and returns its length, -1 on an error.
func uvarint(b []byte) (u uint64, n int) {
	if u, n = binary.Uvarint(b); n <= 0 {
		return 0, -1
	}
	return u, n
}

// span reads a length and that many bytes at position p. It returns the bytes, nil for a negative length, and the
// position after them, which is -1 after an error.
func span(b []byte, p int) ([]byte, int) {
	n, p := varint(b, p)
	if p < 0 || n > int64(len(b)-p) {
		return nil, -1
	}
	if n < 0 {
		return nil, p
	}
	q := p + int(n)
	return b[p:q:q], q
}
