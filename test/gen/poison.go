package gen

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
)

// Policy is the part of a table's configuration that decides whether some records are bad.
type Policy struct {
	Strict     bool // unknown_fields: dead_letter
	Keys       bool // keys: required
	Tombstones bool // tombstones: dead_letter
}

// A Poison is a kind of record that cannot become a row.
type Poison struct {
	// Code is the reason code of its dead letter.
	Code string
	// Applies reports whether the record is bad under a policy; if nil, it is bad under all of them.
	Applies func(Policy) bool
	// Large is set for records of megabytes that compress well: brokers accept them only with a raised limit.
	Large bool
	// spoil changes a plain record so that it is bad.
	spoil func(rec *Record)
}

// UnknownField is the code of records whose only fault is an unknown field. Once unknown fields are ignored, each
// becomes the row in its Order.
const UnknownField = "unknown_field"

// Poisons are all kinds of poison. Several kinds may have the same code.
var Poisons = []Poison{
	{Code: "no_value", spoil: whole(func(string) string { return "" })},
	{Code: "syntax", spoil: swap(`"quantity":`, `"quantity":0`)},
	{Code: "syntax", spoil: whole(func(string) string { return "<order/>" })},
	{Code: "truncated", spoil: whole(func(s string) string { return s[:len(s)-1] })},
	{Code: "truncated", spoil: whole(func(s string) string { return s[:20] })},
	{Code: "trailing_bytes", spoil: whole(func(s string) string { return s + s })},
	{Code: "invalid_utf8", spoil: swap(`"status":"`, "\"status\":\"\xff")},
	{Code: "lone_surrogate", spoil: swap(`"status":"`, `"status":"\ud83d`)},
	{Code: "duplicate_key", spoil: swap(`"quantity":`, `"quantity":1,"quantity":`)},
	{Code: "type_mismatch", spoil: swap(`"paid":`, `"paid":"yes"`)},
	{Code: "type_mismatch", spoil: whole(func(s string) string { return "[" + s + "]" })},
	{Code: "out_of_range", spoil: swap(`"quantity":`, `"quantity":21474836470`)},
	{Code: "out_of_range", spoil: swap(`"total":`, `"total":1e999,"unread":`)},
	{Code: "not_integral", spoil: swap(`"quantity":`, `"quantity":0.5,"unread":`)},
	{Code: "bad_timestamp", spoil: swap(`"created_at":"`, `"created_at":"yesterday, `)},
	{Code: "too_precise", spoil: swap(`"created_at":"`, `"created_at":"2026-01-01T00:00:00.1234567Z","unread":"`)},
	{Code: "required_missing", spoil: func(rec *Record) {
		rec.Value = append([]byte("{"), rec.Value[bytes.IndexByte(rec.Value, ',')+1:]...)
	}},
	{Code: UnknownField, Applies: func(p Policy) bool { return p.Strict }, spoil: swap(`"store_id":`, `"unheard_of":{"a":[1]},"store_id":`)},
	{Code: "null_key", Applies: func(p Policy) bool { return p.Keys }, spoil: func(rec *Record) { rec.Key = nil }},
	{Code: "tombstone", Applies: func(p Policy) bool { return p.Tombstones }, spoil: func(rec *Record) { rec.Value = nil }},
	{Code: "too_deep", Applies: func(p Policy) bool { return !p.Strict }, spoil: swap(`"store_id":`,
		`"unheard_of":`+strings.Repeat("[", 64)+strings.Repeat("]", 64)+`,"store_id":`)},
	{Code: "too_many_values", Large: true, spoil: swap(`"tags":[`, `"tags":[`+strings.Repeat("null,", 1_000_000)+"null],\"unread\":[")},
	{Code: "too_large", Large: true, spoil: whole(func(s string) string { return s + strings.Repeat(" ", 16<<20) })},
}

// applies reports whether the kind is bad under a policy.
func (p Poison) applies(to Policy) bool { return p.Applies == nil || p.Applies(to) }

// Spoil returns record number i of o, changed into this kind of poison.
func (p Poison) Spoil(o Orders, i int64) Record {
	rec := Record{Time: start.UnixMilli() + i, Code: p.Code}
	rec.plain(o.rand(i), i, max(o.Span, 1))
	if p.Code != UnknownField {
		rec.Order = Order{}
	}
	p.spoil(&rec)
	return rec
}

// poison returns record number i as a random kind of poison that is bad under the policy of o and that brokers accept
// by default.
func (o Orders) poison(r *rand.Rand, i int64) Record {
	kinds := slices.DeleteFunc(slices.Clone(Poisons), func(p Poison) bool {
		return p.Large || !p.applies(o.Policy) || o.Only != "" && p.Code != o.Only
	})
	return kinds[r.IntN(len(kinds))].Spoil(o, i)
}

// Raw returns what the dead letter of a bad record must contain: the reason code, and in hexadecimal 16 bytes of
// SHA-256 over key and value. Before each of the two the hash has its length, -1 for null.
func (rec *Record) Raw() string {
	h := sha256.New()
	for _, b := range [][]byte{rec.Key, rec.Value} {
		n := len(b)
		if b == nil {
			n = -1
		}
		_, _ = fmt.Fprintf(h, "%d:%s", n, b) // writing to a hash never fails
	}
	return rec.Code + " " + hex.EncodeToString(h.Sum(nil)[:16])
}

// whole returns a spoil function that replaces the whole value by the result of f.
func whole(f func(string) string) func(*Record) {
	return func(rec *Record) { rec.Value = []byte(f(string(rec.Value))) }
}

// swap returns a spoil function that replaces the text old in the value by now. It panics unless the value has old
// exactly once, as the value of every plain record does.
func swap(old, now string) func(*Record) {
	return func(rec *Record) {
		if bytes.Count(rec.Value, []byte(old)) != 1 {
			panic(fmt.Sprintf("%q is not once in %s", old, rec.Value))
		}
		rec.Value = bytes.Replace(rec.Value, []byte(old), []byte(now), 1)
	}
}
