package terminal

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// evil has each kind of text that can control a terminal: an escape sequence, its C1 form, a bidirectional override, an
// invisible character, line separators, and bytes that are not UTF-8.
const evil = "\x1b[2J\u009b2J\u202e\u2066\u200b\u2028\x7f\r\x9b!"

// steers returns the first character of a text that could control a terminal, quoted with the text around it; "" if
// there is none.
func steers(text string) string {
	for i := 0; i < len(text); {
		r, n := utf8.DecodeRuneInString(text[i:])
		if r == utf8.RuneError && n == 1 || r != '\n' && r != '\t' && unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp) {
			return fmt.Sprintf("%q in %q", text[i:i+n], text[max(0, i-40):min(len(text), i+40)])
		}
		i += n
	}
	return ""
}
