package commit

import (
	"context"
	"errors"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
)

// compare compares claims that have nothing to commit with the log: an operator or another member may have moved them.
func (r *resolver) compare(ctx context.Context, expected map[connector.Partition]int64) Outcome {
	s, err := r.table.Load(ctx)
	if err != nil {
		return r.committer.unsettled(ctx, nil, err)
	}
	before := r.snapshot
	r.snapshot = s
	if before != nil && before.TableID != s.TableID || plan.Replaced(s, r.pipeline) != "" {
		return Outcome{Kind: Fenced, Err: classify.Mark(errors.New("the table was replaced"), classify.Fenced)}
	}
	for p, at := range expected {
		if now, ok := s.Positions[p.AppID(r.pipeline)]; !ok || now != at {
			return Outcome{Kind: Fenced, Err: classify.Mark(errors.New("the position of "+p.String()+" moved"), classify.Fenced)}
		}
	}
	return Outcome{Kind: Compared}
}

// measure returns the partitions of the topics that the table has not taken to where they ended when this was first
// asked: all of them, not only our claims. A member that died a moment ago may still have its share, and nobody reads it.
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
