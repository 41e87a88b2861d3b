package admin

import (
	"context"
	"errors"
	"fmt"

	"sluice/connector/kafka"
	"sluice/internal/fail"
	"sluice/reliability/hold"
	"sluice/sink/opslog"
)

// Skip selects the records of a partition to leave out.
type Skip struct {
	Target opslog.Target
	Offset int64 // the offset of the record, which must be the position
	To     int64 // the new position; -1 for the offset after the record, or after its record batch if that is unreadable
	Batch  bool  // true to leave out the whole record batch
}

// PlanSkip plans to skip the record, or the record batch, at the position of a partition. It refuses if the partition
// has a hold that this does not end.
func PlanSkip(ctx context.Context, a *Access, s Skip) (*MovePlan, error) {
	target, offset, to := s.Target, s.Offset, s.To
	view, err := a.inspectTopics(ctx, target.Topic)
	if err != nil {
		return nil, err
	}
	defer view.end()
	l := view.inspections[0]
	p, ok := l.partition(target.Partition)
	b := l.bounds[p]
	switch at := l.position(p); {
	case !ok:
		return nil, refused("topic %s has no partition %d", target.Topic, target.Partition)
	case at != offset:
		return nil, refused("%v stands at offset %d, not at %d: only what it stands at can be skipped", p, at, offset)
	case offset < b.LogStart:
		return nil, refused("offset %d was deleted, the log of %v starts at %d: offsets accept-gap continues there", offset, p, b.LogStart)
	case offset >= b.LastStable:
		return nil, refused("there is no committed record at offset %d of %v yet", offset, p)
	case to >= 0 && to <= offset:
		return nil, fail.Usage(fmt.Errorf("--to %d is not after offset %d", to, offset))
	case to > b.LastStable:
		return nil, refused("--to %d is after the last stable offset %d of %v", to, b.LastStable, p)
	}
	if h := l.hold(p); h != nil {
		return nil, refused("%s: %s: skipping a record does not end that", h.Reason, h.Detail)
	}
	plan := newPlan("offsets skip", l)
	if to >= 0 {
		plan.move(l, p, to, "")
		return plan, nil
	}
	var found kafka.Batch
	err = view.retry(func(ctx context.Context) (err error) { found, err = view.log.BatchAt(ctx, p, offset); return err })
	if held, ok := errors.AsType[*hold.Error](err); ok {
		return nil, refused("%w: write --to with the offset to continue at", held)
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	switch end := min(found.Last+1, b.LastStable); {
	case found.Unreadable != nil:
		plan.move(l, p, end, "the whole record batch, offsets [%d, %d], %d bytes: %v", found.Base, found.Last, found.Size, found.Unreadable)
	case s.Batch:
		plan.move(l, p, end, "the whole record batch, offsets [%d, %d], %d bytes", found.Base, found.Last, found.Size)
	case found.Record == nil || found.Record.Offset != offset:
		return nil, refused("there is no committed record at offset %d of %v, and its batch can be read: nothing keeps a member from going on", offset, p)
	default:
		plan.move(l, p, offset+1, "one record")
	}
	return plan, nil
}
