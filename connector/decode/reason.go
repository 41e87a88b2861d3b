package decode

import (
	"fmt"
	"strconv"
	"strings"

	"sluice/connector/schema"
	"sluice/reliability/deadletter"
)

// Reason is why a record cannot become a row. Only a new version of Sluice adds to the list, and the texts are stable:
// they are values of metric labels and parts of dead letters.
type Reason uint8

// The reasons. Each depends only on the record, the schema and the limits, never on a dependency.
const (
	NoValue         Reason = iota + 1 // no_value: the value is null or empty
	Syntax                            // syntax: not RFC 8259
	Truncated                         // truncated: the record ends inside its value
	TrailingBytes                     // trailing_bytes: bytes follow the value
	InvalidUTF8                       // invalid_utf8
	LoneSurrogate                     // lone_surrogate: \ud800 to \udfff without its other half
	DuplicateKey                      // duplicate_key: a name twice in one object, declared or not
	TypeMismatch                      // type_mismatch: valid JSON of another type than the column's
	OutOfRange                        // out_of_range: a number or the record's timestamp does not fit the column
	NotIntegral                       // not_integral: a fraction in an integer column
	BadTimestamp                      // bad_timestamp: not an RFC 3339 timestamp, or not a date YYYY-MM-DD
	TooPrecise                        // too_precise: a timestamp finer than microseconds, or a decimal with more digits after the point
	RequiredMissing                   // required_missing: null or no value in a NOT NULL column
	TooLarge                          // too_large: the value has more than JSON.MaxBytes bytes
	TooDeep                           // too_deep: values are nested deeper than JSON.MaxDepth
	TooManyValues                     // too_many_values: more values than JSON.MaxValues
	UnknownField                      // unknown_field: an undeclared field, and JSON.Strict is set
	BadBinary                         // bad_binary: not base64, or not the encoding that the column's option names
	BadPartition                      // bad_partition_value: a value that a partition column cannot have
)

var reasons = [...]string{
	NoValue: "no_value", Syntax: "syntax", Truncated: "truncated", TrailingBytes: "trailing_bytes",
	InvalidUTF8: "invalid_utf8", LoneSurrogate: "lone_surrogate", DuplicateKey: "duplicate_key",
	TypeMismatch: "type_mismatch", OutOfRange: "out_of_range", NotIntegral: "not_integral",
	BadTimestamp: "bad_timestamp", TooPrecise: "too_precise", RequiredMissing: "required_missing",
	TooLarge: "too_large", TooDeep: "too_deep", TooManyValues: "too_many_values",
	UnknownField: string(deadletter.UnknownField), BadBinary: "bad_binary", BadPartition: string(deadletter.BadPartition),
}

// String returns the stable text.
func (r Reason) String() string { return reasons[r] }

// Codes returns every code of a dead letter, each once: the reasons of this package and those of [deadletter.Reasons].
// Only a new version adds to the list; docs/reason-codes.md explains each code. [NotALetter] is not in it, since a
// record with that code holds its partition and becomes no dead letter.
func Codes() []deadletter.Reason {
	codes := deadletter.Reasons()
	for r := NoValue; int(r) < len(reasons); r++ {
		if r != UnknownField && r != BadPartition { // deadletter.Reasons has them
			codes = append(codes, deadletter.Reason(r.String()))
		}
	}
	return codes
}

// Error says why and where a decoder refused a record. Its class is Poison. It never holds a value of the record.
type Error struct {
	Reason Reason
	// Path is the column, such as "shipping.lat" or "items[3].sku"; "" is the record itself.
	Path   string
	Offset int // position of the failure in bytes from the start of the record's value
	// Expected is the type of the column, Found that of the JSON value; "" if they explain nothing.
	Expected, Found string
	// Field is the name of the undeclared field, at most maxName bytes, with UnknownField.
	Field string
}

// maxName bounds the names of undeclared fields, which are bytes of a record.
const maxName = 64

// Code returns the stable text of the reason, for dead letters and metrics.
func (e *Error) Code() string { return e.Reason.String() }

func (e *Error) Error() string {
	text := fmt.Sprintf("%s at byte %d", e.Reason, e.Offset)
	if e.Path != "" {
		text += " in column " + e.Path
	}
	switch {
	case e.Field != "":
		text += ": the field is " + strconv.Quote(e.Field)
	case e.Expected != "" && e.Found != "":
		text += ": expected " + e.Expected + ", found " + e.Found
	case e.Expected != "":
		text += ": expected " + e.Expected
	}
	return text
}

// explain sets Expected and Found if the reason is one that they explain, and otherwise leaves them empty. c is the
// column, nil outside of columns; at is the first byte of the value.
func (e *Error) explain(c *column, at byte) {
	switch e.Reason {
	case TypeMismatch:
		e.Expected, e.Found = "object", jsonType(at)
	case OutOfRange, NotIntegral, BadTimestamp, TooPrecise, BadBinary:
		if c == nil { // the failure is in the record's own timestamp
			return
		}
	default:
		return
	}
	if c != nil {
		e.Expected = c.expected()
	}
}

// expected returns the type of a column as DDL names it, and its option; for structs, maps and lists it is the JSON type.
func (c *column) expected() string {
	switch c.kind {
	case schema.Struct, schema.Map:
		return "object"
	case schema.Array:
		return "array"
	default:
		t := schema.Type{Kind: c.kind, Precision: c.decimal.precision, Scale: c.decimal.scale}
		return strings.TrimSpace(t.String() + " " + c.option.String())
	}
}

// jsonType returns the type of the JSON value that begins with a byte.
func jsonType(first byte) string {
	switch first {
	case '"':
		return "string"
	case '{':
		return "object"
	case '[':
		return "array"
	case 't', 'f':
		return "boolean"
	case 'n':
		return "null"
	}
	return "number"
}

// nameOf returns a copy of an undeclared field's name, shortened to maxName.
func nameOf(name []byte) string {
	if len(name) > maxName {
		name = name[:maxName]
	}
	return strings.ToValidUTF8(string(name), "")
}
