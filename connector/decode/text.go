package decode

import (
	"math/bits"
	"slices"
	"unicode/utf16"
	"unicode/utf8"
)

// plainEnd returns the position of the first byte from p on that ends plain ASCII text: a quote, a backslash, a control
// character or a byte that is not ASCII.
func plainEnd(b []byte, p int) int {
	for {
		if m := special(load64(b, p)); m != 0 {
			return p + bits.TrailingZeros64(m)>>3
		}
		p += 8
	}
}

// space skips white space at p.
func space(b []byte, p int) int {
	for {
		switch b[p] {
		case ' ', '\n', '\r', '\t':
			p++
			for load64(b, p) == ones*' ' { // records that are written with indents have many spaces here
				p += 8
			}
		default:
			return p
		}
	}
}

// text reads the string whose opening quote is at p. Its text is buf[start:end], and next the position after the
// string, negative after an error. buf is b or, for a string with escapes, d.scratch; both are padded.
func (d *jsonDecoder) text(b []byte, p int) (buf []byte, start, end, next int) {
	start = p + 1
	plain := plainEnd(b, start)
	end = plain
	if b[end] == '"' {
		return b, start, end, end + 1
	}
	for {
		m := stops(load64(b, end))
		if m != 0 {
			end += bits.TrailingZeros64(m) >> 3
			break
		}
		end += 8
	}
	switch b[end] {
	case '"':
		if !utf8.Valid(b[plain:end]) {
			return b, 0, 0, d.fail(InvalidUTF8, start)
		}
		return b, start, end, end + 1
	case '\\':
		d.scratch, next = d.unescape(d.scratch[:0], b, start, end)
		n := len(d.scratch)
		d.scratch = append(d.scratch, zeroPadding[:]...)
		return d.scratch, 0, n, next
	}
	return b, 0, 0, d.unexpected(end)
}

// unescape appends the string that starts at start and has its first backslash at p to dst. next is the position after
// the string, negative after an error.
func (d *jsonDecoder) unescape(dst, b []byte, start, p int) (text []byte, next int) {
	// Unescaping never makes text longer, and the padding of b makes room for whole words.
	dst = slices.Grow(dst, len(b)-start)
	from := len(dst)
	out := dst[:cap(dst)]
	n := from + copy(out[from:], b[start:p])
	seen := uint64(highs) // OR of all bytes of the text: shows whether one is not ASCII
	if plainEnd(b, start) == p {
		seen = 0 // the rest is examined below
	}
	for {
		w := load64(b, p)
		store64(out, n, w)
		seen |= w
		m := stops(w)
		if m == 0 {
			n, p = n+8, p+8
			continue
		}
		k := bits.TrailingZeros64(m) >> 3
		n, p = n+k, p+k
		if b[p] != '\\' {
			break
		}
		if b[p+1] == 'u' {
			r, end := d.unicodeEscape(b, p)
			if end < 0 {
				return dst, end
			}
			n += utf8.EncodeRune(out[n:], r)
			p = end
			continue
		}
		c := escapes[b[p+1]]
		if c == 0 {
			return dst, d.unexpected(p + 1)
		}
		out[n] = c
		n, p = n+1, p+2
	}
	if b[p] != '"' {
		return dst, d.unexpected(p)
	}
	if seen&highs != 0 && !utf8.Valid(out[from:n]) {
		return dst, d.fail(InvalidUTF8, start)
	}
	return out[:n], p + 1
}

// escapes maps the character after a backslash to the character that the escape means, 0 if there is no such escape.
var escapes = [256]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// unicodeEscape reads the escape \uXXXX at p, or two of them that form a surrogate pair.
func (d *jsonDecoder) unicodeEscape(b []byte, p int) (r rune, end int) {
	r, end = hex4(b, p+2)
	if r < 0 {
		return 0, d.unexpected(end)
	}
	if !utf16.IsSurrogate(r) {
		return r, end
	}
	if b[end] == '\\' && b[end+1] == 'u' {
		low, next := hex4(b, end+2)
		if r = utf16.DecodeRune(r, low); r != utf8.RuneError {
			return r, next
		}
	}
	return 0, d.fail(LoneSurrogate, p)
}

// hex4 returns the number of the four hexadecimal digits at p and their end, or -1 and the first invalid character.
func hex4(b []byte, p int) (rune, int) {
	r := rune(0)
	for i, c := range b[p : p+4] {
		switch {
		case c-'0' <= 9:
			c -= '0'
		case c|0x20 >= 'a' && c|0x20 <= 'f':
			c = c | 0x20 - 'a' + 10
		default:
			return -1, p + i
		}
		r = r<<4 | rune(c)
	}
	return r, p + 4
}

// literal returns the position after the word at p, or the negative result of unexpected if another text stands there.
func (d *jsonDecoder) literal(b []byte, p int, word string) int {
	for i := range len(word) {
		if b[p+i] != word[i] {
			return d.unexpected(p + i)
		}
	}
	return p + len(word)
}
