// Package frame checks responses of brokers before kafka-go decodes them. kafka-go sizes its allocations by counts in
// a response, so four wrong bytes can end the process. [Check] walks a response in the same way as kafka-go will
// decode it and returns an error if a count or length contradicts the remaining bytes.
package frame

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// MaxSize bounds the responses that kafka-go decodes, in bytes. The largest legitimate ones carry the subscriptions
// of a group to its leader. Kafka stores these in one record of at most 1 MiB, unless its operator raises that.
const MaxSize = 8 << 20

// maxDecoded bounds the memory that kafka-go allocates for one response, in bytes, by the estimates in shapes.go.
// Small elements take up to 40 times their size on the wire.
const maxDecoded = 32 << 20

// Errors of [Check] and [Read].
var (
	// ErrMalformed means that a response ends early or contradicts itself.
	ErrMalformed = errors.New("malformed response")
	// ErrTooLarge means that a response would take more memory than allowed.
	ErrTooLarge = errors.New("response too large")
)

// Checks reports whether [Check] can check the responses of an API in a version.
func Checks(key, version int16) bool {
	s := shapeOf(key)
	return s.fields != nil && version >= 0 && version <= s.newest
}

// Check checks the body of a response, which begins after the correlation id. Bytes after the last field are
// accepted, as kafka-go does.
func Check(key, version int16, body []byte) error {
	if !Checks(key, version) {
		return fmt.Errorf("%w: there is no check for API %d v%d", ErrMalformed, key, version)
	}
	s := shapeOf(key)
	w := walker{b: body, version: version, flexible: s.flexible > 0 && version >= s.flexible}
	w.tags() // of the header; in all checked APIs the header is flexible if the body is
	w.structure(s.fields)
	return w.err
}

// Read reads n bytes. The buffer grows as bytes arrive, so a size without bytes allocates nothing.
func Read(r io.Reader, n int) ([]byte, error) {
	var b bytes.Buffer
	if _, err := io.CopyN(&b, r, int64(n)); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	return b.Bytes(), nil
}

// walker reads the fields of a response. After an error, which err keeps, it reads no more.
type walker struct {
	b        []byte
	version  int16
	flexible bool // true if the version has compact lengths and tagged fields (KIP-482)
	decoded  int  // how many bytes kafka-go will allocate for the fields so far, by the estimates
	err      error
}

func (w *walker) fail(format string, args ...any) {
	if w.err == nil {
		w.err = fmt.Errorf("%w: "+format, append([]any{ErrMalformed}, args...)...)
	}
}

// keep adds bytes to the estimate of what kafka-go will allocate. It fails if the estimate exceeds maxDecoded.
func (w *walker) keep(bytes int) {
	if w.decoded += bytes; w.decoded > maxDecoded && w.err == nil {
		w.err = fmt.Errorf("%w: it would take more than %d MiB", ErrTooLarge, maxDecoded>>20)
	}
}

func (w *walker) take(n int, what string) []byte {
	if w.err == nil && n > len(w.b) {
		w.fail("%s of %d bytes where %d are left", what, n, len(w.b))
	}
	if w.err != nil {
		return nil
	}
	v := w.b[:n]
	w.b = w.b[n:]
	return v
}

// structure walks fields and, in flexible versions, the tagged fields after them.
func (w *walker) structure(fields []field) {
	for i := range fields {
		f := &fields[i]
		if w.err != nil {
			return
		}
		if w.version >= f.since && w.version <= f.until {
			w.field(f)
		}
	}
	w.tags()
}

func (w *walker) field(f *field) {
	switch f.kind {
	case fixed:
		w.take(f.width, "a number")
	case text:
		w.keep(len(w.take(w.length(2), "a string")))
	case blob:
		w.keep(f.weight * len(w.take(w.length(4), "a byte string")))
	case nested:
		b := w.take(w.length(4), "a byte string")
		// An empty blob is allowed, and kafka-go decodes it as an empty structure.
		if w.keep(len(b)); w.err == nil && len(b) > 0 {
			inner := walker{b: b, version: w.version, decoded: w.decoded}
			inner.structure(f.of)
			w.decoded, w.err = inner.decoded, inner.err
		}
	case structs, scalars:
		for n := w.count(f); n > 0 && w.err == nil; n-- {
			if f.kind == structs {
				w.structure(f.of)
			} else {
				w.field(&f.of[0])
			}
		}
	}
}

// count returns the number of elements of an array. Every element takes at least one byte, so the remaining bytes
// bound the walk.
func (w *walker) count(f *field) int {
	n, null := w.size(4)
	switch {
	case null && f.required:
		w.fail("null instead of an array")
	case n > len(w.b):
		w.fail("an array of %d elements where %d bytes are left", n, len(w.b))
	}
	if w.err != nil {
		return 0
	}
	w.keep(n * f.weight)
	return n
}

// length returns the length of a string or byte string, 0 for null.
func (w *walker) length(width int) int {
	n, _ := w.size(width)
	return n
}

// size reads a count or length of width bytes, or a compact one. Null is 0.
func (w *walker) size(width int) (n int, null bool) {
	if w.flexible {
		n = int(w.uvarint()) - 1 //nolint:gosec // below 1<<32
	} else if b := w.take(width, "a length"); width == 2 && b != nil {
		n = int(int16(binary.BigEndian.Uint16(b))) //nolint:gosec // a signed number on the wire
	} else if b != nil {
		n = int(int32(binary.BigEndian.Uint32(b))) //nolint:gosec // a signed number on the wire
	}
	if n < -1 {
		w.fail("a length of %d", n)
	}
	return max(n, 0), n < 0
}

func (w *walker) uvarint() uint64 {
	if w.err != nil {
		return 0
	}
	v, n := binary.Uvarint(w.b)
	if n <= 0 || v >= 1<<32 {
		w.fail("a number of variable length that has no end, or more than 32 bits")
		return 0
	}
	w.b = w.b[n:]
	return v
}

// tags walks the tagged fields after a structure of a flexible version. kafka-go knows none of them and copies each.
func (w *walker) tags() {
	if !w.flexible {
		return
	}
	for n := w.uvarint(); n > 0 && w.err == nil; n-- {
		w.uvarint() // tag number
		size := w.uvarint()
		w.keep(len(w.take(int(size), "a tagged field"))) //nolint:gosec // below 1<<32
	}
}
