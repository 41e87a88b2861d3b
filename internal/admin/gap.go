package admin

import (
	"context"
	"fmt"
	"time"

	"sluice/connector"
	"sluice/internal/fail"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/opslog"
)

// confirmAfter is the pause after which PlanAcceptGap checks a gap again. Members pause for the same time, because a
// newly elected leader may not know the end of its log yet.
const confirmAfter = 5 * time.Second

// PlanAcceptGap plans to continue after lost records: it moves the positions that lie outside of their log, or after
// the offset at which the log differs from the records that were read. It checks each gap twice, confirmAfter apart.
func PlanAcceptGap(ctx context.Context, a *Access, target opslog.Target) (*MovePlan, error) {
	return sorted(planGap(ctx, a, target))
}

func planGap(ctx context.Context, a *Access, target opslog.Target) (*MovePlan, error) {
	view, err := a.inspectTopics(ctx, target.Topic)
	if err != nil {
		return nil, err
	}
	defer view.end()
	l := view.inspections[0]
	before := gaps(l, target)
	if len(before) == 0 {
		return nil, refused("no partition of %v stands outside of its log: there is no gap to accept", target)
	}
	if err := reliability.Wait(ctx, confirmAfter); err != nil {
		return nil, fail.Dependency(err)
	}
	if l, err = view.inspect(ctx, l.table, target.Topic, l.snapshot); err == nil {
		err = l.complete()
	}
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	plan := newPlan("offsets accept-gap", l)
	for p, h := range gaps(l, target) {
		if first := before[p]; first == nil || first.Reason != h.Reason {
			continue
		}
		at, b := l.position(p), l.bounds[p]
		switch h.Reason {
		case hold.BehindLogStart:
			plan.move(l, p, b.LogStart, "behind_log_start: they were deleted before they were read, and are lost")
		case hold.AheadOfLogEnd:
			plan.move(l, p, b.LastStable, "ahead_of_log_end: the log ends at %d. The table keeps its rows at offsets [%d, %d), and other records will have the same offsets; "+
				"records below %d that came after the loss are taken for those that the table has", b.HighWatermark, b.LastStable, at, b.LastStable)
		default:
			plan.move(l, p, max(b.DivergedAt, b.LogStart), "truncated: from offset %d on the log has other records than those that were read. The table keeps the rows of the "+
				"lost ones, and gets those that stand there now", b.DivergedAt)
		}
	}
	if len(plan.Moves) == 0 {
		return nil, refused("a second check %v later did not find the gap again: there is no gap to accept", confirmAfter)
	}
	return plan, nil
}

// gaps returns those partitions of a target whose position is not readable in their log, each with its hold.
func gaps(l *inspection, target opslog.Target) map[connector.Partition]*hold.Hold {
	all := map[connector.Partition]*hold.Hold{}
	for _, p := range l.partitions() {
		if target.Partition >= 0 && p.ID != target.Partition || l.position(p) < 0 {
			continue
		}
		if h := l.hold(p); h != nil {
			switch h.Reason {
			case hold.BehindLogStart, hold.AheadOfLogEnd, hold.Truncated:
				all[p] = h
			default:
			}
		}
	}
	return all
}
