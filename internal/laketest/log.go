package laketest

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
)

// Log is a JSON log in memory. Any goroutine may read it while others write.
type Log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements [io.Writer].
func (l *Log) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// String returns the text so far.
func (l *Log) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// Line is one line of a JSON log.
type Line map[string]any

// Lines returns the parsed lines whose attribute msg equals msg. A line that is not JSON fails the test.
func (l *Log) Lines(t *testing.T, msg string) (all []Line) {
	t.Helper()
	for text := range strings.Lines(l.String()) {
		var at Line
		if err := json.Unmarshal([]byte(text), &at); err != nil {
			t.Fatalf("%v: %s", err, text)
		}
		if at["msg"] == msg {
			all = append(all, at)
		}
	}
	return all
}

// NewLog returns a logger of level debug, and its log.
func NewLog() (*slog.Logger, *Log) {
	l := &Log{}
	return slog.New(slog.NewJSONHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug})), l
}
