package reliability

import (
	"context"
	"log/slog"
	"slices"
	"sync"
	"time"
)

// The lines of one failure that goes on: one at once, one after secondLine, then one each laterLines.
const (
	secondLine = time.Minute
	laterLines = 5 * time.Minute
)

// FailureLog keeps a failure that goes on for hours from filling the log: its first line is written at once, one more
// after a minute, then one in five minutes. Each but the first says since when it fails and how many lines were left out.
// The first success writes one line, too. A failure that comes back within a minute is the same one, so that something
// that works now and then writes no more than something that never does. One that becomes worse, by its level, begins anew.
// At DEBUG nothing is left out.
//
// There is one for each dependency and table. The zero FailureLog is ready to use, from any goroutine.
type FailureLog struct {
	mu      sync.Mutex
	failing bool
	since   time.Time // of the failure; stays when it ends
	ended   time.Time
	next    time.Time  // when a line may be written
	level   slog.Level // the worst so far
	lines   int
	left    int64 // lines since the last one
	open    bool  // a line was written since the failure was last over
}

// Failed writes a line about a failure. One that is left out is counted, and a line at DEBUG.
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

// Over writes a line if there was a failure, at DEBUG if its lines were left out.
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

func (f *FailureLog) fails(now time.Time, level slog.Level) (since time.Time, left int64, first, tell bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.failing && (f.lines == 0 || now.Sub(f.ended) >= secondLine) {
		f.since, f.next, f.lines, f.left, f.level = now, now, 0, 0, level
	}
	if level > f.level { // it became worse: now a person has to act
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

// over ends the failure. was is true if there was one, tell if a line was written since it was last over.
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
