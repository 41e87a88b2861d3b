// Package terminal writes for people: text without control sequences, columns that fit the terminal, and log lines.
package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

// Screen escapes text so that it cannot control a terminal or change what a person sees. It escapes control
// characters, bidirectional overrides and invisible characters as \x1b or \u202e, and bytes that are not UTF-8 as
// \x9b. It does not escape line feeds and tabs; [Printf] escapes those in values.
//
// JSON keeps its meaning: of these characters, it has only those that become \u202e, and only inside of strings, where
// \u202e means the same character. Any goroutine may write.
type Screen struct {
	w        io.Writer
	terminal *terminal // nil if w is not a terminal

	mu   sync.Mutex
	part []byte // the first bytes of a character whose other bytes come in the next write
}

// NewScreen returns a screen that writes to w. env returns the variables with the features of the terminal.
func NewScreen(w io.Writer, env func(string) (string, bool)) *Screen {
	return &Screen{w: w, terminal: terminalOf(w, env)}
}

// Write implements io.Writer.
func (s *Screen) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := b
	if len(s.part) > 0 {
		text = append(s.part, b...)
		s.part = nil
	}
	if n := unfinished(text); n > 0 {
		text, s.part = text[:len(text)-n], append([]byte(nil), text[len(text)-n:]...)
	}
	if _, err := s.w.Write(visible(text)); err != nil {
		return 0, err //nolint:wrapcheck // an io.Writer returns the errors of the wrapped writer
	}
	return len(b), nil
}

// Close writes the remaining bytes of an incomplete character. It does not close the wrapped writer.
func (s *Screen) Close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.part) == 0 {
		return nil
	}
	_, err := s.w.Write(visible(s.part))
	s.part = nil
	return err //nolint:wrapcheck // see Write
}

// writeEscaped writes text as it is. The caller must have escaped it, except for the sequences that set colours.
func (s *Screen) writeEscaped(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.w.Write(b)
	return err //nolint:wrapcheck // see Write
}

// unfinished returns the number of bytes at the end of b that are the start of an incomplete UTF-8 character.
func unfinished(b []byte) int {
	for n := 1; n < utf8.UTFMax && n <= len(b); n++ {
		if tail := b[len(b)-n:]; utf8.RuneStart(tail[0]) {
			if utf8.FullRune(tail) {
				return 0
			}
			return n
		}
	}
	return 0
}

// visible escapes the bytes and characters that could control a terminal. It returns b itself if there are none.
func visible(b []byte) []byte {
	i := plain(b)
	if i == len(b) {
		return b
	}
	out := append(make([]byte, 0, len(b)), b[:i]...)
	for i < len(b) {
		if n := plain(b[i:]); n > 0 {
			out = append(out, b[i:i+n]...)
			i += n
			continue
		}
		r, n := utf8.DecodeRune(b[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			out = fmt.Appendf(out, `\x%02x`, b[i])
		case r == '\n' || r == '\t' || !unicode.In(r, unicode.Cc, unicode.Cf, unicode.Zl, unicode.Zp):
			out = append(out, b[i:i+n]...)
		case r < ' ':
			out = fmt.Appendf(out, `\x%02x`, r)
		default:
			for _, unit := range utf16.Encode([]rune{r}) {
				out = fmt.Appendf(out, `\u%04x`, unit)
			}
		}
		i += n
	}
	return out
}

// plain returns the number of bytes at the start of b that are printable ASCII, line feeds or tabs. Most text is, and
// searching the tables of Unicode for each character takes longer than all else that a large output needs.
func plain(b []byte) int {
	for i, c := range b {
		if (c < ' ' || c > '~') && c != '\n' && c != '\t' {
			return i
		}
	}
	return len(b)
}

// Printf is [fmt.Fprintf] for text that people read. An argument cannot start a new line or column: a line feed in it
// becomes \n. Only errors may have several lines; Printf indents all but the first.
func Printf(w io.Writer, format string, args ...any) (int, error) {
	if false {
		_ = fmt.Sprintf(format, args...) // makes go vet check the arguments
	}
	values := make([]any, len(args))
	for i, a := range args {
		switch a.(type) {
		case bool, int, int32, int64, uint64, float64:
			values[i] = a
		default:
			values[i] = oneLine{a}
		}
	}
	return fmt.Fprintf(w, format, values...) //nolint:wrapcheck // it replaces fmt.Fprintf
}

// oneLine formats a value without line feeds, carriage returns and tabs.
type oneLine struct{ value any }

var (
	lineBreaks = strings.NewReplacer("\n", `\n`, "\r", `\r`, "\t", `\t`)
	indents    = strings.NewReplacer("\n", "\n  ", "\r", `\r`, "\t", `\t`)
)

// Format implements fmt.Formatter.
func (o oneLine) Format(s fmt.State, verb rune) {
	text := fmt.Sprintf(fmt.FormatString(s, verb), o.value)
	if _, ok := o.value.(error); ok {
		text = indents.Replace(text)
	} else {
		text = lineBreaks.Replace(text)
	}
	_, _ = s.Write(visible([]byte(text))) // a write to the buffer of fmt does not fail
}
