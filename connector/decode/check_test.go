package decode

import (
	"strings"
	"testing"
)

// TestChecker: a checker accepts exactly the records that a decoder without a column for their fields accepts, and gives
// the same reason for the others.
func TestChecker(t *testing.T) {
	c := NewChecker()
	d := open(t, parse(t, "no_record_has_this int"), JSON{}, maxDistinct)
	refused := 0
	for _, value := range []string{
		`{}`, ` {"a":1} `, `{"a":{"b":[1,null,"x"]}}`, "", " ", "null", "[]", "1", `"x"`, "{", `{"a"`, `{"a":1`, `{"a":1}}`, `{"a":1} x`, `{"a":1,"a":2}`,
		`{"a":{"b":1,"b":2}}`, `{"a":{"b":1},"c":{"b":2}}`, `{"a":01}`, `{"a":"` + "\xff" + `"}`, `{"a":"\ud800"}`, `{"a":tru}`, `{"a":1e999}`,
		strings.Repeat(`{"a":`, 64) + "1" + strings.Repeat("}", 64), strings.Repeat(`{"a":`, 65) + "1" + strings.Repeat("}", 65),
		`{"a":[` + strings.Repeat("1,", DefaultMaxValues) + `1]}`,
	} {
		why, ok := c.Check([]byte(value))
		err := d.addValue([]byte(value))
		if ok {
			if err != nil {
				t.Errorf("%.40q is accepted, and the decoder says %v", value, err)
			}
			continue
		}
		refused++
		checkError(t, err, why, "")
	}
	if refused < 15 {
		t.Errorf("%d values refused", refused)
	}
}
