package app

import (
	"context"
	"errors"
	"time"

	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// follow makes the follower of the operations log.
func (s *Member) follow() (err error) {
	s.reading = s.guard("operations_log", objstore.ErrNotFound, objstore.ErrExists)
	s.operations, err = opslog.Open(s.store, s.config.Pipeline, opslog.Options{
		Guard: s.reading, Logger: s.logger, Registerer: s.registry,
	}).Follow(opslog.PollEvery)
	return err
}

// awaitOperations waits until it is known what is paused: before that nothing may be read.
func (s *Member) awaitOperations(ctx context.Context) error {
	select {
	case <-s.operations.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unknownPauses returns the hold of all partitions while the pauses are unknown, or nil.
func (s *Member) unknownPauses() *hold.Hold {
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
func (s *Member) paused(p connector.Partition) *hold.Hold {
	by, paused := s.operations.State().Paused(p.Topic, p.ID)
	if !paused {
		return nil
	}
	return by.Hold()
}

// floodAllowed reports whether an operator lets any number of a topic's records become dead letters now.
func (s *Member) floodAllowed(topic string) bool {
	return s.operations.State().FloodAllowed(topic, time.Now())
}

// asked returns the number of the newest operation after which a partition is checked at once.
func (s *Member) asked(p connector.Partition) int64 {
	return s.operations.State().RecheckRequested(p.Topic, p.ID)
}
