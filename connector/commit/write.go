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

// A committer decides and commits the sealed batches of one table.
type committer struct {
	*writerState

	window     *window // nil if the table declares no identity
	decoder    connector.Decoder
	letters    connector.DeadLetters // nil if no topic of the table has dead letters
	verdicts   *plan.Verdicts
	member     string
	lanes      int
	batch      *bytepool.Pool
	wakeReader func() // makes the reader check whether memory is free

	decisions Decisions
	rules     map[string]connector.LetterRules // the rules for dead letters, by topic
	retry     reliability.RecordRetry
	backoff   reliability.Backoff

	letterLog letterLog
	ignored   ignoredLog
	failures  int                    // the number of consecutive batches that failed for an unknown reason
	unknown   reliability.FailureLog // logs failures for an unknown reason
	full      reliability.FailureLog // logs batches with fields that got no column because of a bound

	troubles     map[connector.Partition]*trouble // the local failures of each claim
	batchTrouble trouble                          // local failures of batches in which it is unknown which claim is at fault
	notBefore    time.Time                        // when the next batch may be written at the earliest
	encoded      bool                             // true once any row of the table was encoded since the start of the process
	failing      reliability.FailureLog           // logs local failures that continue after all attempts
}

// write gathers a sealed batch from the lanes, decides and commits it.
func (c *committer) write(ctx context.Context, barrier *lane.Barrier) Outcome {
	batch := c.gather(ctx, barrier)
	if batch == nil {
		return Outcome{Kind: Dropped, Err: context.Cause(ctx)}
	}
	logger := c.logger.With("batch_id", barrier.ID)
	reserved := c.reserve(barrier, batch)
	defer reserved.end()
	if _, err := batch.FailedAt(); err != nil {
		return c.lanesFailed(ctx, batch, err)
	}
	if batch.OpenedSince(c.snapshot, c.pipeline) { // otherwise the precondition would refuse the plan
		s, err := c.table.Load(ctx)
		if err != nil {
			return c.failureOutcome(ctx, nil, err)
		}
		c.snapshot = s
	}
	if err := c.window.load(ctx, batch); err != nil {
		return c.failureOutcome(ctx, nil, err)
	}
	decided := plan.Decide(batch, c.snapshot, c.terms(ctx, batch))
	var leaves map[connector.Partition]Leave
	if len(decided.Pieces) > 0 && c.needsRehearsal(batch) {
		var failed *Outcome
		if decided, leaves, failed = c.rehearseClaims(ctx, batch, decided); failed != nil {
			return *failed
		}
	}
	reserved.plan(decided.Pieces)
	if len(decided.Next) == 0 {
		c.metrics.stopped(decided)
		logger.DebugContext(ctx, "nothing to commit", "holds", len(decided.Holds), "leave", len(leaves))
		return Outcome{Kind: Committed, Plan: decided, Leaves: leaves}
	}
	began := time.Now()
	s, err := c.commit(ctx, decided, reserved)
	if err == nil {
		c.snapshot, c.failures = s, 0
		c.unknown.Over(ctx, logger, "commits succeed again after failures for an unknown reason")
		c.clearFailures(ctx, decided.Next)
		c.verdicts.Passed(decided.Next)
		took := time.Since(began)
		c.metrics.committed(decided, took)
		c.metrics.stopped(decided)
		c.ignored.log(ctx, c.logger, decided.Commit.Ignored)
		logger.InfoContext(ctx, "committed", commitAttrs(decided, s.Version, took)...)
		return Outcome{Kind: Committed, Plan: decided, Leaves: leaves}
	}
	if connector.IsLocal(err) {
		return c.encodeFailed(ctx, batch, err)
	}
	return c.failureOutcome(ctx, decided, err)
}

// commitAttrs returns the log attributes of a committed plan.
func commitAttrs(p *plan.Plan, version int64, took time.Duration) []any {
	var rows, letters, duplicates, health, repeats int64
	for _, r := range p.Commit.Ranges {
		rows, letters, duplicates, health, repeats = rows+r.Rows, letters+r.Letters, duplicates+r.Duplicates, health+r.HealthRecords, repeats+r.Repeats
	}
	attrs := []any{"version", version, "partitions", len(p.Next), "rows", rows}
	if s := p.Commit.Staged; s != nil {
		attrs = append(attrs, "files", s.Count, "bytes", s.Bytes)
	}
	attrs = append(attrs, "letters", letters, "duplicates", duplicates, "health_records", health, "took", took.Round(time.Millisecond))
	if repeats > 0 {
		attrs = append(attrs, "repeats", repeats)
	}
	if p.Oldest > 0 {
		attrs = append(attrs, "oldest_age", time.Since(time.UnixMilli(p.Oldest)).Round(time.Millisecond))
	}
	return attrs
}

// terms returns the current terms for Decide.
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

// failureOutcome returns the outcome of a batch or request that failed with err, or whose effect is unknown: Failed if
// err is a hold, otherwise Dropped. decided is the plan of a batch; nil if there is none. If err is neither a hold nor
// Fenced nor Canceled, failureOutcome pauses before it returns, longer after each such failure.
func (c *committer) failureOutcome(ctx context.Context, decided *plan.Plan, err error) Outcome {
	held := (*hold.Error)(nil)
	if decided != nil {
		c.metrics.failedRecordsOf(decided, classify.Of(err))
	}
	switch class := classify.Of(err); {
	case class == classify.Fenced, class == classify.Canceled:
		return Outcome{Kind: Dropped, Plan: decided, Err: err}
	case errors.As(err, &held):
		return Outcome{Kind: Failed, Plan: decided, Err: err}
	}
	// The reason is unknown: the batch is dropped, and after a growing pause the claims resume from the table.
	c.failures++
	c.metrics.failed.Inc()
	logger := c.logger
	if decided != nil {
		logger = logger.With("batch_id", decided.Commit.Batch)
	}
	c.unknown.Failed(ctx, logger, slog.LevelError, "commit failed for an unknown reason; its claims resume from the table", "err", err, "failures", c.failures)
	_ = reliability.Wait(ctx, c.backoff.Pause(c.failures)) // returns early if ctx ends
	return Outcome{Kind: Dropped, Plan: decided, Err: err}
}

// gather waits for the parts of a batch from all lanes. It returns nil if ctx ends first.
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
		batch.Origins = append(batch.Origins, p.Origins...)
		batch.Ignored.Merge(p.Ignored)
		if p.Failed != nil {
			batch.Failures = append(batch.Failures, *p.Failed)
		}
	}
	return batch
}

// discard releases the parts of a barrier whose batch is not wanted any more, unless write has taken them.
func (c *committer) discard(ctx context.Context, barrier *lane.Barrier) {
	if barrier.Taken {
		return
	}
	if batch := c.gather(ctx, barrier); batch != nil {
		c.reserve(barrier, batch).end()
	}
}
