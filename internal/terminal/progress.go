package terminal

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

const (
	// patience is how long work may take before its progress is shown.
	patience = 2 * time.Second
	// redraw is the time between two changes of what is shown.
	redraw   = 200 * time.Millisecond
	barWidth = 30
)

// Progress shows on one line of a terminal how far work is, once the work has taken longer than two seconds. It shows
// nothing elsewhere. Any goroutine may call its methods; those of a nil Progress do nothing.
type Progress struct {
	screen *Screen
	what   string
	stop   chan struct{}
	ended  sync.WaitGroup

	mu       sync.Mutex
	done, of int64
	note     string
	shown    int // number of characters on the line
}

// NewProgress returns the progress of work, and shows it on w, if w is a screen on a terminal. what names the work in a
// few words. The caller calls Close when the work ends, before anything else is written to w.
func NewProgress(w io.Writer, what string) *Progress {
	s, ok := w.(*Screen)
	if !ok || s.terminal == nil {
		return nil
	}
	p := &Progress{screen: s, what: what, stop: make(chan struct{})}
	p.ended.Go(p.run)
	return p
}

// Set says how much of the work is done: done of `of` parts. If of is 0, it is not known how many there are.
func (p *Progress) Set(done, of int64, note string) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done, p.of, p.note = done, of, note
}

// Close removes the line from the terminal.
func (p *Progress) Close() {
	if p == nil {
		return
	}
	close(p.stop)
	p.ended.Wait()
}

func (p *Progress) run() {
	wait := time.NewTimer(patience)
	defer wait.Stop()
	for {
		select {
		case <-wait.C:
			p.draw(p.line())
			wait.Reset(redraw)
		case <-p.stop:
			if p.shown > 0 {
				p.draw("")
				_ = p.screen.writeEscaped([]byte("\r"))
			}
			return
		}
	}
}

// line returns what to show: a bar if it is known how much work there is.
func (p *Progress) line() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	var b strings.Builder
	b.WriteString(p.what)
	switch {
	case p.of > 0:
		share := min(max(float64(p.done)/float64(p.of), 0), 1)
		full := int(share * barWidth)
		fmt.Fprintf(&b, " [%s%s] %3d%% %d of %d", strings.Repeat("#", full), strings.Repeat("-", barWidth-full), int(share*100), p.done, p.of)
	case p.done > 0:
		fmt.Fprintf(&b, " %d", p.done)
	default:
		b.WriteString(" …")
	}
	if p.note != "" {
		b.WriteString(", " + p.note)
	}
	return string(visible([]byte(lineBreaks.Replace(b.String()))))
}

// draw replaces the line by a text, which it cuts to the width of the terminal. A failure only means that the progress is
// not shown.
func (p *Progress) draw(text string) {
	runes := []rune(text)
	if width := p.screen.terminal.width; width > 0 && len(runes) > width-1 {
		runes = runes[:max(width-1, 0)]
	}
	blanks := strings.Repeat(" ", max(p.shown-len(runes), 0))
	p.shown = len(runes)
	_ = p.screen.writeEscaped([]byte("\r" + string(runes) + blanks))
}
