package terminal

import (
	"fmt"
	"unicode"
	"unicode/utf8"
)

// evil steers a terminal in each way that there is: an escape sequence, its C1 form, a bidirectional override, an
// invisible character, separators of lines, and bytes that are no UTF-8.
const evil = "\x1b[2J\u009b2J\u202e\u2066\u200b\u2028\x7f\r\x9b!"

// steers returns the first character of a text that a terminal would take for more than text.
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
