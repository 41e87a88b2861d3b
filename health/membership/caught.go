package membership

import (
	"context"
	"fmt"
	"log/slog"
	"time"

	"sluice/reliability/panics"
)

// caughtStore turns the panics of a store into errors: a client library that panics over a reply must not end the
// process, because the pipeline does not need registrations.
type caughtStore struct {
	Store
	logger *slog.Logger
	logged panics.Seen // the panics that were logged, so that a panic at each heartbeat is logged once
}

// Beat implements [Store].
func (s *caughtStore) Beat(ctx context.Context, b Beat) (fresh bool, err error) {
	err = s.call(ctx, func() error { fresh, err = s.Store.Beat(ctx, b); return err })
	return fresh, err
}

// Leave implements [Store].
func (s *caughtStore) Leave(ctx context.Context, id string) error {
	return s.call(ctx, func() error { return s.Store.Leave(ctx, id) })
}

// Members implements [Store].
func (s *caughtStore) Members(ctx context.Context) (members []Member, err error) {
	err = s.call(ctx, func() error { members, err = s.Store.Members(ctx); return err })
	return members, err
}

// Sweep implements [Store].
func (s *caughtStore) Sweep(ctx context.Context, forget time.Duration) (swept int, err error) {
	err = s.call(ctx, func() error { swept, err = s.Store.Sweep(ctx, forget); return err })
	return swept, err
}

// call runs op. It turns a panic into an [ErrUnavailable], and logs the stack of each different panic once.
func (s *caughtStore) call(ctx context.Context, op func() error) error {
	err := panics.Catch(op)
	caught, anew := s.logged.Anew(err)
	if anew {
		s.logger.ErrorContext(ctx, "a panic while the store of registrations was asked: members are unknown, records continue; report it with the stack",
			"err", err, "stack", caught.Stack)
	}
	if caught != nil {
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return err
}
