package app

import (
	"context"
	"errors"
	"iter"
	"time"

	"sluice/connector"
	"sluice/internal/open"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
	"sluice/sink/opslog/mirror"
)

// follow opens the operations log and creates the follower, which polls it.
func (s *Member) follow() (err error) {
	s.operationsGuard = s.guard("operations_log", objstore.ErrNotFound, objstore.ErrExists)
	log := opslog.Open(s.store, s.config.Pipeline, opslog.Options{
		Guard: s.operationsGuard, Logger: s.logger, Registerer: s.registry,
	})
	if s.operations, err = log.Follow(opslog.PollEvery); err != nil || s.config.Ops.Mirror.URLFile == "" {
		return err
	}
	s.mirror, err = mirror.New(mirror.Config{
		Log: followedLog{s.operations, log}, Logger: s.logger, Registerer: s.registry,
		Open: func(ctx context.Context) (mirror.Place, error) { return open.Mirror(ctx, s.config) },
	})
	return err
}

// followedLog is the operations log as this member follows it. It implements [mirror.Log].
type followedLog struct {
	*opslog.Follower
	log *opslog.Log
}

// Entries yields the entries of the operations log whose seq is at least from, in order.
func (l followedLog) Entries(ctx context.Context, from int64) iter.Seq2[opslog.Entry, error] {
	return l.log.Entries(ctx, from)
}

// awaitOperations waits until the follower has read the operations log. Before that this member must not read a
// partition, because an operator may have paused it.
func (s *Member) awaitOperations(ctx context.Context) error {
	select {
	case <-s.operations.Ready():
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// unknownPauses returns the hold of all partitions while this member cannot read the operations log, and so does not
// know which partitions are paused. It returns nil once the log was read. Before that, it returns nil until the
// follower reports trouble or the breaker opens.
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
	return waiting(s.operationsGuard, hold.StoreDown)
}

// paused returns the hold of a partition that an operator paused, or nil.
func (s *Member) paused(p connector.Partition) *hold.Hold {
	by, paused := s.operations.State().Paused(p.Topic, p.ID)
	if !paused {
		return nil
	}
	return by.Hold()
}

// floodAllowed reports whether an operator currently allows any number of a topic's records to become dead letters.
func (s *Member) floodAllowed(topic string) bool {
	return s.operations.State().FloodAllowed(topic, time.Now())
}

// asked returns the seq of the newest operation that requests a check of a partition, 0 if there is none.
func (s *Member) asked(p connector.Partition) int64 {
	return s.operations.State().RecheckRequested(p.Topic, p.ID)
}
