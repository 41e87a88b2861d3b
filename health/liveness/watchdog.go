package liveness

import (
	"context"
	"io"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice/reliability"
	"sluice/reliability/pulse"
)

// Watchdog checks the loops of a process each second. It reports stalled loops through [Watchdog.Live], in the log, and
// in a file.
type Watchdog struct {
	loops *pulse.Loops
	file  *File
	dump  io.Writer
	log   *slog.Logger

	watch   Watch
	verdict atomic.Pointer[verdict]
	changed chan struct{} // gets a signal when the verdict changes between alive and not alive; has room for one signal

	// Owned by the goroutine that reports:
	stalled time.Time              // since when the process is reported as not alive; zero while it is alive
	failing reliability.FailureLog // about failures to write the file
}

// verdict is the result of the last check.
type verdict struct{ err error }

// NewWatchdog returns a watchdog of loops. It writes file while the process is alive; nil is no file. When a loop
// stalls, it writes the stacks of all goroutines to dump.
func NewWatchdog(loops *pulse.Loops, file *File, dump io.Writer, log *slog.Logger) *Watchdog {
	return &Watchdog{loops: loops, file: file, dump: dump, log: log, changed: make(chan struct{}, 1)}
}

// Live returns why the process should be restarted, nil if it should not, by the last check. It never waits.
func (w *Watchdog) Live() error {
	if v := w.verdict.Load(); v != nil {
		return v.err
	}
	return nil
}

// Begin writes the file for the first time, so that a path that cannot be used is known before anything else starts.
func (w *Watchdog) Begin() error { return w.file.Begin(time.Now()) }

// Run checks the loops until ctx ends, and then deletes the file. A check never waits: another goroutine writes the log
// and the file, which may block, so that the probe over HTTP shows the truth even if the standard error is blocked.
func (w *Watchdog) Run(ctx context.Context) {
	var telling sync.WaitGroup
	defer telling.Wait()
	telling.Go(func() { w.report(ctx) })
	turn := time.NewTicker(Every)
	defer turn.Stop()
	for {
		w.check()
		select {
		case <-turn.C:
		case <-ctx.Done():
			return
		}
	}
}

func (w *Watchdog) check() {
	before := w.Live()
	now := reason(w.watch.Check(time.Now(), w.loops.States()))
	w.verdict.Store(&verdict{now})
	if (before == nil) != (now == nil) {
		select {
		case w.changed <- struct{}{}:
		default: // there is no room: a signal waits already
		}
	}
}

// report writes the file at intervals, and logs when the process becomes stalled or alive again.
func (w *Watchdog) report(ctx context.Context) {
	turn := time.NewTicker(Touched)
	defer turn.Stop()
	defer w.remove(ctx, w.file.End)
	for {
		switch err := w.Live(); {
		case err != nil && w.stalled.IsZero():
			w.stalled = time.Now()
			w.remove(ctx, w.file.Remove)
			w.log.ErrorContext(ctx, "Liveness check FAILED", "reason", err.Error())
			w.dumpGoroutines(ctx)
		case err == nil && !w.stalled.IsZero():
			w.log.InfoContext(ctx, "Liveness check passed again", "after", time.Since(w.stalled).Round(time.Second))
			w.stalled = time.Time{}
			fallthrough
		case err == nil:
			w.touch(ctx)
		}
		select {
		case <-turn.C:
		case <-w.changed:
		case <-ctx.Done():
			return
		}
	}
}

// touch writes the file. It logs a failure, because a probe that finds the file old restarts the process.
func (w *Watchdog) touch(ctx context.Context) {
	err := w.file.Touch(time.Now())
	if err == nil {
		w.failing.Over(ctx, w.log, "the liveness file is written again")
		return
	}
	w.failing.Failed(ctx, w.log, slog.LevelWarn, "the liveness file cannot be written: a probe that looks at it will fail", "err", err)
}

func (w *Watchdog) remove(ctx context.Context, how func() error) {
	if err := how(); err != nil {
		w.log.WarnContext(ctx, "the liveness file cannot be deleted; it is old soon", "err", err)
	}
}

func (w *Watchdog) dumpGoroutines(ctx context.Context) {
	if _, err := w.dump.Write(Goroutines(dumpBytes)); err != nil {
		w.log.WarnContext(ctx, "the goroutines cannot be written down", "err", err)
	}
}

// reportWithin bounds the time for the last log lines before the process exits.
const reportWithin = 1500 * time.Millisecond

// Enforce ends a process that got a signal to stop and does not end: a stalled loop must not need a SIGKILL. Once stop
// has ended, it waits for ended, at most for within. Then it deletes the file, writes the stacks of all goroutines and
// calls exit. A blocked log may be why the process hangs, so Enforce waits for it only a short time.
func (w *Watchdog) Enforce(stop context.Context, within time.Duration, ended <-chan struct{}, exit func()) {
	select {
	case <-stop.Done():
	case <-ended:
		return
	}
	over := time.NewTimer(within)
	defer over.Stop()
	select {
	case <-ended:
	case <-over.C:
		ctx := context.WithoutCancel(stop)
		told := make(chan struct{})
		go func() { // runs in a goroutine because a write may block for ever; the exit of the process then ends it
			defer close(told)
			w.remove(ctx, w.file.End)
			w.log.ErrorContext(ctx, "shutdown timed out; exiting", "after", within)
			w.dumpGoroutines(ctx)
		}()
		over.Reset(reportWithin)
		select {
		case <-told:
		case <-over.C:
		}
		exit()
	}
}
