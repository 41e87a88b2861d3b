package decode

import (
	"errors"
	"slices"
	"testing"

	"sluice/classify"
	"sluice/reliability/deadletter"
)

// TestStrict: a field that the schema does not have refuses its record, at whatever depth, and is not named.
func TestStrict(t *testing.T) {
	s := everything(t)
	for _, c := range []struct {
		record string
		want   Error
	}{
		{`{"new":1}`, Error{UnknownField, "", 1}},
		{`{"i":1, "new":{"a":[` + "\x00" + `}`, Error{UnknownField, "", 8}},
		{`{"S":"x"}`, Error{UnknownField, "", 1}},
		{`{"\u0073\u0073":"x"}`, Error{UnknownField, "", 1}},
		{`{"o":{"r":1,"zz":2}}`, Error{UnknownField, "o", 12}},
		{`{"o":{"r":1,"deep":{"y":null}}}`, Error{UnknownField, "o.deep", 20}},
		{`{"items":[{"sku":"a"},{"sku":"b","z":1}]}`, Error{UnknownField, "items[1]", 33}},
		{`{"_kafka_offset":7}`, Error{UnknownField, "", 1}},
		{`{"i":1,"i":2,"new":1}`, Error{DuplicateKey, "i", 7}}, // the first that is wrong
	} {
		d := open(t, s, JSON{Strict: true}, maxDistinct)
		var e *Error
		if err := d.addValue([]byte(c.record)); !errors.As(err, &e) || *e != c.want || classify.Of(err) != classify.Poison || e.Code() != c.want.Reason.String() {
			t.Errorf("%s\n got %v\nwant %v", c.record, err, &c.want)
		}
		if d.Rows() != 0 || d.Ignored() != 0 {
			t.Errorf("%s: %d rows, %d fields ignored", c.record, d.Rows(), d.Ignored())
		}
		if err := d.addValue([]byte(`{"i":1,"\u0073":"x","o":{"r":1,"deep":{"x":1}}}`)); err != nil {
			t.Errorf("nothing unknown: %v", err)
		}
	}
}

// TestCodes: what an error says of itself is on the closed list, and the list says nothing twice.
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
