package main

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
	"time"

	"sluice/connector"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

const (
	// pollOperations is how often a member reads the operations log, and heardWithin how long it takes at most until members
	// act on an operation, while the store answers.
	pollOperations = 8 * time.Second
	heardWithin    = 10 * time.Second
)

// follow makes the follower of the operations log.
func (s *system) follow() (err error) {
	s.reading = s.guard("operations_log", objstore.ErrNotFound, objstore.ErrExists)
	s.operations, err = opslog.Open(s.store, s.config.Pipeline, opslog.Options{
		Guard: s.reading, Logger: s.logger, Registerer: s.registry,
	}).Follow(pollOperations)
	return err
}

// awaitOperations waits until it is known what is paused: before that nothing may be read.
func (s *system) awaitOperations(ctx context.Context) error {
	select {
	case <-s.operations.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unknownPauses is the hold of everything while nobody knows yet what is paused, or nil.
func (s *system) unknownPauses() *hold.Hold {
	if s.operations.State() != nil {
		return nil
	}
	if trouble, ok := s.operations.Trouble(); ok {
		h := &hold.Hold{Reason: hold.StoreDenied, Detail: trouble.Err.Error(), Since: trouble.Since}
		if broken := (*opslog.BrokenError)(nil); errors.As(trouble.Err, &broken) {
			h.Reason = hold.OperationsLog
		}
		return h
	}
	return waiting(s.reading, hold.StoreDown)
}

// paused is the hold of a partition that an operator paused, or nil.
func (s *system) paused(p connector.Partition) *hold.Hold {
	by, paused := s.operations.State().Paused(p.Topic, p.ID)
	if !paused {
		return nil
	}
	return pausedHold(by)
}

// floodAllowed tells whether an operator lets any number of a topic's records become dead letters now.
func (s *system) floodAllowed(topic string) bool {
	return s.operations.State().FloodAllowed(topic, time.Now())
}

// asked returns the number of the newest operation after which a partition is checked at once.
func (s *system) asked(p connector.Partition) int64 {
	return s.operations.State().Asked(p.Topic, p.ID)
}

// pausedHold puts a pause into a hold's words.
func pausedHold(by opslog.Paused) *hold.Hold {
	return &hold.Hold{
		Reason: hold.Paused, Detail: fmt.Sprintf("%s paused %s: %s", by.Operator, by.Target.String(), by.Reason),
		Since: by.Since, Offset: -1,
	}
}

// operationsLog is the operations log as a command opens it.
type operationsLog struct {
	*opslog.Log
	store objstore.Store // that it lies in
	guard *reliability.Guard
	end   func()
}

// openOperations opens the operations log of a pipeline for a command, which calls end when it is done. Whoever only reads
// makes nothing: a local directory that does not exist is an empty log.
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
			o.end = func() { _ = c.Close() } // nothing is under way any more
		}
	}
	o.guard = reliability.NewGuard("operations log", cfg.Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
	o.Log = opslog.Open(o.store, cfg.Pipeline, opslog.Options{Guard: o.guard})
	return o, nil
}

// missingDirectory tells whether a URL names a local directory that is not there.
func missingDirectory(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "file" {
		return false
	}
	_, err = os.Stat(filepath.FromSlash(u.Path))
	return errors.Is(err, fs.ErrNotExist)
}

// exclusive makes sure that the store keeps the promise on which the log stands, before a command writes to it.
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

// failedOperation is the error of a command that could not read or write the operations log.
func failedOperation(e opslog.Entry, err error) error {
	broken := (*opslog.BrokenError)(nil)
	switch {
	case errors.Is(err, opslog.ErrUndecided):
		return fail.Dependency(fmt.Errorf("nobody knows whether the operation was written: look for seq %d, id %s in connector audit list: %w", e.Seq, e.ID, err))
	case errors.As(err, &broken):
		return fail.Found(fmt.Errorf("%w; see connector audit verify", err))
	}
	return fail.Dependency(err)
}

// append writes an operation of the person at the command line, if pre admits it. An error has its exit code, except that
// the caller knows what to say if pre refused.
func (o *operationsLog) append(ctx context.Context, ch *change, body opslog.Body, pre func(*opslog.State) error) (opslog.Entry, error) {
	if err := o.exclusive(ctx); err != nil {
		return opslog.Entry{}, err
	}
	host, _ := os.Hostname() // may stay unknown
	e, err := o.Append(ctx, opslog.Operation{Operator: ch.operator, Host: host, Reason: ch.reason, Body: body}, pre)
	if err != nil {
		return e, failedOperation(e, err)
	}
	return e, nil
}
