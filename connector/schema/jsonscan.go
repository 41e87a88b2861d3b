package schema

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
)

// jsonScanner reads JSON value by value without a tree. It finds every error that would change what it reads; a decoder
// has checked the rest (UTF-8, names that come twice).
type jsonScanner struct {
	text []byte
	at   int
}

// maxJSONDepth bounds the recursion. It is beyond the depth that decoders accept.
const maxJSONDepth = 128

var errJSON = errors.New("invalid JSON")

func (s *jsonScanner) fail() error { return fmt.Errorf("%w at byte %d", errJSON, s.at) }

// peek skips white space and returns the next byte, 0 at the end.
func (s *jsonScanner) peek() byte {
	for ; s.at < len(s.text); s.at++ {
		switch c := s.text[s.at]; c {
		case ' ', '\n', '\r', '\t':
		default:
			return c
		}
	}
	return 0
}

// end returns an error if anything but white space follows.
func (s *jsonScanner) end() error {
	if s.peek(); s.at < len(s.text) {
		return s.fail()
	}
	return nil
}

// list reads an object or array: it calls item before each entry, until the closing byte.
func (s *jsonScanner) list(closing byte, depth int, item func() error) error {
	if depth > maxJSONDepth {
		return s.fail()
	}
	s.at++
	if s.peek() == closing {
		s.at++
		return nil
	}
	for {
		if err := item(); err != nil {
			return err
		}
		switch s.peek() {
		case ',':
			s.at++
		case closing:
			s.at++
			return nil
		default:
			return s.fail()
		}
	}
}

// elements reads the array at the position; element reads one value.
func (s *jsonScanner) elements(depth int, element func() error) error {
	return s.list(']', depth, element)
}

// fields reads the object at the position; value reads the value of the field with that name.
func (s *jsonScanner) fields(depth int, value func(name string) error) error {
	return s.list('}', depth, func() error {
		if s.peek() != '"' {
			return s.fail()
		}
		name, err := s.string()
		if err != nil {
			return err
		}
		if s.peek() != ':' {
			return s.fail()
		}
		s.at++
		return value(name)
	})
}

// skip passes the value at the position.
func (s *jsonScanner) skip(depth int) error {
	switch s.peek() {
	case '{':
		return s.fields(depth, func(string) error { return s.skip(depth + 1) })
	case '[':
		return s.elements(depth, func() error { return s.skip(depth + 1) })
	}
	_, err := s.scalar()
	return err
}

// skipString passes the string at the position and reports whether it has escapes.
func (s *jsonScanner) skipString() (escaped bool, err error) {
	for s.at++; s.at < len(s.text); s.at++ {
		switch s.text[s.at] {
		case '"':
			s.at++
			return escaped, nil
		case '\\':
			escaped = true
			s.at++
		}
	}
	return false, s.fail()
}

// string reads the string at the position.
func (s *jsonScanner) string() (text string, err error) {
	from := s.at
	escaped, err := s.skipString()
	if err != nil {
		return "", err
	}
	if !escaped {
		return string(s.text[from+1 : s.at-1]), nil
	}
	if err := json.Unmarshal(s.text[from:s.at], &text); err != nil {
		return "", fmt.Errorf("%w at byte %d", errJSON, from)
	}
	return text, nil
}

// scalar passes the string, number or literal at the position and returns its kind.
func (s *jsonScanner) scalar() (ValueKind, error) {
	if s.peek() == '"' {
		_, err := s.skipString()
		return StringValue, err
	}
	from := s.at
	for s.at < len(s.text) && !strings.ContainsRune(" \n\r\t,:]}[{\"", rune(s.text[s.at])) {
		s.at++
	}
	switch text := string(s.text[from:s.at]); text {
	case "null":
		return NullValue, nil
	case "true", "false":
		return BooleanValue, nil
	default:
		k, ok := NumberKind(text)
		if !ok {
			s.at = from
			return k, s.fail()
		}
		return k, nil
	}
}

// NumberKind returns the kind of a JSON number. It returns false if the text is none.
func NumberKind(text string) (ValueKind, bool) {
	digits, exp, exponent, ok := numberParts(text)
	if !ok {
		return NullValue, false
	}
	const maxDigits = 19 // of a long
	if exp >= 0 && len(digits)+exp <= maxDigits {
		v, err := strconv.ParseUint(digits+strings.Repeat("0", exp), 10, 64)
		largest := uint64(math.MaxInt64)
		if text[0] == '-' {
			largest++
		}
		switch {
		case err != nil || v > largest: // 19 digits beyond a long
		case exactDouble(v):
			return IntegerValue, true
		default:
			return LongValue, true
		}
	}
	if _, err := strconv.ParseFloat(text, 64); err != nil || exp >= 0 && !exponent {
		return HugeValue, true
	}
	return FractionValue, true
}

// exactDouble reports whether a double holds an integer exactly.
func exactDouble(v uint64) bool { return uint64(float64(v)) == v }

// numberParts splits a JSON number into its digits, without zeros at both ends, and the power of ten after them. A zero
// has the digit 0. exponent is true if the text has one. ok is false if the text is no JSON number.
func numberParts(text string) (digits string, exp int, exponent, ok bool) {
	text = strings.TrimPrefix(text, "-")
	if at := strings.IndexAny(text, "eE"); at >= 0 {
		power := text[at+1:]
		sign := 1
		if strings.HasPrefix(power, "-") {
			sign = -1
		}
		power = strings.TrimPrefix(strings.TrimPrefix(power, "-"), "+")
		if len(text[at+1:])-len(power) > 1 || !allDigits(power) {
			return "", 0, false, false
		}
		n, err := strconv.Atoi(power)
		if err != nil || n > math.MaxInt32 {
			n = math.MaxInt32
		}
		text, exp, exponent = text[:at], sign*n, true
	}
	whole, fraction, point := strings.Cut(text, ".")
	if !allDigits(whole) || point && !allDigits(fraction) || len(whole) > 1 && whole[0] == '0' {
		return "", 0, false, false
	}
	digits = strings.TrimLeft(whole+fraction, "0")
	all := len(digits)
	digits = strings.TrimRight(digits, "0")
	if digits == "" {
		return "0", 0, exponent, true
	}
	return digits, exp - len(fraction) + all - len(digits), exponent, true
}

func allDigits(text string) bool {
	return text != "" && strings.Trim(text, "0123456789") == ""
}
