package terminal

import (
	"fmt"
	"io"
	"log/slog"
	"os"

	"sluice/internal/config"
)

// NewLogger returns a logger with the level and format of c that writes to w. On a terminal, text has colours, and its long
// values are cut.
func NewLogger(c config.Log, w io.Writer) (*slog.Logger, error) {
	logger, _, err := NewVarLogger(c, w)
	return logger, err
}

// NewVarLogger is [NewLogger], but also returns the level. The caller may change the level while the process runs.
func NewVarLogger(c config.Log, w io.Writer) (*slog.Logger, *slog.LevelVar, error) {
	level := &slog.LevelVar{}
	if err := level.UnmarshalText([]byte(c.Level)); err != nil {
		return nil, nil, fmt.Errorf("log.level: %w", err)
	}
	if s, ok := w.(*Screen); ok && s.terminal != nil && c.Format != "json" {
		return slog.New(newTerminalLog(s, level)), level, nil
	}
	o := &slog.HandlerOptions{Level: level, ReplaceAttr: readable}
	if c.Format == "text" {
		return slog.New(slog.NewTextHandler(w, o)), level, nil
	}
	return slog.New(slog.NewJSONHandler(w, o)), level, nil
}

// readable formats durations with units: 1.5s, not 1500000000.
func readable(_ []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	return a
}

// Is reports whether w is probably a terminal: a character device other than the null device.
func Is(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}
