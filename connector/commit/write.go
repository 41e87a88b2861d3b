package commit

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
)

// A committer decides what a cut of the table commits, and commits it.
type committer struct {
	*current

	window     *window               // of duplicates; nil if the table declares no identity
	letters    connector.DeadLetters // nil if no topic of the table has them
	verdicts   *plan.Verdicts
	member     string
	lanes      int
	batch      *bytepool.Pool
	wakeReader func() // has the reader look again

	decisions Decisions
	rules     map[string]connector.LetterRules // by topic
	retry     reliability.RecordRetry
	backoff   reliability.Backoff

	letterLog letterLog
	ignored   ignoredLog
	failures  int                    // consecutive cuts that failed for an unknown reason
	unknown   reliability.FailureLog // logs them

	troubles  map[connector.Partition]*trouble // of claims whose records failed in our own work
	together  trouble                          // of batches that failed so, and no claim alone made them fail
	notBefore time.Time                        // when the next cut may be written
	encoded   bool                             // rows of this table, since the start of the process
	failing   reliability.FailureLog           // logs what fails in our own work for long
}

// write gathers a cut from the lanes, decides and commits it.
func (c *committer) write(ctx context.Context, barrier *lane.Barrier) Outcome {
	batch := c.gather(ctx, barrier)
	if batch == nil {
		return Outcome{Kind: Fenced, Err: context.Cause(ctx)}
	}
	logger := c.logger.With("batch_id", barrier.ID)
	reserved := c.reserve(barrier, batch)
	defer reserved.end()
	if _, err := batch.FailedAt(); err != nil {
		return c.lanesFailed(ctx, batch, err)
	}
	if err := c.window.load(ctx, batch); err != nil {
		return c.unsettled(ctx, nil, err)
	}
	plan := plan.Decide(batch, c.snapshot, c.terms(ctx, batch))
	var leaves map[connector.Partition]Leave
	if len(plan.Pieces) > 0 && c.rehearses(batch) {
		var failed *Outcome
		if plan, leaves, failed = c.rehearsed(ctx, batch, plan); failed != nil {
			return *failed
		}
	}
	reserved.plan(plan.Pieces)
	if len(plan.Next) == 0 {
		c.metrics.stopped(plan)
		logger.DebugContext(ctx, "nothing to commit", "holds", len(plan.Holds), "leave", len(leaves))
		return Outcome{Kind: Committed, Plan: plan, Leaves: leaves}
	}
	began := time.Now()
	s, err := c.commit(ctx, plan, reserved)
	if err == nil {
		c.snapshot, c.failures = s, 0
		c.unknown.Over(ctx, logger, "commits work again that failed for an unknown reason")
		c.overcome(ctx, plan.Next)
		c.verdicts.Passed(plan.Next)
		took := time.Since(began)
		c.metrics.committed(plan, took)
		c.metrics.stopped(plan)
		c.ignored.log(ctx, c.logger, plan.Commit.Ignored)
		logger.InfoContext(ctx, "committed", wordsOf(plan, s.Version, took)...)
		return Outcome{Kind: Committed, Plan: plan, Leaves: leaves}
	}
	if connector.IsLocal(err) {
		return c.encodeFailed(ctx, batch, err)
	}
	return c.unsettled(ctx, plan, err)
}

// wordsOf is what a line says of a plan that was committed.
func wordsOf(p *plan.Plan, version int64, took time.Duration) []any {
	var rows, letters, duplicates, health int64
	for _, r := range p.Commit.Ranges {
		rows, letters, duplicates, health = rows+r.Rows, letters+r.Letters, duplicates+r.Duplicates, health+r.HealthRecords
	}
	said := []any{"version", version, "partitions", len(p.Next), "rows", rows}
	if s := p.Commit.Staged; s != nil {
		said = append(said, "files", s.Count, "bytes", s.Bytes)
	}
	said = append(said, "letters", letters, "duplicates", duplicates, "health_records", health, "took", took.Round(time.Millisecond))
	if p.Oldest > 0 {
		said = append(said, "oldest_age", time.Since(time.UnixMilli(p.Oldest)).Round(time.Millisecond))
	}
	return said
}

// terms are those of now.
func (c *committer) terms(ctx context.Context, batch *plan.SealedBatch) plan.Terms {
	t := plan.Terms{Pipeline: c.pipeline, Member: c.member, Letters: c.rules, Allowed: map[string]bool{}}
	if c.window != nil {
		t.Window, t.Now, t.Duplicates = c.window.Window, time.Now(), duplicatesToLog(ctx, c.logger)
	}
	for i := range batch.Candidates {
		topic := batch.Candidates[i].Partition.Topic
		if _, asked := t.Allowed[topic]; !asked {
			t.Allowed[topic] = c.decisions.FloodAllowed(topic)
		}
	}
	return t
}

// unsettled says what becomes of the claims of a commit that did not happen, or not surely.
func (c *committer) unsettled(ctx context.Context, plan *plan.Plan, err error) Outcome {
	held := (*hold.Error)(nil)
	if plan != nil {
		c.metrics.conflict(plan, classify.Of(err))
	}
	switch class := classify.Of(err); {
	case class == classify.Fenced, class == classify.Canceled:
		return Outcome{Kind: Fenced, Plan: plan, Err: err}
	case errors.As(err, &held):
		return Outcome{Kind: Failed, Plan: plan, Err: err}
	}
	// Unknown: nothing about the cut is trusted any more. Resume from the log, after a pause that grows.
	c.failures++
	c.metrics.failed.Inc()
	logger := c.logger
	if plan != nil {
		logger = logger.With("batch_id", plan.Commit.Batch)
	}
	c.unknown.Failed(ctx, logger, slog.LevelError, "commit failed for an unknown reason, its claims resume from the table", "err", err, "failures", c.failures)
	_ = reliability.Wait(ctx, c.backoff.Pause(c.failures)) // ends early with ctx, as it should
	return Outcome{Kind: Fenced, Plan: plan, Err: err}
}

// gather waits for the part of every lane. nil if ctx ended first.
func (c *committer) gather(ctx context.Context, barrier *lane.Barrier) *plan.SealedBatch {
	barrier.Taken = true
	parts := make([]lane.Part, c.lanes)
	for range c.lanes {
		select {
		case p := <-barrier.Parts:
			parts[p.Lane] = p
		case <-ctx.Done():
			for _, p := range parts {
				p.Release(c.batch)
			}
			return nil
		}
	}
	batch := &plan.SealedBatch{ID: barrier.ID, Claims: barrier.Claims, Ignored: plan.IgnoredNames{}}
	for _, p := range parts {
		batch.Chunks = append(batch.Chunks, p.Chunks...)
		batch.Candidates = append(batch.Candidates, p.Candidates...)
		batch.Dropped = append(batch.Dropped, p.Dropped...)
		batch.Ignored.Merge(p.Ignored)
		if p.Failed != nil {
			batch.Failures = append(batch.Failures, *p.Failed)
		}
	}
	return batch
}

// discard gives back what the lanes have for a cut that was dropped before it was taken.
func (c *committer) discard(ctx context.Context, barrier *lane.Barrier) {
	if barrier.Taken {
		return
	}
	if batch := c.gather(ctx, barrier); batch != nil {
		c.reserve(barrier, batch).end()
	}
}
