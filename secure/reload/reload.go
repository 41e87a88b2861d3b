// Package reload keeps the parsed content of a file up to date while the process runs.
package reload

import (
	"context"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"
)

// Every is the pause between two reads of a file. A secret that is removed from the file is accepted at most this long,
// if the file can be used after the change.
const Every = 5 * time.Second

// File holds the parsed content of a file, including that of other files that it names. While the file is broken, for
// example while another process writes it, the last usable content stays in force.
type File[T any] struct {
	path   string
	read   func(path string) (*T, error)
	notice func(ctx context.Context, before, now *T)
	logger *slog.Logger
	value  atomic.Pointer[T]

	mu     sync.Mutex // held during Refresh, so that only one runs
	broken string     // the text of the error that was logged last; an equal one is not logged again
}

// Open reads a file with read. It returns an error if the file cannot be used. read must not quote secrets in its
// errors, because they are logged.
//
// notice is called after each read of a usable file: with the content before, which is nil at first, and with the new
// content.
func Open[T any](ctx context.Context, path string, read func(string) (*T, error), notice func(ctx context.Context, before, now *T), logger *slog.Logger) (*File[T], error) {
	f := &File[T]{path: path, read: read, notice: notice, logger: logger}
	return f, f.Refresh(ctx)
}

// Value returns the content in force. Any goroutine may call it.
func (f *File[T]) Value() *T { return f.value.Load() }

// Refresh reads the file again. It returns an error only if the file has never been usable; later it logs the error
// and keeps the last content.
func (f *File[T]) Refresh(ctx context.Context) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	now, err := f.read(f.path)
	before := f.value.Load()
	switch {
	case err != nil && before == nil:
		return err
	case err != nil:
		if f.broken != err.Error() {
			f.broken = err.Error()
			f.logger.ErrorContext(ctx, "failed to read a changed file; keeping its last content", "file", f.path, "err", err)
		}
		return nil
	}
	f.broken = ""
	f.value.Store(now)
	f.notice(ctx, before, now)
	return nil
}

// Watch refreshes the content until ctx ends.
func (f *File[T]) Watch(ctx context.Context) {
	turn := time.NewTicker(Every)
	defer turn.Stop()
	for {
		select {
		case <-turn.C:
		case <-ctx.Done():
			return
		}
		_ = f.Refresh(ctx) // cannot fail, because Open found the file usable
	}
}
