package admin

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/url"
	"os"
	"path/filepath"

	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// operationsLog is an open operations log and the store in which it is.
type operationsLog struct {
	*opslog.Log
	store objstore.Store
	guard *reliability.Guard
	end   func()
}

// openOperations opens the operations log of a pipeline; the caller calls end. Unless write is set, it creates nothing,
// and a local directory that does not exist counts as an empty log.
func openOperations(ctx context.Context, cfg *config.Config, write bool) (*operationsLog, error) {
	o := &operationsLog{end: func() {}}
	if !write && missingDirectory(cfg.Storage.URL) {
		o.store = objstore.NewMem()
	} else {
		store, err := open.Store(ctx, cfg)
		if err != nil {
			return nil, fail.Dependency(err)
		}
		o.store = store
		if c, ok := store.(io.Closer); ok {
			o.end = func() { _ = c.Close() } // nothing uses the store any more
		}
	}
	o.guard = reliability.NewGuard("operations log", cfg.Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	o.Log = opslog.Open(o.store, cfg.Pipeline, opslog.Options{Guard: o.guard})
	return o, nil
}

// missingDirectory reports whether a URL names a local directory that does not exist.
func missingDirectory(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" {
		return false
	}
	_, err = os.Stat(filepath.FromSlash(u.Path))
	return errors.Is(err, fs.ErrNotExist)
}

// exclusive tests that the store refuses a second conditional put of the same object, without which the log is not
// safe.
func (o *operationsLog) exclusive(ctx context.Context) error {
	err := o.guard.Do(ctx, func(ctx context.Context) error { return objstore.SelfTest(ctx, o.store) })
	switch {
	case err == nil:
		return nil
	case errors.Is(err, objstore.ErrUnsafe):
		return fail.Refused(fmt.Errorf("storage.url: %w", err))
	}
	if last := o.guard.Status().Err; ctx.Err() != nil && last != nil {
		err = fmt.Errorf("%w: %w", context.Cause(ctx), last)
	}
	return fail.Dependency(fmt.Errorf("storage.url: %w", err))
}

// failedOperation adds to an error of the operations log its kind, and what the operator can do. e is the entry that
// was being appended.
func failedOperation(e opslog.Entry, err error) error {
	broken, repeated := (*opslog.BrokenError)(nil), (*opslog.RepeatedError)(nil)
	switch {
	case errors.As(err, &repeated):
		return fail.Refused(err)
	case errors.Is(err, opslog.ErrUndecided):
		return fail.Dependency(fmt.Errorf("the outcome of the operation is unknown: look for seq %d, id %s in connector audit list: %w", e.Seq, e.ID, err))
	case errors.As(err, &broken):
		return fail.Found(fmt.Errorf("%w; see connector audit verify", err))
	}
	return fail.Dependency(err)
}

// append writes an operation if pre accepts the state of the log. The returned error has a kind. If pre refused the
// operation, this kind is wrong: the caller then uses the error that pre returned.
func (o *operationsLog) append(ctx context.Context, by By, body opslog.Body, pre func(*opslog.State) error) (opslog.Entry, error) {
	if err := o.exclusive(ctx); err != nil {
		return opslog.Entry{}, err
	}
	host, _ := os.Hostname() // without the name of the host, the entry has none
	e, err := o.Append(ctx, opslog.Operation{Operator: by.Operator, Host: host, Reason: by.Reason, Once: by.Once, Body: body}, pre)
	if err != nil {
		return e, failedOperation(e, err)
	}
	return e, nil
}

// Operations returns the state of the operations log: pauses, allowances of floods, fingerprint resets, and decisions
// about dead letters. It creates nothing.
func Operations(ctx context.Context, a *Access) (*opslog.State, error) {
	o, err := openOperations(ctx, a.Config, false)
	if err != nil {
		return nil, err
	}
	defer o.end()
	return o.State(ctx)
}
