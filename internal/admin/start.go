package admin

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/internal/fail"
	"sluice/reliability/hold"
)

// StartRequest selects the topics to start, and their first positions.
type StartRequest struct {
	Topics     []string
	Start      connector.Start
	Keep       bool    // true to keep the positions in the table and to ignore Start
	Partitions []int32 // only these partitions, whose topic has positions already; nil for all
	Again      bool    // true to start partitions again that have a position
}

// firstOffsets returns the first position of each partition for a start policy.
func (s *topicsView) firstOffsets(start connector.Start, partitions []connector.Partition, bounds map[connector.Partition]connector.Bounds) (map[connector.Partition]int64, error) {
	var at map[connector.Partition]int64
	if start.Policy == connector.StartTimestamp {
		since := start.At
		if since.IsZero() {
			since = time.Now().Add(-start.Back)
		}
		err := s.retry(func(ctx context.Context) (err error) { at, err = s.log.OffsetsAt(ctx, partitions, since); return err })
		if err != nil {
			return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
		}
	}
	first, err := start.First(bounds, at)
	if err != nil {
		return nil, refused("%w", err)
	}
	return first, nil
}

// PlanStart plans the first positions of topics, or of new partitions. If the table was replaced, the plan also accepts
// the new table.
func PlanStart(ctx context.Context, a *Access, f StartRequest) (*MovePlan, error) {
	return sorted(f.plan(ctx, a))
}

func (f *StartRequest) plan(ctx context.Context, a *Access) (*MovePlan, error) {
	names, start, keep := slices.Clone(f.Topics), f.Start, f.Keep
	slices.Sort(names)
	if len(slices.Compact(slices.Clone(names))) < len(names) {
		return nil, fail.Usage(fmt.Errorf("a topic is given twice: %s", strings.Join(names, ", ")))
	}
	if len(names) > 1 && len(f.Partitions) > 0 {
		return nil, fail.Usage(fmt.Errorf("--partition is for one topic: write one command for each"))
	}
	view, err := a.inspectTopics(ctx, names...)
	if err != nil {
		return nil, err
	}
	defer view.end()
	first := view.inspections[0]
	made := newPlan("offsets start", first)
	made.Accept = true
	replaced := plan.Replaced(first.snapshot, first.pipeline)
	if replaced != "" {
		if err := made.acceptsAll(first, names); err != nil {
			return nil, err
		}
		made.note("table_replaced: %s. This command accepts the table; positions that stay say that its rows are those that this pipeline wrote", replaced)
	}
	for _, l := range view.inspections {
		chosen, err := f.choose(l, replaced != "")
		if err != nil {
			return nil, err
		}
		if err := made.start(view, l, chosen, start, keep); err != nil {
			return nil, err
		}
		made.past(l)
	}
	return made, nil
}

// choose returns the partitions to start: those without a position and, with all or Again, also those that have one.
// all is set for a replaced table. If the request names partitions, only these are returned, and one with a position is
// refused unless all or Again is set.
func (f *StartRequest) choose(l *inspection, all bool) ([]connector.Partition, error) {
	var chosen []connector.Partition
	begun := l.started()
	for _, p := range l.partitions() {
		named := slices.Contains(f.Partitions, p.ID)
		switch has := l.position(p) >= 0; {
		case len(f.Partitions) > 0 && !named:
		case all, !has, f.Again:
			chosen = append(chosen, p)
		case named:
			return nil, refused("%v has a position already: write --again to begin it once more, or offsets set to move it", p)
		}
	}
	for _, id := range f.Partitions {
		if _, ok := l.partition(id); !ok {
			return nil, refused("topic %s has no partition %d", l.topic.Name, id)
		}
	}
	switch {
	case len(f.Partitions) > 0 && !begun:
		return nil, refused("topic %s has no position at all: its first ones are set for all partitions, leave out --partition", l.topic.Name)
	case len(f.Partitions) > 0 && all:
		return nil, refused("the table was replaced and is accepted as a whole: leave out --partition")
	case len(chosen) == 0:
		return nil, refused("all partitions of topic %s have a position: write --again to begin them once more, or offsets set to move single ones", l.topic.Name)
	}
	return chosen, nil
}

// acceptsAll returns an error unless the plan has all topics with positions in a replaced table. Accepting the table
// lets all of them continue, so each needs a new position.
func (p *MovePlan) acceptsAll(l *inspection, names []string) error {
	var left, gone []string
	for appID := range l.snapshot.Positions {
		id, err := idempotency.ParseAppID(appID)
		name := id.Partition.Topic
		switch {
		case err != nil || id.TableID != "" || id.Pipeline != l.pipeline || slices.Contains(names, name):
		case !slices.Contains(l.table.topics, name):
			gone = append(gone, name)
		default:
			left = append(left, name)
		}
	}
	slices.Sort(left)
	slices.Sort(gone)
	if left, gone = slices.Compact(left), slices.Compact(gone); len(gone) > 0 {
		p.note("the table has positions of %s too, which the configuration does not name now: they would keep their positions", strings.Join(gone, ", "))
	}
	if len(left) == 0 {
		return nil
	}
	return refused("the table was replaced, and it has positions of %s too, which would keep their positions: name all topics", strings.Join(left, ", "))
}

// start adds to the plan where each chosen partition begins: at the offset that start means or, with keep, at its
// present position. With keep, a partition without a position gets only a note if the table has rows of it, or if other
// partitions of the topic have positions. Otherwise start returns an error for it.
func (p *MovePlan) start(view *topicsView, l *inspection, chosen []connector.Partition, start connector.Start, keep bool) error {
	bounds := map[connector.Partition]connector.Bounds{}
	for _, of := range chosen {
		b, there := l.bounds[of]
		if !there {
			return fail.Dependency(fmt.Errorf("kafka: the ends of %v are not known", of))
		}
		bounds[of] = b
	}
	if keep {
		for _, of := range chosen {
			at := l.position(of)
			if at < 0 && l.rows[connector.RowsOf{Topic: of.Topic, Partition: of.ID}] {
				p.note("%v has no position that could stay, and the table has rows of it: it is held unknown_history until offsets set says how far they go", of)
				continue
			}
			if at < 0 && l.started() {
				p.note("%v has no position yet: it was added to the topic, and begins at its first record by itself", of)
				continue
			}
			if at < 0 {
				return refused("%v has no position that could stay: write --at earliest, latest or a time", of)
			}
			p.move(l, of, at, "")
		}
		return nil
	}
	first, err := view.firstOffsets(start, chosen, bounds)
	if err != nil {
		return err
	}
	for _, of := range chosen {
		p.move(l, of, first[of], "the log is [%d, %d]", bounds[of].LogStart, bounds[of].HighWatermark)
	}
	return nil
}

// past adds a note with the hold of the topic's first held partition, which shows the operator why the topic is held.
// It leaves out the hold table_replaced, which the plan notes once for the table.
func (p *MovePlan) past(l *inspection) {
	for _, of := range l.partitions() {
		if h := l.hold(of); h != nil && h.Reason != hold.TableReplaced {
			p.note("%s: %s", h.Reason, h.Detail)
			return
		}
	}
}
