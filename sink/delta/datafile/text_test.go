package datafile

import (
	"bytes"
	"strings"
	"testing"
	"unicode/utf16"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func units(s []byte) int { return len(utf16.Encode([]rune(string(s)))) }

func TestBoundsOfStrings(t *testing.T) {
	a31, a32, a33 := strings.Repeat("a", 31), strings.Repeat("a", 32), strings.Repeat("a", 33)
	top := "\U0010FFFF"
	for _, c := range []struct{ name, in, low, high string }{
		{"empty", "", "", ""},
		{"as long as the prefix", a32, a32, a32},
		{"one longer", a33, a32, a32 + "\x7f"},
		{"cut before a tilde", a32 + "~", a32, a32 + "\x7f"},
		{"cut before DEL: DEL again would not be greater", a32 + "\x7f", a32, a32 + top},
		{"cut before a two byte character", a32 + "é", a32, a32 + top},
		{"cut before the last character of the first plane", a32 + "\uffff", a32, a32 + top},
		{"a pair across the limit stays whole, and the string with it", a31 + "😀", a31 + "😀", a31 + "😀"},
		{"a pair across the limit stays whole", a31 + "😀b", a31 + "😀", a31 + "😀\x7f"},
		{"a pair ends at the limit", a31[1:] + "😀b", a31[1:] + "😀", a31[1:] + "😀\x7f"},
		{"cut before the greatest character: goes on behind it", a32 + top + "b", a32, a32 + top + "\x7f"},
		{"ends with the greatest characters", a32 + top + top, a32, a32 + top + top},
		{"too many greatest characters", a32 + strings.Repeat(top, 17) + "b", a32, "none"},
		{"sixteen are just short enough", a32 + strings.Repeat(top, 16) + "b", a32, a32 + strings.Repeat(top, 16) + "\x7f"},
		{"not UTF-8", "a\xff", "none", "none"},
		{"half a pair", "a\xed\xa0\x80", "none", "none"},
		{"not UTF-8 where it is cut", a32 + "\xff", a32, "none"},
		{"not UTF-8 behind the cut", a33 + "\xff", a32, a32 + "\x7f"},
		{"the replacement character is a character", "\ufffd", "\ufffd", "\ufffd"},
	} {
		t.Run(c.name, func(t *testing.T) {
			low, ok := lowerBound([]byte(c.in), 32)
			if !ok {
				low = []byte("none")
			}
			if string(low) != c.low {
				t.Errorf("lower bound %q, want %q", low, c.low)
			}
			high, ok := upperBound([]byte(c.in), 32)
			if !ok {
				high = []byte("none")
			}
			if string(high) != c.high {
				t.Errorf("upper bound %q, want %q", high, c.high)
			}
		})
	}
}

// TestBoundsHoldAllStrings: every string is within its bounds in the order of bytes, by which readers compare. The
// first cutAt bytes of a string give the same bounds as the whole string.
func TestBoundsHoldAllStrings(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runes := rapid.RuneFrom([]rune{'a', '~', 0x7F, 0x80, 'é', 0xFFFD, 0xFFFF, '😀', utf8.MaxRune})
		n := rapid.IntRange(1, 12).Draw(t, "prefix")
		s := []byte(rapid.StringOfN(runes, -1, 5*n, -1).Draw(t, "string"))
		if rapid.IntRange(0, 4).Draw(t, "broken") == 0 {
			s = append(s, rapid.SliceOfN(rapid.Byte(), 1, 4).Draw(t, "bytes")...)
		}
		kept := s[:min(len(s), cutAt(n))]
		before := bytes.Clone(s)
		low, lowOK := lowerBound(s, n)
		high, highOK := upperBound(s, n)
		if !bytes.Equal(s, before) {
			t.Fatal("a bound was written over its string")
		}
		if l, ok := lowerBound(kept, n); ok != lowOK || !bytes.Equal(l, low) {
			t.Fatalf("lower bound of what is kept: %q %t, want %q %t", l, ok, low, lowOK)
		}
		if h, ok := upperBound(kept, n); ok != highOK || !bytes.Equal(h, high) {
			t.Fatalf("upper bound of what is kept: %q %t, want %q %t", h, ok, high, highOK)
		}
		if lowOK && (bytes.Compare(low, s) > 0 || !bytes.HasPrefix(s, low) || units(low) > n+1 || !utf8.Valid(low)) {
			t.Fatalf("lower bound %q of %q", low, s)
		}
		if highOK && (bytes.Compare(high, s) < 0 || units(high) > 2*n+3 || !utf8.Valid(high)) {
			t.Fatalf("upper bound %q of %q", high, s)
		}
		if utf8.Valid(s) && !lowOK {
			t.Fatalf("no lower bound of %q", s)
		}
		if utf8.Valid(s) && units(s) <= n && (string(low) != string(s) || string(high) != string(s)) {
			t.Fatalf("bounds %q and %q of %q", low, high, s)
		}
	})
}
