//nolint:gosec // G115: Kafka's integers have fixed widths, and lengths are checked against the bytes that are there
package kafka

import (
	"encoding/binary"
	"errors"
	"math"

	"sluice/idempotency"
)

// errMalformed means that a response ends early or contradicts itself.
var errMalformed = errors.New("malformed response")

var be = binary.BigEndian

// encoder builds a request. With flexible set it writes the compact encodings of KIP-482, so that one function can
// build the versions before and after an API became flexible.
type encoder struct {
	b        []byte
	flexible bool
}

func (e *encoder) i8(v int8)                  { e.b = append(e.b, byte(v)) }
func (e *encoder) i16(v int16)                { e.b = be.AppendUint16(e.b, uint16(v)) }
func (e *encoder) i32(v int32)                { e.b = be.AppendUint32(e.b, uint32(v)) }
func (e *encoder) i64(v int64)                { e.b = be.AppendUint64(e.b, uint64(v)) }
func (e *encoder) uuid(v idempotency.TopicID) { e.b = append(e.b, v[:]...) }

// size writes a number of bytes or milliseconds as 32 bits, and the largest such number if n is larger.
func (e *encoder) size(n int) { e.i32(int32(min(n, math.MaxInt32))) }

// request completes the request: it writes the length of the other bytes into the first four.
func (e *encoder) request() []byte {
	be.PutUint32(e.b, uint32(len(e.b)-4))
	return e.b
}

func (e *encoder) bool(v bool) {
	if v {
		e.i8(1)
	} else {
		e.i8(0)
	}
}

// array starts an array of n elements, null if n is -1.
func (e *encoder) array(n int) {
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(n)+1)
	} else {
		e.i32(int32(n))
	}
}

func (e *encoder) str(s string) {
	if e.flexible {
		e.b = binary.AppendUvarint(e.b, uint64(len(s))+1)
	} else {
		e.i16(int16(len(s)))
	}
	e.b = append(e.b, s...)
}

// tags ends a structure that has no tagged fields.
func (e *encoder) tags() {
	if e.flexible {
		e.b = append(e.b, 0)
	}
}

// decoder reads a response. After an error, which err keeps, every call returns zero, so callers check err once after
// several fields.
type decoder struct {
	b        []byte
	flexible bool
	err      error
}

func (d *decoder) take(n int) []byte {
	if d.err != nil || n < 0 || n > len(d.b) {
		d.err = errMalformed
		return nil
	}
	v := d.b[:n:n]
	d.b = d.b[n:]
	return v
}

func (d *decoder) i8() int8 {
	if v := d.take(1); v != nil {
		return int8(v[0])
	}
	return 0
}

func (d *decoder) i16() int16 {
	if v := d.take(2); v != nil {
		return int16(be.Uint16(v))
	}
	return 0
}

func (d *decoder) i32() int32 {
	if v := d.take(4); v != nil {
		return int32(be.Uint32(v))
	}
	return 0
}

func (d *decoder) i64() int64 {
	if v := d.take(8); v != nil {
		return int64(be.Uint64(v))
	}
	return 0
}

func (d *decoder) uuid() (v idempotency.TopicID) {
	copy(v[:], d.take(len(v)))
	return v
}

func (d *decoder) uvarint() uint64 {
	v, n := binary.Uvarint(d.b)
	if d.err != nil || n <= 0 || v > 1<<32 {
		d.err = errMalformed
		return 0
	}
	d.b = d.b[n:]
	return v
}

// array returns an element count. Every element takes at least one byte, so a count beyond the remaining bytes is an
// error and never sizes an allocation.
func (d *decoder) array() int {
	var n int
	if d.flexible {
		n = int(d.uvarint()) - 1
	} else {
		n = int(d.i32())
	}
	if n > len(d.b) {
		d.err = errMalformed
	}
	if d.err != nil || n < 0 {
		return 0
	}
	return n
}

// str reads a string, null as "".
func (d *decoder) str() string {
	var n int
	if d.flexible {
		n = int(d.uvarint()) - 1
	} else {
		n = int(d.i16())
	}
	if n < 0 {
		return ""
	}
	return string(d.take(n))
}

// bytes reads a byte string, null as nil. The result aliases the response.
func (d *decoder) bytes() []byte {
	var n int
	if d.flexible {
		n = int(d.uvarint()) - 1
	} else {
		n = int(d.i32())
	}
	if n < 0 {
		return nil
	}
	return d.take(n)
}

// eachTag calls fn for each tagged field; fn may be nil.
func (d *decoder) eachTag(fn func(tag uint64, v *decoder)) {
	if !d.flexible {
		return
	}
	for n := d.uvarint(); n > 0 && d.err == nil; n-- {
		tag := d.uvarint()
		v := decoder{b: d.take(int(d.uvarint())), flexible: true}
		if fn != nil && d.err == nil {
			if fn(tag, &v); v.err != nil {
				d.err = v.err
			}
		}
	}
}

// tags skips tagged fields.
func (d *decoder) tags() { d.eachTag(nil) }
