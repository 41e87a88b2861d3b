package datafile

import "unicode/utf8"

// lowerBound returns the longest prefix of s with at most `units` UTF-16 code units, or one more to avoid half a
// surrogate pair: Spark's minimum. ok is false if the prefix is not UTF-8.
func lowerBound(s []byte, units int) (bound []byte, ok bool) {
	n, _, ok := prefix(s, units)
	return s[:n], ok
}

// upperBound returns Spark's maximum for s. A string of at most `units` UTF-16 code units is its own bound. The bound
// of a longer one is a prefix plus one character that is greater than the first character cut off: U+007F if that is
// greater, because it takes one byte, else U+10FFFF. If the character cut off is U+10FFFF itself, the prefix is made
// longer by it. ok is false if that would need more than twice the units, or if s is not UTF-8.
//
// A prefix alone would be a bound below s, and readers would skip the row.
func upperBound(s []byte, units int) (bound []byte, ok bool) {
	n, used, ok := prefix(s, units)
	for ok && used <= 2*units {
		if n == len(s) {
			return s, true
		}
		r, size := utf8.DecodeRune(s[n:])
		switch {
		case r == utf8.RuneError && size == 1:
			return nil, false
		case r == utf8.MaxRune:
			n, used = n+size, used+2
		case r < 0x7F:
			return append(s[:n:n], 0x7F), true
		default:
			return utf8.AppendRune(s[:n:n], utf8.MaxRune), true
		}
	}
	return nil, false
}

// prefix returns the length of a prefix of s: n in bytes and used in UTF-16 code units. It is the shortest prefix of
// whole characters with at least `units` code units, or all of s if s has fewer. ok is false if the prefix is not
// UTF-8.
func prefix(s []byte, units int) (n, used int, ok bool) {
	for n < len(s) && used < units {
		r, size := utf8.DecodeRune(s[n:])
		if r == utf8.RuneError && size == 1 {
			return 0, 0, false
		}
		used++
		if r > 0xFFFF {
			used++
		}
		n += size
	}
	return n, used, true
}
