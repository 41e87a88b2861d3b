package decode

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

// ColumnOption says how records write the values of one column, where that differs from the rule for its type. The zero
// value is that rule. A table does not store it.
type ColumnOption struct {
	// Raw makes a string column take the text of any JSON value as it stands in the record.
	Raw bool
	// Epoch is the unit of timestamps that are numbers since 1970: "s", "ms", "us" or "ns". Without it they are texts.
	Epoch string
	// UTC accepts timestamps without a zone: they are in UTC.
	UTC bool
	// Fraction says what becomes of a timestamp that is finer than a microsecond.
	Fraction Fraction
	// Encoding is the text form of binary values.
	Encoding Encoding
}

// Fraction says what becomes of a timestamp that is finer than a microsecond.
type Fraction uint8

// The treatments of timestamps finer than a microsecond.
const (
	RefuseFraction   Fraction = iota // the record is refused
	RoundFraction                    // rounded to the nearest microsecond, a half to the later one
	TruncateFraction                 // rounded to the earlier microsecond
)

// Encoding is a text form of bytes.
type Encoding uint8

// The encodings. Base64 needs its padding, Base64URL may have it, and Hex takes letters of either case.
const (
	Base64    Encoding = iota // RFC 4648, section 4
	Base64URL                 // RFC 4648, section 5
	Hex                       // RFC 4648, section 8
)

// optionWords are the words of an option, with the kind of the columns that they are for. Of the words of a group an
// option has one at most.
var optionWords = [...]struct {
	word  string
	kind  schema.Kind
	group string
	set   ColumnOption
}{
	{"raw", schema.String, "raw", ColumnOption{Raw: true}},
	{"epoch_s", schema.Timestamp, "form", ColumnOption{Epoch: "s"}},
	{"epoch_ms", schema.Timestamp, "form", ColumnOption{Epoch: "ms"}},
	{"epoch_us", schema.Timestamp, "form", ColumnOption{Epoch: "us"}},
	{"epoch_ns", schema.Timestamp, "form", ColumnOption{Epoch: "ns"}},
	{"utc", schema.Timestamp, "form", ColumnOption{UTC: true}},
	{"round", schema.Timestamp, "fraction", ColumnOption{Fraction: RoundFraction}},
	{"truncate", schema.Timestamp, "fraction", ColumnOption{Fraction: TruncateFraction}},
	{"base64url", schema.Binary, "encoding", ColumnOption{Encoding: Base64URL}},
	{"hex", schema.Binary, "encoding", ColumnOption{Encoding: Hex}},
}

// OptionWords returns the words that an option can have.
func OptionWords() (words []string) {
	for _, w := range optionWords {
		words = append(words, w.word)
	}
	return words
}

// ParseColumnOption parses the words of an option, such as "utc round". Its errors say what to write.
func ParseColumnOption(text string) (ColumnOption, error) {
	var o ColumnOption
	taken := map[string]string{} // the word of each group
	var kind schema.Kind
	for word := range strings.FieldsSeq(text) {
		i := slices.Index(OptionWords(), word)
		if i < 0 {
			return o, fmt.Errorf("%q is unknown: write one or more of %s", word, strings.Join(OptionWords(), ", "))
		}
		w := optionWords[i]
		if other, twice := taken[w.group]; twice {
			return o, fmt.Errorf("%s and %s exclude each other: write one of them", other, word)
		}
		if kind != schema.Other && kind != w.kind {
			return o, fmt.Errorf("%s is for %s columns, the words before it are for %s columns: write words for one type", word, w.kind, kind)
		}
		taken[w.group], kind = word, w.kind
		o = o.with(w.set)
	}
	if kind == schema.Other {
		return o, fmt.Errorf("is empty: write one or more of %s", strings.Join(OptionWords(), ", "))
	}
	return o, nil
}

// with returns o with the values that set has.
func (o ColumnOption) with(set ColumnOption) ColumnOption {
	o.Raw, o.UTC, o.Epoch = o.Raw || set.Raw, o.UTC || set.UTC, cmp.Or(set.Epoch, o.Epoch)
	o.Fraction, o.Encoding = cmp.Or(set.Fraction, o.Fraction), cmp.Or(set.Encoding, o.Encoding)
	return o
}

// has reports whether o has the one value that set has.
func (o ColumnOption) has(set ColumnOption) bool {
	return o.Raw && set.Raw || o.UTC && set.UTC || o.Epoch != "" && o.Epoch == set.Epoch ||
		o.Fraction != RefuseFraction && o.Fraction == set.Fraction || o.Encoding != Base64 && o.Encoding == set.Encoding
}

// String returns the words of the option, as [ParseColumnOption] reads them.
func (o ColumnOption) String() string {
	var words []string
	for _, w := range optionWords {
		if o.has(w.set) {
			words = append(words, w.word)
		}
	}
	return strings.Join(words, " ")
}

// kind returns the kind of the columns that the option is for, Other for the zero value.
func (o ColumnOption) kind() schema.Kind {
	for _, w := range optionWords {
		if o.has(w.set) {
			return w.kind
		}
	}
	return schema.Other
}

// shift returns the power of ten that makes microseconds of the unit.
func (o ColumnOption) shift() int {
	return map[string]int{"s": 6, "ms": 3, "us": 0, "ns": -3}[o.Epoch]
}

// ColumnOptions are the options of columns by path, as [schema.JoinPath] writes it: the names from the column down to the
// field. The elements of arrays and the values of maps have the path of their column.
type ColumnOptions map[string]ColumnOption

// of returns the option for a column of a type. It is an error if the option of this path is for another type.
func (o ColumnOptions) of(at []string, t schema.Type) (ColumnOption, error) {
	if len(o) == 0 || t.Element != nil { // the option of an array or map is for its elements
		return ColumnOption{}, nil
	}
	path := schema.JoinPath(at)
	option, given := o[path]
	switch {
	case !given:
		return ColumnOption{}, nil
	case option.kind() == t.Kind:
		return option, nil
	}
	return ColumnOption{}, fmt.Errorf("column %s is %s, and its column_options, %s, are for a %s column", path, t, option, option.kind())
}

// Check returns the paths, sorted, for which the schema has no column. It is an error if an option is for another type
// than its column has.
func (o ColumnOptions) Check(s *schema.Schema) (unknown []string, err error) {
	found := map[string]bool{}
	var walk func(at []string, t schema.Type) error
	walk = func(at []string, t schema.Type) error {
		found[schema.JoinPath(at)] = true
		if _, err := o.of(at, t); err != nil {
			return err
		}
		if t.Element != nil {
			return walk(at, *t.Element)
		}
		for _, f := range t.Fields {
			if err := walk(append(slices.Clip(at), f.Name), f.Type); err != nil {
				return err
			}
		}
		return nil
	}
	for _, f := range s.Fields() {
		if err := walk([]string{f.Name}, f.Type); err != nil {
			return nil, err
		}
	}
	for path := range o {
		if !found[path] {
			unknown = append(unknown, path)
		}
	}
	slices.Sort(unknown)
	return unknown, nil
}

// misfit returns the hold for a table whose columns are of other types than their options.
func misfit(err error) error { return hold.New(hold.SchemaConflict, err.Error(), nil) }

// append decodes a text and appends its bytes to dst; ok is false if the text is not in this encoding. A text that has
// two encodings for the same bytes (unused bits, line ends) is refused.
func (e Encoding) append(dst, text []byte) (data []byte, ok bool) {
	if bytes.ContainsAny(text, "\r\n") { // package base64 ignores them
		return nil, false
	}
	var err error
	switch e {
	case Base64:
		data, err = base64.StdEncoding.Strict().AppendDecode(dst, text)
	case Base64URL:
		encoding := base64.RawURLEncoding
		if bytes.HasSuffix(text, []byte("=")) {
			encoding = base64.URLEncoding
		}
		data, err = encoding.Strict().AppendDecode(dst, text)
	case Hex:
		data, err = hex.AppendDecode(dst, text)
	}
	return data, err == nil
}
