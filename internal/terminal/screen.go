// Package terminal writes for people: text that cannot steer a terminal, columns that fit it, and log lines.
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

// Screen writes text so that it cannot steer a terminal or make one show other text than there is: it escapes control
// characters, bidirectional overrides and invisible characters as \x1b or \u202e, and bytes that are no UTF-8 as \x9b. Line
// feeds and tabs pass; [Printf] escapes those of values. In JSON only strings have such characters, and only those that
// become \u202e, which means the same. Any goroutine may write.
type Screen struct {
	w        io.Writer
	terminal *terminal // nil if w is none

	mu   sync.Mutex
	part []byte // the beginning of a character whose end comes with the next write
}

// NewScreen returns a screen that writes to w. env has the variables that say what a terminal can do.
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
		return 0, err //nolint:wrapcheck // an io.Writer returns the errors of the one below
	}
	return len(b), nil
}

// Close writes what is left of a character that never ended. It does not close the writer below.
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

// writeEscaped writes text with colours of ours, in which everything else is escaped already.
func (s *Screen) writeEscaped(b []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, err := s.w.Write(b)
	return err //nolint:wrapcheck // see Write
}

// unfinished is the number of bytes at the end that begin a character of UTF-8 and do not end it.
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

// visible returns the text with everything escaped that a screen must not see.
func visible(b []byte) []byte {
	out := make([]byte, 0, len(b))
	for i := 0; i < len(b); {
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

// Printf is fmt.Fprintf for text that people read. No argument begins a line or a column of its own: a line feed in one
// becomes \n. Errors may have several lines; all but the first are indented.
func Printf(w io.Writer, format string, args ...any) (int, error) {
	if false {
		_ = fmt.Sprintf(format, args...) // lets go vet check the arguments
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
	return fmt.Fprintf(w, format, values...) //nolint:wrapcheck // it stands for fmt.Fprintf
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
	_, _ = s.Write(visible([]byte(text))) // fmt takes it into memory
}
