package decode

import (
	"fmt"

	"sluice/reliability/deadletter"
)

// Reason says why a record cannot become a row. The list is closed and the texts are stable: they become labels of
// metrics and parts of dead letters.
type Reason uint8

// The reasons. Each is about the record alone, never about a dependency.
const (
	NoValue         Reason = iota + 1 // no_value: the value is null or empty
	Syntax                            // syntax: not RFC 8259
	Truncated                         // truncated: the record ends inside of its value
	TrailingBytes                     // trailing_bytes: something follows the value
	InvalidUTF8                       // invalid_utf8
	LoneSurrogate                     // lone_surrogate: \ud800 to \udfff without its other half
	DuplicateKey                      // duplicate_key: a name twice in one object, declared or not
	TypeMismatch                      // type_mismatch: valid JSON of another type than the column's
	OutOfRange                        // out_of_range: a number or the record's timestamp does not fit the column
	NotIntegral                       // not_integral: fraction or exponent in an integer column
	BadTimestamp                      // bad_timestamp: no RFC 3339 timestamp, or no date YYYY-MM-DD
	TooPrecise                        // too_precise: a timestamp finer than microseconds
	RequiredMissing                   // required_missing: a NOT NULL column without a value, or with null
	TooLarge                          // too_large: JSON.MaxBytes
	TooDeep                           // too_deep: JSON.MaxDepth
	TooManyValues                     // too_many_values: JSON.MaxValues
	UnknownField                      // unknown_field: the schema does not have it, and JSON.Strict is set
)

var reasons = [...]string{
	NoValue: "no_value", Syntax: "syntax", Truncated: "truncated", TrailingBytes: "trailing_bytes",
	InvalidUTF8: "invalid_utf8", LoneSurrogate: "lone_surrogate", DuplicateKey: "duplicate_key",
	TypeMismatch: "type_mismatch", OutOfRange: "out_of_range", NotIntegral: "not_integral",
	BadTimestamp: "bad_timestamp", TooPrecise: "too_precise", RequiredMissing: "required_missing",
	TooLarge: "too_large", TooDeep: "too_deep", TooManyValues: "too_many_values",
	UnknownField: string(deadletter.UnknownField),
}

// String returns the stable text.
func (r Reason) String() string { return reasons[r] }

// Codes returns every code of why a record cannot become a row: the reasons of this package and those of
// [deadletter.Reasons], each once. The list is closed; docs/reason-codes.md explains each of them.
func Codes() []deadletter.Reason {
	codes := deadletter.Reasons()
	for r := NoValue; r < UnknownField; r++ {
		codes = append(codes, deadletter.Reason(r.String()))
	}
	return codes
}

// Error says why and where a record was refused. Its class is Poison. It never holds bytes of the record.
type Error struct {
	Reason Reason
	// Path is the column, as in "shipping.lat" or "items[3].sku"; "" is the record itself. Fields that the schema does
	// not have are never named: their names are bytes of the record.
	Path   string
	Offset int // in bytes from the start of the record's value
}

// Code returns the stable text of the reason, for letters and metrics.
func (e *Error) Code() string { return e.Reason.String() }

func (e *Error) Error() string {
	if e.Path == "" {
		return fmt.Sprintf("json: %s at byte %d", e.Reason, e.Offset)
	}
	return fmt.Sprintf("json: %s at byte %d in column %s", e.Reason, e.Offset, e.Path)
}
