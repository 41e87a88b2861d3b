package reliability_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sluice/reliability"
)

// failureLines is a FailureLog that writes into memory.
type failureLines struct {
	reliability.FailureLog
	t   *testing.T
	out bytes.Buffer
	log *slog.Logger
}

func newFailureLines(t *testing.T) *failureLines {
	t.Helper()
	l := &failureLines{t: t}
	l.log = slog.New(slog.NewTextHandler(&l.out, nil))
	return l
}

func (l *failureLines) fails() { l.Failed(l.t.Context(), l.log, slog.LevelWarn, "it fails", "n", 1) }

func (l *failureLines) works() { l.Over(l.t.Context(), l.log, "it works again", "n", 1) }

// lines returns the lines since the last call.
func (l *failureLines) lines() []string {
	defer l.out.Reset()
	return strings.Split(strings.TrimSpace(l.out.String()), "\n")
}

// TestFailureLog_TenHours: a failure of ten hours has a line at once, one after a minute, then one every five minutes,
// and one at its end.
func TestFailureLog_TenHours(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFailureLines(t)
		l.works() // no failure has begun, so this must not log
		began := time.Now()
		var at []time.Duration
		for time.Since(began) < 10*time.Hour {
			before := l.out.Len()
			if l.fails(); l.out.Len() > before {
				at = append(at, time.Since(began))
			}
			time.Sleep(time.Second)
		}
		want := time.Duration(0)
		for i, got := range at {
			switch i {
			case 0:
			case 1:
				want = time.Minute
			default:
				want += 5 * time.Minute
			}
			if got != want {
				t.Errorf("line %d after %v, want %v", i, got, want)
			}
		}
		lines := l.lines()
		if len(lines) != 121 || strings.Contains(lines[0], "since") || !strings.Contains(lines[1], "left_out=59") || !strings.Contains(lines[2], "left_out=299") {
			t.Errorf("%d lines: %q", len(lines), lines[:3])
		}
		l.works()
		l.works()
		if end := l.lines(); len(end) != 1 || !strings.Contains(end[0], "it works again") || !strings.Contains(end[0], "after=10h0m0s") {
			t.Errorf("%q", end)
		}
		time.Sleep(time.Minute)
		l.fails()
		if fresh := l.lines(); len(fresh) != 1 || strings.Contains(fresh[0], "since") {
			t.Errorf("another failure: %q", fresh)
		}
	})
}

// TestFailureLog_NowAndThen: a dependency that fails and works in turns for ten hours causes at most twice as many
// lines as one that fails all the time. A failure with a higher level than the one before is logged at once.
func TestFailureLog_NowAndThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newFailureLines(t)
		l.fails()
		l.Failed(t.Context(), l.log, slog.LevelError, "it is refused")
		if worse := l.lines(); len(worse) != 2 || !strings.Contains(worse[1], "level=ERROR") {
			t.Errorf("it became worse: %q", worse)
		}
		for range 3600 * 10 {
			l.fails()
			l.works()
			time.Sleep(time.Second)
		}
		if n := len(l.lines()); n > 2*121 {
			t.Errorf("%d lines in ten hours", n)
		}
	})
}
