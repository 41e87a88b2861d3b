package terminal

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"
	"unicode"
	"unicode/utf8"

	"golang.org/x/term"
)

// terminal describes the terminal that a screen writes to.
type terminal struct {
	width   int // the number of columns; 0 if unknown
	colours bool
}

// terminalOf returns the terminal that w writes to, nil if w is not a terminal. The variable NO_COLOR
// (https://no-color.org) and TERM=dumb turn colours off.
func terminalOf(w io.Writer, env func(string) (string, bool)) *terminal {
	f, ok := w.(*os.File)
	if !ok || !Is(f) {
		return nil
	}
	width, _, err := term.GetSize(int(f.Fd()))
	if err != nil {
		width = 0
	}
	return &terminal{width: width, colours: colours(env)}
}

func colours(env func(string) (string, bool)) bool {
	refused, _ := env("NO_COLOR")
	kind, _ := env("TERM")
	return refused == "" && kind != "dumb"
}

// The parts of a line of the log on a terminal.
const (
	messageWidth = 24 // attributes begin at this column
	// A value longer than maxShown is shown without its middle, because the cause of an error is at its end.
	maxShown  = 120
	shownHead = 80
	shownTail = 40
)

const cutLogHint = "(… left out characters of long values; log.format: json writes values in full)\n"

// terminalLog is a [slog.Handler] that writes lines for people: time, level, message and key=value. It escapes the text
// itself, because the screen would also escape the colours.
type terminalLog struct {
	screen *Screen
	level  slog.Leveler
	prefix string       // the names of the open groups, each with a dot
	attrs  []byte       // the formatted attributes of WithAttrs
	cut    bool         // true if a value in attrs was cut
	hinted *atomic.Bool // true once the hint about cut values was written
}

func newTerminalLog(s *Screen, level slog.Leveler) *terminalLog {
	return &terminalLog{screen: s, level: level, hinted: &atomic.Bool{}}
}

// Enabled implements slog.Handler.
func (h *terminalLog) Enabled(_ context.Context, level slog.Level) bool {
	return level >= h.level.Level()
}

// WithGroup implements slog.Handler.
func (h *terminalLog) WithGroup(name string) slog.Handler {
	if name == "" {
		return h
	}
	inner := *h
	inner.prefix += name + "."
	return &inner
}

// WithAttrs implements slog.Handler.
func (h *terminalLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	inner := *h
	inner.attrs = append([]byte(nil), h.attrs...) // a copy, because other handlers may append to h.attrs
	for _, a := range attrs {
		inner.attrs = inner.attr(inner.attrs, inner.prefix, a)
	}
	return &inner
}

// Handle implements slog.Handler. Each line is one write.
func (h *terminalLog) Handle(_ context.Context, r slog.Record) error {
	line := *h // a copy, whose field cut is for this line alone
	var b []byte
	if !r.Time.IsZero() {
		b = r.Time.AppendFormat(b, "15:04:05 ")
	}
	b = h.paint(b, levelColour(r.Level), fmt.Sprintf("%-5s", r.Level))
	message := string(visible([]byte(lineBreaks.Replace(r.Message))))
	b = append(append(b, ' '), message...)
	var attrs []byte
	r.Attrs(func(a slog.Attr) bool {
		attrs = line.attr(attrs, h.prefix, a)
		return true
	})
	if len(h.attrs)+len(attrs) > 0 {
		b = append(b, strings.Repeat(" ", max(1, messageWidth-utf8.RuneCountInString(message)))...)
		b = append(append(b, h.attrs...), attrs...)
	}
	b = append(b, '\n')
	if line.cut && !h.hinted.Swap(true) {
		b = append(b, cutLogHint...)
	}
	return h.screen.writeEscaped(b)
}

// attr appends an attribute, or the attributes of a group, and sets h.cut if it cut a value.
func (h *terminalLog) attr(b []byte, prefix string, a slog.Attr) []byte {
	a.Value = a.Value.Resolve()
	if a.Value.Kind() == slog.KindGroup {
		if a.Key != "" {
			prefix += a.Key + "."
		}
		for _, inner := range a.Value.Group() {
			b = h.attr(b, prefix, inner)
		}
		return b
	}
	if a.Equal(slog.Attr{}) {
		return b
	}
	text, cut := shortened(textOf(a.Value))
	h.cut = h.cut || cut
	b = h.paint(append(b, ' '), faint, quotedIfOdd(prefix+a.Key)+"=")
	return append(b, quotedIfOdd(text)...)
}

// textOf returns a resolved value as text.
func textOf(v slog.Value) string {
	switch v.Kind() {
	case slog.KindTime:
		return v.Time().Format(time.RFC3339)
	case slog.KindAny:
		return fmt.Sprintf("%+v", v.Any())
	default:
		return v.String()
	}
}

// shortened replaces the middle of a long text by the number of left-out characters.
func shortened(text string) (short string, cut bool) {
	if len(text) <= maxShown { // compares bytes, of which there are at least as many as characters
		return text, false
	}
	all := []rune(text)
	if len(all) <= maxShown {
		return text, false
	}
	left := len(all) - shownHead - shownTail
	return string(all[:shownHead]) + "…(+" + strconv.Itoa(left) + ")…" + string(all[len(all)-shownTail:]), true
}

// quotedIfOdd quotes a text with spaces, quotes, equal signs or unprintable characters. So its end is clear, and it has
// no control sequences.
func quotedIfOdd(text string) string {
	odd := func(r rune) bool { return r == '"' || r == '=' || unicode.IsSpace(r) || !unicode.IsPrint(r) }
	if text == "" || !utf8.ValidString(text) || strings.ContainsFunc(text, odd) {
		return strconv.Quote(text)
	}
	return text
}

// Colours, as parameters of the escape sequence SGR of terminals.
const (
	faint  = "2"
	red    = "31"
	green  = "32"
	yellow = "33"
)

func levelColour(level slog.Level) string {
	switch {
	case level >= slog.LevelError:
		return red
	case level >= slog.LevelWarn:
		return yellow
	case level >= slog.LevelInfo:
		return green
	default:
		return faint
	}
}

// paint appends a text in a colour, if the terminal has colours.
func (h *terminalLog) paint(b []byte, colour, text string) []byte {
	if !h.screen.terminal.colours {
		return append(b, text...)
	}
	return append(append(append(b, "\x1b["+colour+"m"...), text...), "\x1b[0m"...)
}
