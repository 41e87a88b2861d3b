package reliability

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// Intervals between the lines about one failure: the first line is written at once, the second after secondLine, then
// one every laterLines.
const (
	secondLine = time.Minute
	laterLines = 5 * time.Minute
)

// FailureLog keeps a long failure from filling the log. It writes the first line at once, the second after a minute,
// then one every five minutes. Each line after the first says when the failure began and how many lines were left out.
// The first success writes one line.
//
// A failure that returns within a minute counts as the same failure, so a dependency that works now and then causes no
// more lines than one that never works. A failure with a higher level than before counts as new. At DEBUG every line is
// written.
//
// Use one FailureLog for each dependency and table. The zero FailureLog is ready to use, from any goroutine.
type FailureLog struct {
	mu      sync.Mutex
	failing bool
	since   time.Time // start of the last failure; kept after its end
	ended   time.Time
	next    time.Time  // earliest time for the next line
	level   slog.Level // highest level of the failure so far
	lines   int        // number of lines written about this failure
	left    int64      // number of lines left out since the last one that was written
	open    bool       // true if a line about a failure was written since the last success
}

// Failed logs a failure at the given level. A line that is left out is counted and logged at DEBUG instead.
func (f *FailureLog) Failed(ctx context.Context, log *slog.Logger, level slog.Level, msg string, args ...any) {
	since, left, first, tell := f.fails(time.Now(), level)
	switch {
	case !tell:
		level = slog.LevelDebug
	case !first:
		args = append(slices.Clip(args), "since", since, "left_out", left)
	}
	log.Log(ctx, level, msg, args...) //nolint:sloglint // callers give constants
}

// Over logs the first success after a failure at INFO, or at DEBUG if no line about the failure was written. Without a
// failure it logs nothing.
func (f *FailureLog) Over(ctx context.Context, log *slog.Logger, msg string, args ...any) {
	after, left, was, tell := f.over(time.Now())
	if !was {
		return
	}
	level := slog.LevelDebug
	if tell {
		level = slog.LevelInfo
	}
	log.Log(ctx, level, msg, append(slices.Clip(args), "after", after.Round(time.Millisecond), "left_out", left)...) //nolint:sloglint // as in Failed
}

// fails records a failure and decides whether to write a line about it now: tell. since is when the failure began,
// left is how many lines were left out since the last one, and first is true for the first line of the failure.
func (f *FailureLog) fails(now time.Time, level slog.Level) (since time.Time, left int64, first, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failing && (f.lines == 0 || now.Sub(f.ended) >= secondLine) {
		f.since, f.next, f.lines, f.left, f.level = now, now, 0, 0, level
	}
	if level > f.level { // the failure is worse than before: an operator may have to act now
		f.next, f.lines, f.level = now, 0, level
	}
	f.failing = true
	if now.Before(f.next) {
		f.left++
		return f.since, 0, false, false
	}
	left, f.left = f.left, 0
	f.lines++
	f.open = true
	f.next = now.Add(laterLines)
	if f.lines == 1 {
		f.next = now.Add(secondLine)
	}
	return f.since, left, f.lines == 1, true
}

// over ends the failure, which lasted for the time after. was is false if there was no failure. tell is true if a line
// was written since the last success, and left is how many lines were left out since then or since that line.
func (f *FailureLog) over(now time.Time) (after time.Duration, left int64, was, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failing {
		return 0, 0, false, false
	}
	f.failing, f.ended = false, now
	tell, f.open = f.open, false
	return now.Sub(f.since), f.left, true, tell
}
