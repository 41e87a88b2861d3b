package commit

import (
	"context"
	"errors"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
)

// compare reads the newest snapshot. The outcome is Compared if claims without anything to commit still have the
// positions that the reader expects. It is Dropped if another member or an operator has moved one of them, or the table
// was replaced. If the snapshot cannot be read, failureOutcome decides.
func (r *resolver) compare(ctx context.Context, expected map[connector.Partition]int64) Outcome {
	s, err := r.table.Load(ctx)
	if err != nil {
		return r.committer.failureOutcome(ctx, nil, err)
	}
	before := r.snapshot
	r.snapshot = s
	if before != nil && before.TableID != s.TableID || plan.Replaced(s, r.pipeline) != "" {
		return Outcome{Kind: Dropped, Err: classify.Mark(errors.New("the table was replaced"), classify.Fenced)}
	}
	for p, at := range expected {
		if now, ok := s.Positions[p.AppID(r.pipeline)]; !ok || now != at {
			return Outcome{Kind: Dropped, Err: classify.Mark(errors.New("the position of "+p.String()+" moved"), classify.Fenced)}
		}
	}
	return Outcome{Kind: Compared}
}

// measure returns the partitions of the topics whose position is before the end that their log had at the first call of
// measure; Next is -1 for a partition without a position. It covers the partitions of all members: a member that has
// just died may still have partitions assigned that it no longer reads. ok is false if Kafka or the table could not be
// read.
func (r *resolver) measure(ctx context.Context) (behind []connector.Position, ok bool) {
	if r.ends == nil {
		ends, err := r.currentEnds(ctx)
		if err != nil {
			return nil, false
		}
		r.ends = ends
	}
	s, err := r.table.Load(ctx)
	if err != nil {
		return nil, false
	}
	for p, end := range r.ends {
		at, known := s.Positions[p.AppID(r.pipeline)]
		switch {
		case !known:
			behind = append(behind, connector.Position{Partition: p, Next: -1, Epoch: -1})
		case at < end:
			behind = append(behind, connector.Position{Partition: p, Next: at, Epoch: -1})
		}
	}
	return behind, true
}

// currentEnds returns the last stable offsets of all partitions of the table's topics, including those that other
// members read.
func (r *resolver) currentEnds(ctx context.Context) (map[connector.Partition]int64, error) {
	ends := map[connector.Partition]int64{}
	for name := range r.start {
		topic, err := r.kafka.topic(ctx, name)
		if err != nil {
			return nil, err
		}
		bounds, err := r.kafka.bounds(ctx, positionsAt(topic.All()))
		if err != nil {
			return nil, err
		}
		for p, b := range bounds {
			ends[p] = b.LastStable
		}
	}
	return ends, nil
}
