package terminal

import (
	"bytes"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// shownText is what a screen shows. A goroutine may write while another one reads.
type shownText struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (s *shownText) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// String returns what was written since the last Reset.
func (s *shownText) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// Len returns the number of bytes.
func (s *shownText) Len() int { return len(s.String()) }

// Reset forgets what was written.
func (s *shownText) Reset() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.text.Reset()
}

// screenOf returns a screen on a terminal with some columns, and what is written to it.
func screenOf(width int) (*Screen, *shownText) {
	var b shownText
	return &Screen{w: &b, terminal: &terminal{width: width}}, &b
}

// TestProgress_Patience: nothing is shown for work of less than two seconds, then a bar, which Close removes.
func TestProgress_Patience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shown := screenOf(80)
		p := NewProgress(s, "reading orders")
		p.Set(500, 1000, "")
		time.Sleep(patience - time.Millisecond)
		synctest.Wait()
		if shown.Len() > 0 {
			t.Errorf("%q after less than two seconds", shown)
		}
		time.Sleep(2 * time.Millisecond)
		synctest.Wait()
		const half = "\rreading orders [###############---------------]  50% 500 of 1000"
		if shown.String() != half {
			t.Errorf("%q", shown)
		}
		p.Set(1000, 1000, "done\x1b[2J\n")
		time.Sleep(redraw)
		synctest.Wait()
		const whole = `reading orders [##############################] 100% 1000 of 1000, done\x1b[2J\n`
		if rest := strings.TrimPrefix(shown.String(), half+"\r"); rest != whole[:79] {
			t.Errorf("%q", rest)
		}
		shown.Reset()
		p.Close()
		if want := "\r" + strings.Repeat(" ", 79) + "\r"; shown.String() != want {
			t.Errorf("%q is left after Close", shown)
		}
	})
}

// TestProgress_Short: work that ends soon leaves no trace.
func TestProgress_Short(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, shown := screenOf(80)
		p := NewProgress(s, "reading")
		time.Sleep(time.Second)
		p.Close()
		time.Sleep(time.Hour)
		if shown.Len() > 0 {
			t.Errorf("%q", shown)
		}
	})
}

// TestProgress_Unknown: work of unknown size has a counter, or an ellipsis before it has done something.
func TestProgress_Unknown(t *testing.T) {
	for _, c := range []struct {
		done, of int64
		want     string
	}{{0, 0, "reading …"}, {7, 0, "reading 7"}, {9, 3, "100% 9 of 3"}, {-1, 3, "  0% -1 of 3"}} {
		p := &Progress{what: "reading", done: c.done, of: c.of}
		if got := p.line(); !strings.HasSuffix(got, c.want) {
			t.Errorf("%d of %d: %q", c.done, c.of, got)
		}
	}
}

// TestProgress_NoTerminal: a pipe and a file get nothing.
func TestProgress_NoTerminal(t *testing.T) {
	for _, w := range []io.Writer{io.Discard, NewScreen(&bytes.Buffer{}, nil)} {
		p := NewProgress(w, "reading")
		if p != nil {
			t.Errorf("a progress on %T", w)
		}
		p.Set(1, 2, "") // has no effect
		p.Close()
	}
}
