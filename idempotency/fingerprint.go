package idempotency

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"math"
)

// Fingerprint is the first half of the SHA-256 of an identity. Zero means that the record has no identity, so it is
// never a duplicate. A Fingerprint can be a map key.
type Fingerprint [16]byte

// IsZero reports whether the record has no identity.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// String renders the fingerprint as 32 hexadecimal digits, and zero as "".
func (f Fingerprint) String() string {
	if f.IsZero() {
		return ""
	}
	return hex.EncodeToString(f[:])
}

// ParseFingerprint reads what [Fingerprint.String] wrote.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	if s == "" {
		return f, nil
	}
	if len(s) != 2*len(f) {
		return f, errors.New("not a fingerprint: 32 hexadecimal digits were expected")
	}
	if _, err := hex.Decode(f[:], []byte(s)); err != nil {
		return Fingerprint{}, errors.New("not a fingerprint: 32 hexadecimal digits were expected")
	}
	return f, nil
}

// domain makes these hashes differ from those of other programs; its number changes if the encoding of hashed values
// ever changes.
const domain = "sluice identity 1\x00"

// Tags of the types of hashed values: values of two types never have the same fingerprint. Integers of all widths share
// one tag, so that the fingerprints of a column stay the same when it is widened.
const (
	tagInteger byte = 'i'
	tagFloat   byte = 'f'
	tagBoolean byte = 'b'
	tagText    byte = 's'
	tagDate    byte = 'd'
	tagTime    byte = 't'
	tagHeader  byte = 'h'
	tagContent byte = 'c'
)

// Hasher computes the fingerprints of one identity. The hash includes the kind of the identity, its name, and the type
// of the value. A Hasher is for one goroutine.
//
// An empty text or header is not an identity: records whose producer left the id empty are not duplicates of one
// another.
type Hasher struct {
	prefix []byte
	buffer []byte
	hash   hash.Hash
}

// NewHasher returns the hasher of an identity.
func NewHasher(id Identity) *Hasher {
	p := append([]byte(domain), byte(id.By))
	p = binary.AppendUvarint(p, uint64(len(id.Name)))
	return &Hasher{prefix: append(p, id.Name...), hash: sha256.New()}
}

// Integer is the fingerprint of an integer of any width.
func (h *Hasher) Integer(v int64) Fingerprint { return h.word(tagInteger, uint64(v)) } //nolint:gosec // its bits

// Boolean is the fingerprint of a truth value.
func (h *Hasher) Boolean(v bool) Fingerprint {
	if v {
		return h.word(tagBoolean, 1)
	}
	return h.word(tagBoolean, 0)
}

// Float is the fingerprint of a floating-point number: 0 and -0 are the same, and so are all NaNs.
func (h *Hasher) Float(v float64) Fingerprint {
	switch {
	case v == 0:
		v = 0
	case math.IsNaN(v):
		v = math.NaN()
	}
	return h.word(tagFloat, math.Float64bits(v))
}

// Date is the fingerprint of a date, in days since 1970-01-01.
func (h *Hasher) Date(days int32) Fingerprint { return h.word(tagDate, uint64(days)) } //nolint:gosec // its bits

// Time is the fingerprint of a point in time, in microseconds since 1970-01-01T00:00:00Z.
func (h *Hasher) Time(micros int64) Fingerprint { return h.word(tagTime, uint64(micros)) } //nolint:gosec // its bits

// Text returns the fingerprint of a text, zero for the empty text, which is not an identity.
func (h *Hasher) Text(v []byte) Fingerprint {
	if len(v) == 0 {
		return Fingerprint{}
	}
	return h.bytes(tagText, v)
}

// Header returns the fingerprint of a header's value, zero for a null or empty value, which is not an identity.
func (h *Hasher) Header(v []byte) Fingerprint {
	if len(v) == 0 {
		return Fingerprint{}
	}
	return h.bytes(tagHeader, v)
}

// Content is the fingerprint of a record's key and value. A null key is not an empty one.
func (h *Hasher) Content(key, value []byte) Fingerprint {
	h.start(tagContent)
	if key == nil {
		h.buffer = append(h.buffer, 0)
	} else {
		h.buffer = binary.AppendUvarint(append(h.buffer, 1), uint64(len(key)))
		h.buffer = append(h.buffer, key...)
	}
	return h.sum(value)
}

func (h *Hasher) start(tag byte) {
	h.buffer = append(append(h.buffer[:0], h.prefix...), tag)
}

func (h *Hasher) word(tag byte, v uint64) Fingerprint {
	h.start(tag)
	h.buffer = binary.BigEndian.AppendUint64(h.buffer, v)
	return h.sum(nil)
}

func (h *Hasher) bytes(tag byte, v []byte) Fingerprint {
	h.start(tag)
	return h.sum(v)
}

// sum hashes the buffer followed by rest. rest needs no length prefix because it comes last.
func (h *Hasher) sum(rest []byte) Fingerprint {
	h.hash.Reset()
	h.hash.Write(h.buffer) // a hash never returns an error
	h.hash.Write(rest)
	h.buffer = h.hash.Sum(h.buffer[:0])
	f := Fingerprint(h.buffer[:16])
	if f.IsZero() {
		f[15] = 1 // a fingerprint of zeros would mean none
	}
	return f
}
