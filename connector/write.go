package connector

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"time"

	"sluice/classify"
	"sluice/reliability"
	"sluice/reliability/hold"
)

// openCut is a cut whose marker is on its way through the lanes.
type openCut struct {
	id     string // of the batch
	began  time.Time
	claims map[Partition]Span
	parts  chan part // one from each lane, with room for all
	passed atomic.Int32
	held   atomic.Int64 // of the batch pool, in bytes
	taken  bool         // by its writer, who owns this
}

// marked tells whether the marker is through all lanes.
func (o *openCut) marked(lanes int) bool { return int(o.passed.Load()) == lanes }

// part is what one lane had for a cut.
type part struct {
	lane       int
	chunks     []Chunk
	candidates []Candidate
	dropped    []Dropped
	ignored    ignoredNames
	failed     *failure // nothing of the part is usable, nor of the cut
}

// write gathers a cut from the lanes, decides and commits it.
func (w *writer) write(ctx context.Context, open *openCut) outcome {
	cut := w.gather(ctx, open)
	if cut == nil {
		return outcome{kind: fenced, err: context.Cause(ctx)}
	}
	logger := w.logger.With("batch_id", open.id)
	holding := w.hold(open, cut)
	defer holding.end()
	if _, err := cut.failedAt(); err != nil {
		return w.broken(ctx, cut, err)
	}
	if err := w.recall(ctx, cut); err != nil {
		return w.unsettled(ctx, nil, err)
	}
	plan := decide(cut, w.snapshot, w.terms(ctx, cut))
	holding.plan(plan.Pieces)
	if len(plan.Next) == 0 {
		w.metrics.stopped(plan)
		logger.DebugContext(ctx, "nothing to commit", "holds", len(plan.Holds))
		return outcome{kind: settled, plan: plan}
	}
	if len(plan.Pieces) > 0 && w.searches() {
		if o := w.rehearsed(ctx, cut, plan); o != nil {
			return *o
		}
	}
	began := time.Now()
	s, err := w.commit(ctx, plan, holding)
	if err == nil {
		w.snapshot, w.failures = s, 0
		w.trouble.settle()
		w.failing.unknown.Over(ctx, logger, "commits work again that failed for an unknown reason")
		w.failing.broken.Over(ctx, logger, "a batch that failed in our own work is in the table")
		w.state.isolated.passed(plan.Next)
		took := time.Since(began)
		w.metrics.committed(plan, took)
		w.metrics.stopped(plan)
		w.ignored.tell(ctx, w.logger, plan.Commit.Ignored)
		logger.InfoContext(ctx, "committed", plan.told(s.Version, took)...)
		return outcome{kind: settled, plan: plan}
	}
	if isLocal(err) {
		return w.broken(ctx, cut, err)
	}
	return w.unsettled(ctx, plan, err)
}

// told is what a line says of a plan that was committed.
func (p *Plan) told(version int64, took time.Duration) []any {
	var rows, letters, duplicates, health int64
	for _, r := range p.Commit.Ranges {
		rows, letters, duplicates, health = rows+r.Rows, letters+r.Letters, duplicates+r.Duplicates, health+r.HealthRecords
	}
	said := []any{"version", version, "partitions", len(p.Next), "rows", rows}
	if s := p.Commit.Staged; s != nil {
		said = append(said, "files", s.Count, "bytes", s.Bytes)
	}
	said = append(said, "letters", letters, "duplicates", duplicates, "health_records", health, "took", took.Round(time.Millisecond))
	if p.oldest > 0 {
		said = append(said, "oldest_age", time.Since(time.UnixMilli(p.oldest)).Round(time.Millisecond))
	}
	return said
}

// terms are those of now.
func (w *writer) terms(ctx context.Context, cut *Cut) terms {
	t := terms{pipeline: w.pipeline, member: w.member, letters: w.rules, allowed: map[string]bool{}}
	if w.recollection != nil {
		t.window, t.now, t.duplicates = w.recollection.Window, time.Now(), duplicatesToLog(ctx, w.logger)
	}
	for i := range cut.Candidates {
		topic := cut.Candidates[i].Partition.Topic
		if _, asked := t.allowed[topic]; !asked {
			t.allowed[topic] = w.floodAllowed(topic)
		}
	}
	return t
}

// unsettled says what becomes of the claims of a commit that did not happen, or not surely.
func (w *writer) unsettled(ctx context.Context, plan *Plan, err error) outcome {
	held := (*hold.Error)(nil)
	if plan != nil {
		w.metrics.lost(plan, classify.Of(err))
	}
	switch class := classify.Of(err); {
	case class == classify.Fenced, class == classify.Canceled:
		return outcome{kind: fenced, plan: plan, err: err}
	case errors.As(err, &held):
		return outcome{kind: failed, plan: plan, err: err}
	}
	// Unknown: nothing about the cut is trusted any more. Resume from the log, after a pause that grows.
	w.failures++
	w.metrics.failed.Inc()
	logger := w.logger
	if plan != nil {
		logger = logger.With("batch_id", plan.Commit.Batch)
	}
	w.failing.unknown.Failed(ctx, logger, slog.LevelError, "commit failed for an unknown reason, its claims resume from the table", "err", err, "failures", w.failures)
	_ = reliability.Wait(ctx, w.kafka.Backoff().Pause(w.failures)) // ends early with ctx, as it should
	return outcome{kind: fenced, plan: plan, err: err}
}

// gather waits for the part of every lane. nil if ctx ended first.
func (w *writer) gather(ctx context.Context, open *openCut) *Cut {
	open.taken = true
	parts := make([]part, w.lanes)
	for range w.lanes {
		select {
		case p := <-open.parts:
			parts[p.lane] = p
		case <-ctx.Done():
			for _, p := range parts {
				p.release(w.batch)
			}
			return nil
		}
	}
	cut := &Cut{Batch: open.id, Claims: open.claims, ignored: ignoredNames{}}
	for _, p := range parts {
		cut.Chunks = append(cut.Chunks, p.chunks...)
		cut.Candidates = append(cut.Candidates, p.candidates...)
		cut.Dropped = append(cut.Dropped, p.dropped...)
		cut.ignored.merge(p.ignored)
		if p.failed != nil {
			cut.failures = append(cut.failures, *p.failed)
		}
	}
	return cut
}

// discard gives back what the lanes have for a cut that was dropped before it was taken.
func (w *writer) discard(ctx context.Context, open *openCut) {
	if open.taken {
		return
	}
	if cut := w.gather(ctx, open); cut != nil {
		w.hold(open, cut).end()
	}
}
