package terminal

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/slogtest"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/internal/config"
)

// onTerminal returns a logger that writes to a terminal, and the buffer with the text that the terminal gets.
func onTerminal(t *testing.T, level string, how terminal) (*slog.Logger, *bytes.Buffer) {
	t.Helper()
	out := &bytes.Buffer{}
	s := NewScreen(out, nil)
	s.terminal = &how
	logger, err := NewLogger(config.Log{Level: level, Format: "auto"}, s)
	if err != nil {
		t.Fatal(err)
	}
	return logger, out
}

// attribute matches key=value in a line; key and value may each be quoted.
var attribute = regexp.MustCompile(`("(?:[^"\\]|\\.)*"|[^ ="]+)=("(?:[^"\\]|\\.)*"|[^ "]*)`)

// parseLine parses a line that was written to a terminal.
func parseLine(t *testing.T, line string) map[string]any {
	t.Helper()
	found := map[string]any{}
	if head := regexp.MustCompile(`^\d\d:\d\d:\d\d `).FindString(line); head != "" {
		found[slog.TimeKey], line = head, line[len(head):]
	}
	level, rest, _ := strings.Cut(line, " ")
	message, attrs, _ := strings.Cut(strings.TrimLeft(rest, " ")+"  ", "  ")
	found[slog.LevelKey], found[slog.MessageKey] = level, message
	for _, m := range attribute.FindAllStringSubmatch(attrs, -1) {
		at, path := found, strings.Split(unquoted(m[1]), ".")
		for _, group := range path[:len(path)-1] {
			if at[group] == nil {
				at[group] = map[string]any{}
			}
			at, _ = at[group].(map[string]any)
		}
		at[path[len(path)-1]] = unquoted(m[2])
	}
	return found
}

func unquoted(text string) string {
	if plain, err := strconv.Unquote(text); err == nil {
		return plain
	}
	return text
}

// TestTerminalLog_Conforms runs the checks that package slogtest has for handlers.
func TestTerminalLog_Conforms(t *testing.T) {
	var out *bytes.Buffer
	slogtest.Run(t, func(t *testing.T) slog.Handler {
		t.Helper()
		var logger *slog.Logger
		logger, out = onTerminal(t, "info", terminal{})
		return logger.Handler()
	}, func(t *testing.T) map[string]any {
		t.Helper()
		return parseLine(t, strings.TrimSuffix(out.String(), "\n"))
	})
}

func TestTerminalLog(t *testing.T) {
	at := time.Date(2026, 1, 31, 8, 0, 7, 0, time.UTC)
	line := func(logger *slog.Logger, level slog.Level, message string, attrs ...any) {
		t.Helper()
		if !logger.Enabled(t.Context(), level) {
			return
		}
		r := slog.NewRecord(at, level, message, 0)
		r.Add(attrs...)
		if err := logger.Handler().Handle(t.Context(), r); err != nil {
			t.Error(err)
		}
	}
	t.Run("Aligned", func(t *testing.T) {
		logger, out := onTerminal(t, "info", terminal{})
		line(logger, slog.LevelDebug, "hidden")
		line(logger, slog.LevelInfo, "committed", "table", "orders", "took", 1500*time.Millisecond)
		line(logger.With("table", "or ders"), slog.LevelWarn, "HOLD", "err", errors.New(`no "route"`))
		line(logger, slog.LevelInfo, "a message that is longer than the room", "n", 1)
		line(logger, slog.LevelError, "alone")
		want := "08:00:07 INFO  committed                table=orders took=1.5s\n" +
			"08:00:07 WARN  HOLD                     table=\"or ders\" err=\"no \\\"route\\\"\"\n" +
			"08:00:07 INFO  a message that is longer than the room  n=1\n" +
			"08:00:07 ERROR alone\n"
		if d := cmp.Diff(want, out.String()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
	})
	t.Run("Coloured", func(t *testing.T) {
		logger, out := onTerminal(t, "debug", terminal{colours: true})
		for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
			line(logger, level, "m", "k", "v")
		}
		for _, want := range []string{"\x1b[2mDEBUG\x1b[0m m", "\x1b[32mINFO \x1b[0m m", "\x1b[33mWARN \x1b[0m m", "\x1b[31mERROR\x1b[0m m", " \x1b[2mk=\x1b[0mv\n"} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("no %q in %q", want, out)
			}
		}
	})
	t.Run("Cut", func(t *testing.T) {
		logger, out := onTerminal(t, "info", terminal{})
		logger = logger.With("whole", strings.Repeat("ю", maxShown))
		line(logger, slog.LevelInfo, "m")
		if strings.Contains(out.String(), "…") {
			t.Errorf("cut: %s", out)
		}
		for range 2 {
			line(logger, slog.LevelInfo, "m", "err", strings.Repeat("a", 300)+"denied")
		}
		short := " err=" + strings.Repeat("a", shownHead) + "…(+186)…" + strings.Repeat("a", shownTail-len("denied")) + "denied\n"
		if n := strings.Count(out.String(), short); n != 2 {
			t.Errorf("%d lines have %q:\n%s", n, short, out)
		}
		if n := strings.Count(out.String(), cutLogHint); n != 1 {
			t.Errorf("%d hints:\n%s", n, out)
		}
	})
	t.Run("Hostile", func(t *testing.T) {
		logger, out := onTerminal(t, "info", terminal{})
		line(logger.With("with"+evil, evil).WithGroup("group"+evil), slog.LevelInfo, "message"+evil+"\nforged", "key"+evil, evil+"\nforged", "err", errors.New(evil+"\nforged"))
		if bad := steers(out.String()); bad != "" || strings.Count(out.String(), "\n") != 1 {
			t.Errorf("%s\n%s", bad, out)
		}
		out.Reset()
		for _, r := range strings.ToValidUTF8(evil, "") + "\n\t" { // one line for each character of evil
			line(logger, slog.LevelInfo, "m", "v"+string(r), string(r))
		}
		if bad := steers(out.String()); bad != "" || strings.Contains(out.String(), "\t") || strings.Count(out.String(), "\n") != strings.Count(out.String(), " m ") {
			t.Errorf("%s\n%s", bad, out)
		}
	})
	t.Run("SharedAttrs", func(t *testing.T) {
		logger, out := onTerminal(t, "info", terminal{})
		for n := range 64 { // 64 loggers, so that the slice of shared attributes has each possible amount of spare capacity
			base := logger.With("base", strings.Repeat("x", n+1))
			one, _ := base.With("n", "one"), base.With("n", "two")
			out.Reset()
			if line(one, slog.LevelInfo, "m"); !strings.HasSuffix(out.String(), " n=one\n") {
				t.Fatalf("%d: %s", n, out)
			}
		}
	})
}

// TestTerminalLog_Concurrent: loggers that write to the same terminal at once mix neither lines nor attributes.
func TestTerminalLog_Concurrent(t *testing.T) {
	logger, out := onTerminal(t, "info", terminal{})
	var all sync.WaitGroup
	shared := logger.With("a", 1)
	for i := range 8 {
		all.Go(func() {
			own := shared.With("own", i)
			for range 50 {
				own.InfoContext(context.Background(), "m", "i", i, "long", strings.Repeat("x", 200))
			}
		})
	}
	all.Wait()
	lines := 0
	for line := range strings.Lines(out.String()) {
		if line == cutLogHint {
			continue
		}
		found := parseLine(t, strings.TrimSuffix(line, "\n"))
		if lines++; found["own"] != found["i"] || found["a"] != "1" {
			t.Fatalf("%q", line)
		}
	}
	if lines != 400 || strings.Count(out.String(), cutLogHint) != 1 {
		t.Errorf("%d lines, %d hints", lines, strings.Count(out.String(), cutLogHint))
	}
}

// TestLogFormat: with the format json, a terminal gets JSON as well. With other formats, a terminal gets lines for
// people, and other writers get whole values without colours.
func TestLogFormat(t *testing.T) {
	long := strings.Repeat("x", 300)
	for _, c := range []struct {
		format   string
		terminal *terminal
		want     string
	}{
		{"auto", nil, `"msg":"m","v":"` + long + `"}`},
		{"json", nil, `"msg":"m"`},
		{"json", &terminal{colours: true}, `"msg":"m","v":"` + long + `"}`},
		{"text", nil, "level=INFO msg=m v=" + long},
		{"text", &terminal{colours: true}, "\x1b[32mINFO \x1b[0m m"},
		{"auto", &terminal{}, " INFO  m  "},
	} {
		var out bytes.Buffer
		s := NewScreen(&out, nil)
		s.terminal = c.terminal
		logger, err := NewLogger(config.Log{Level: "info", Format: c.format}, s)
		if err != nil {
			t.Fatal(err)
		}
		logger.Info("m", "v", long)
		if !strings.Contains(out.String(), c.want) {
			t.Errorf("%s on %+v: no %q in %q", c.format, c.terminal, c.want, &out)
		}
	}
}

func TestColours(t *testing.T) {
	for _, c := range []struct {
		env  map[string]string
		want bool
	}{
		{nil, true},
		{map[string]string{"TERM": "xterm-256color", "NO_COLOR": ""}, true},
		{map[string]string{"TERM": "dumb"}, false},
		{map[string]string{"NO_COLOR": "1"}, false},
	} {
		if got := colours(func(name string) (string, bool) { v, set := c.env[name]; return v, set }); got != c.want {
			t.Errorf("%v: %v", c.env, got)
		}
	}
}

func TestColumns(t *testing.T) {
	rows := "RECORD\tSTATE\tDETAIL\n" + "orders:0@1\tunresolved\t" + strings.Repeat("long ", 20) + "\n" + "orders:12@1234567\tvoid\tshort\n"
	printed := func(how *terminal) string {
		var out bytes.Buffer
		s := NewScreen(&out, nil)
		s.terminal = how
		c := NewColumns(s, false)
		_, _ = fmt.Fprint(c, rows) // Flush returns the error
		if err := c.Flush(); err != nil {
			t.Fatal(err)
		}
		return out.String()
	}
	whole := printed(nil)
	for name, how := range map[string]*terminal{"wide": {width: 200}, "unknown": {}} {
		if got := printed(how); got != whole || strings.Contains(got, "…") {
			t.Errorf("%s:\n%s", name, got)
		}
	}
	want := "RECORD             STATE       DETAIL\n" +
		"orders:0@1         unresolved  long long long long…\n" +
		"orders:12@1234567  void        short\n" +
		"values are cut to the width of the terminal: --output wide shows them whole\n"
	if d := cmp.Diff(want, printed(&terminal{width: 51})); d != "" {
		t.Errorf("(-want +got):\n%s", d)
	}
	for line := range strings.Lines(printed(&terminal{width: 1})) {
		if n := len([]rune(line)); n > 3*minColumn+2*columnGap+1 && line != cutTableHint+"\n" {
			t.Errorf("%d characters: %s", n, line)
		}
	}
}
