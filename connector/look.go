package connector

import (
	"context"
	"errors"

	"sluice/classify"
)

// look compares claims that have nothing to commit with the log: an operator or another member may have moved them.
func (w *writer) look(ctx context.Context, expected map[Partition]int64) outcome {
	s, err := w.table.Load(ctx)
	if err != nil {
		return w.unsettled(ctx, nil, err)
	}
	before := w.snapshot
	w.snapshot = s
	if before != nil && before.TableID != s.TableID || Replaced(s, w.pipeline) != "" {
		return outcome{kind: fenced, err: classify.Mark(errors.New("the table was replaced"), classify.Fenced)}
	}
	for p, at := range expected {
		if now, ok := s.Positions[p.AppID(w.pipeline)]; !ok || now != at {
			return outcome{kind: fenced, err: classify.Mark(errors.New("the position of "+p.String()+" moved"), classify.Fenced)}
		}
	}
	return outcome{kind: looked}
}

// measure returns the partitions of the topics that the table has not taken to where they ended when this was first
// asked: all of them, not only our claims. A member that died a moment ago may still have its share, and nobody reads it.
func (w *writer) measure(ctx context.Context) (behind []Position, ok bool) {
	if w.ends == nil {
		ends, err := w.currentEnds(ctx)
		if err != nil {
			return nil, false
		}
		w.ends = ends
	}
	s, err := w.table.Load(ctx)
	if err != nil {
		return nil, false
	}
	for p, end := range w.ends {
		at, known := s.Positions[p.AppID(w.pipeline)]
		switch {
		case !known:
			behind = append(behind, Position{p, -1, -1})
		case at < end:
			behind = append(behind, Position{p, at, -1})
		}
	}
	return behind, true
}

func (w *writer) currentEnds(ctx context.Context) (map[Partition]int64, error) {
	ends := map[Partition]int64{}
	for name := range w.start {
		topic, err := w.topic(ctx, name)
		if err != nil {
			return nil, err
		}
		bounds, err := w.bounds(ctx, positionsAt(topic.all()))
		if err != nil {
			return nil, err
		}
		for p, b := range bounds {
			ends[p] = b.LastStable
		}
	}
	return ends, nil
}
