package decode

import (
	"errors"
	"slices"
	"testing"

	"sluice/classify"
	"sluice/reliability/deadletter"
)

// TestStrict: in strict mode, a record with an undeclared field at any depth is refused. The error names the field, and
// no column.
func TestStrict(t *testing.T) {
	s := everything(t)
	for _, c := range []struct {
		record string
		want   Error
	}{
		{`{"new":1}`, Error{Reason: UnknownField, Path: "", Offset: 1, Field: "new"}},
		{`{"i":1, "new":{"a":[` + "\x00" + `}`, Error{Reason: UnknownField, Path: "", Offset: 8, Field: "new"}},
		{`{"S":"x"}`, Error{Reason: UnknownField, Path: "", Offset: 1, Field: "S"}},
		{`{"\u0073\u0073":"x"}`, Error{Reason: UnknownField, Path: "", Offset: 1, Field: "ss"}},
		{`{"o":{"r":1,"zz":2}}`, Error{Reason: UnknownField, Path: "o", Offset: 12, Field: "zz"}},
		{`{"o":{"r":1,"deep":{"y":null}}}`, Error{Reason: UnknownField, Path: "o.deep", Offset: 20, Field: "y"}},
		{`{"items":[{"sku":"a"},{"sku":"b","z":1}]}`, Error{Reason: UnknownField, Path: "items[1]", Offset: 33, Field: "z"}},
		{`{"_kafka_offset":7}`, Error{Reason: UnknownField, Path: "", Offset: 1, Field: "_kafka_offset"}},
		{`{"i":1,"i":2,"new":1}`, Error{Reason: DuplicateKey, Path: "i", Offset: 7}}, // the first of two mistakes decides
	} {
		d := open(t, s, JSON{Strict: true}, maxDistinct)
		var e *Error
		if err := d.addValue([]byte(c.record)); !errors.As(err, &e) || *e != c.want || classify.Of(err) != classify.Poison || e.Code() != c.want.Reason.String() {
			t.Errorf("%s\n got %v\nwant %v", c.record, err, &c.want)
		}
		if d.Rows() != 0 || d.Ignored().Fields != 0 {
			t.Errorf("%s: %d rows, %d fields ignored", c.record, d.Rows(), d.Ignored().Fields)
		}
		if err := d.addValue([]byte(`{"i":1,"\u0073":"x","o":{"r":1,"deep":{"x":1}}}`)); err != nil {
			t.Errorf("nothing unknown: %v", err)
		}
	}
}

// TestCodes: Codes lists each reason of this package and of package deadletter once.
func TestCodes(t *testing.T) {
	codes := Codes()
	for r := NoValue; r <= UnknownField; r++ {
		if code := (&Error{Reason: r}).Code(); !slices.Contains(codes, deadletter.Reason(code)) {
			t.Errorf("%q is not listed", code)
		}
	}
	for _, r := range deadletter.Reasons() {
		if !slices.Contains(codes, r) {
			t.Errorf("%q is not listed", r)
		}
	}
	slices.Sort(codes)
	if n := len(codes); n != len(slices.Compact(codes)) {
		t.Errorf("a code comes twice: %v", codes)
	}
}
