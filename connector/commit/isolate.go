package commit

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// In a local failure (see [connector.LocalError]), a decoder or the encoder fails for an unknown reason. The claim of
// the records leaves the batch, so that the other claims commit, and is read again as record_retry says. After the last
// attempt the writer searches for the records that fail on their own while all others pass. It remembers a verdict for
// each, reason isolated, so that a lane treats the record as bad when it is read again. If no single record is at
// fault, nothing is skipped and the claim is retried.

// failedCode is the error label in metrics for failures of unknown cause.
const failedCode = "unknown"

// trouble has the consecutive local failures of one claim, or those of batches in which it is unknown which claim is at
// fault.
type trouble struct {
	failures int
	first    time.Time
	next     int64 // only of a claim: the offset after the records that failed
	search   int   // if a search has found no record at fault: the number of failures at which the next search may run
}

// Leave says that a claim leaves a batch, and that it may be read again after Until, which may be in the past. Unless
// Next is 0, the next batch should be sealed as soon as the claim was read up to Next.
type Leave struct {
	Session uint64
	Until   time.Time
	Next    int64
}

// lanesFailed returns the outcome of a sealed batch in which decoders failed. The batch cannot be committed. The claims
// whose records failed leave the batch; the records of the other claims are read again at once.
func (c *committer) lanesFailed(ctx context.Context, batch *plan.SealedBatch, err error) Outcome {
	c.metrics.failed.Inc()
	c.metrics.failedBatch(batch)
	o := Outcome{Kind: Dropped, Err: err, Broken: true, Again: true, Leaves: map[connector.Partition]Leave{}}
	for p, failures := range failuresByClaim(batch) {
		alone := slices.DeleteFunc(slices.Clone(failures), func(f plan.Failure) bool { return !f.Alone })
		o.Leaves[p] = c.leaveBatch(ctx, batch, p, failures, alone, err)
	}
	return o
}

// failuresByClaim returns, for each claim, the failures of lanes that concern it. A chunk that could not be sealed
// concerns each claim with rows in it.
func failuresByClaim(batch *plan.SealedBatch) map[connector.Partition][]plan.Failure {
	all := map[connector.Partition][]plan.Failure{}
	for _, f := range batch.Failures {
		claims := map[connector.Partition]uint64{f.Partition: f.Session}
		if f.Sealing {
			for _, run := range f.Runs {
				claims[run.Partition] = run.Session
			}
		}
		for p, session := range claims {
			if span, ok := batch.Claims[p]; ok && span.Session == session {
				all[p] = append(all[p], f)
			}
		}
	}
	return all
}

// leaveBatch counts a failure of a claim, and returns how the claim leaves the batch. The parameter failures has what
// the lanes reported, and at has the records that were found to fail on their own. After the last attempt, the records
// in at become isolated, and the claim may be read at once.
func (c *committer) leaveBatch(ctx context.Context, batch *plan.SealedBatch, p connector.Partition, failures, at []plan.Failure, err error) Leave {
	t, now, attempts := c.troubleOf(p), time.Now(), c.retry.Attempts()
	if t.failures++; t.first.IsZero() {
		t.first = now
	}
	if t.failures >= attempts { // after this failure comes the last attempt, or there were more than record_retry allows
		c.verdicts.Suspect(failures)
	}
	span := batch.Claims[p]
	t.next = span.Next
	l := Leave{Session: span.Session, Next: span.Next}
	switch {
	case t.failures <= attempts:
		pause := c.retry.Pause(t.failures)
		l.Until = now.Add(pause)
		c.metrics.retries.WithLabelValues(c.pipeline, failedCode, p.Topic).Inc()
		c.logger.WarnContext(ctx, "Retry attempt", append([]any{
			"attempt", attemptOf(t.failures, attempts), "pause", pause, "err", err, "batch_id", batch.ID,
		}, coordinateAttrs(p, at)...)...)
	case len(at) > 0:
		c.isolate(ctx, batch, t.first, at)
		delete(c.troubles, p)
	default:
		pause := max(c.retry.Pause(attempts), c.backoff.Pause(t.failures-attempts))
		// The next batch is sealed as usual, not with the same records as the batch that failed, because other records
		// may show which one is at fault.
		l.Until, l.Next = now.Add(pause), 0
		c.logStillFailing(ctx, t, pause, append([]any{"err", err, "batch_id", batch.ID}, coordinateAttrs(p, at)...))
	}
	return l
}

// troubleOf returns the trouble of a claim, which it creates if there is none. If batches failed before the claim at
// fault was known, a new trouble has the time of their first failure.
func (c *committer) troubleOf(p connector.Partition) *trouble {
	t := c.troubles[p]
	if t == nil {
		t = &trouble{first: c.batchTrouble.first}
		c.troubles[p] = t
	}
	return t
}

// encodeFailed returns the outcome of a batch that could not be encoded. If the batch has only one claim and
// record_retry allows attempts, that claim leaves the batch; otherwise togetherFailed decides.
func (c *committer) encodeFailed(ctx context.Context, batch *plan.SealedBatch, err error) Outcome {
	if p, sole := soleClaim(batch); sole && c.retry.Attempts() > 0 {
		c.metrics.failed.Inc()
		c.metrics.failedBatch(batch)
		l := c.leaveBatch(ctx, batch, p, nil, nil, err)
		return Outcome{Kind: Dropped, Err: err, Broken: true, Again: true, Leaves: map[connector.Partition]Leave{p: l}}
	}
	return c.togetherFailed(ctx, batch, err)
}

// togetherFailed returns the outcome of a batch that could not be encoded while it is unknown which claim is at fault.
// After the first failure its records are read again at once, and then the claims are encoded one by one before
// anything is written: see rehearseClaims. If no claim fails alone, the batch is retried as record_retry says.
func (c *committer) togetherFailed(ctx context.Context, batch *plan.SealedBatch, err error) Outcome {
	t, now, attempts := &c.batchTrouble, time.Now(), c.retry.Attempts()
	if t.failures++; t.failures == 1 {
		t.first = now
	}
	c.metrics.failed.Inc()
	c.metrics.failedBatch(batch)
	o := Outcome{Kind: Dropped, Err: err, Broken: true, Again: t.failures <= max(attempts, 1)}
	attrs := []any{"err", err, "batch_id", batch.ID}
	switch n := t.failures - 1; {
	case n == 0:
		c.logger.WarnContext(ctx, "failed to encode a batch; reading it again to encode its claims one by one", attrs...)
	case n <= attempts:
		pause := c.retry.Pause(n)
		c.notBefore = now.Add(pause)
		c.metrics.retries.WithLabelValues(c.pipeline, failedCode, soleTopic(batch)).Inc()
		c.logger.WarnContext(ctx, "Retry attempt", append([]any{"attempt", attemptOf(n, attempts), "pause", pause}, attrs...)...)
	default:
		pause := max(c.retry.Pause(attempts), c.backoff.Pause(n-attempts))
		c.notBefore = now.Add(pause)
		c.logStillFailing(ctx, t, pause, attrs)
	}
	return o
}

// logStillFailing logs that records still fail after all attempts of record_retry. Nothing is skipped.
func (c *committer) logStillFailing(ctx context.Context, t *trouble, pause time.Duration, attrs []any) {
	c.failing.Failed(ctx, c.logger, slog.LevelError, "records keep failing and no single record is at fault; retrying without skipping any",
		append([]any{"failures", t.failures, "failing_since", t.first, "pause", pause}, attrs...)...)
}

// soleClaim returns the claim of a sealed batch if it has only one; otherwise ok is false.
func soleClaim(batch *plan.SealedBatch) (sole connector.Partition, ok bool) {
	for p := range batch.Claims {
		sole = p
	}
	return sole, len(batch.Claims) == 1
}

// clearFailures runs after a commit. It resets batchTrouble, and deletes the trouble of each claim whose new position
// is at or after the end of the records that failed.
func (c *committer) clearFailures(ctx context.Context, next map[connector.Partition]plan.Span) {
	c.batchTrouble, c.notBefore = trouble{}, time.Time{}
	for p, span := range next {
		if t := c.troubles[p]; t != nil && span.Next >= t.next {
			delete(c.troubles, p)
		}
	}
	if len(c.troubles) == 0 {
		c.failing.Over(ctx, c.logger, "records that kept failing are committed")
	}
}

// isolate adds a verdict for each record that fails on its own, so that lanes treat it as a bad record from now on.
func (c *committer) isolate(ctx context.Context, batch *plan.SealedBatch, first time.Time, at []plan.Failure) {
	for _, f := range at {
		c.verdicts.Add(f.Partition, f.Offset, plan.Verdict{
			Err: isolatedBy(f.Err), Retries: c.retry.Attempts(), First: first, Last: time.Now(),
		})
		if left, ok := c.letterLog.givenUp.Next(); ok {
			c.logger.ErrorContext(ctx, "Giving up", append([]any{
				"attempts", c.retry.Attempts(), "reason", string(deadletter.Isolated), "err", f.Err, "batch_id", batch.ID, "left_out", left,
			}, coordinateAttrs(f.Partition, []plan.Failure{f})...)...)
		}
	}
}

// isolatedBy returns the Poison error with reason isolated for a record that fails on its own with err.
func isolatedBy(err error) error {
	return classify.Mark(&connector.RefusedError{Reason: deadletter.Isolated, Detail: "it alone fails while the records around it pass", Err: err}, classify.Poison)
}

func attemptOf(n, attempts int) string { return strconv.Itoa(n) + "/" + strconv.Itoa(attempts) }

// soleTopic returns the topic of a sealed batch. It returns "" if the batch has several topics, because the failed
// record may be of any of them.
func soleTopic(batch *plan.SealedBatch) (topic string) {
	for p := range batch.Claims {
		if topic != "" && topic != p.Topic {
			return ""
		}
		topic = p.Topic
	}
	return topic
}

// coordinateAttrs returns log attributes: the claim, and the first record at fault if one is known.
func coordinateAttrs(p connector.Partition, at []plan.Failure) []any {
	attrs := []any{"topic", p.Topic, "partition", p.ID}
	if len(at) == 0 {
		return attrs
	}
	return append(attrs, "offset", at[0].Offset,
		"correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: p, Offset: at[0].Offset}))
}

// needsRehearsal reports whether a sealed batch must be encoded once without writing, while its rows are still in
// memory. This is so if records of its claims failed before, or if a batch failed and it is unknown which claim is at
// fault.
func (c *committer) needsRehearsal(batch *plan.SealedBatch) bool {
	for p := range batch.Claims {
		if c.troubles[p] != nil {
			return true
		}
	}
	return c.batchTrouble.failures > 0
}

// rehearseClaims encodes the plan of a sealed batch without writing it. If that succeeds, rest is decided. If it fails,
// the rows of each claim are encoded alone: claims that fail leave the batch, and rest is a new plan for the other
// claims. If nothing can be written, failed is the outcome of the batch; otherwise failed is nil.
func (c *committer) rehearseClaims(ctx context.Context, batch *plan.SealedBatch, decided *plan.Plan) (rest *plan.Plan, leaves map[connector.Partition]Leave, failed *Outcome) {
	err := c.rehearse(ctx, decided.Pieces)
	if err == nil {
		return decided, nil, nil
	}
	give := func(o Outcome) (*plan.Plan, map[connector.Partition]Leave, *Outcome) { return nil, nil, &o }
	if !connector.IsLocal(err) {
		return give(c.failureOutcome(ctx, decided, err))
	}
	leaves = map[connector.Partition]Leave{}
	passing, leaving := *batch, *batch
	passing.Claims, leaving.Claims = maps.Clone(batch.Claims), map[connector.Partition]plan.Span{}
	for _, p := range slices.SortedFunc(maps.Keys(decided.Next), connector.Partition.Compare) {
		pieces := c.piecesOf(ctx, batch, p)
		alone := err // the result for a claim that is the only one in the batch
		if len(pieces) == 0 {
			alone = nil
		} else if len(decided.Next) > 1 {
			alone = c.rehearse(ctx, pieces)
		}
		if alone == nil {
			c.encoded = c.encoded || len(pieces) > 0
			continue
		}
		if !connector.IsLocal(alone) {
			return give(c.failureOutcome(ctx, decided, alone))
		}
		at, stopped := c.faults(ctx, batch, p, pieces)
		if stopped != nil {
			return give(c.failureOutcome(ctx, decided, stopped))
		}
		leaves[p] = c.leaveBatch(ctx, batch, p, nil, at, alone)
		leaving.Claims[p] = passing.Claims[p]
		delete(passing.Claims, p)
	}
	if len(leaves) == 0 {
		return give(c.togetherFailed(ctx, batch, err))
	}
	c.metrics.failed.Inc()
	c.metrics.failedBatch(&leaving)
	rest = plan.Decide(&passing, c.snapshot, c.terms(ctx, &passing))
	if len(rest.Pieces) > 0 {
		if err := c.rehearse(ctx, rest.Pieces); connector.IsLocal(err) {
			return give(c.togetherFailed(ctx, &passing, err))
		} else if err != nil {
			return give(c.failureOutcome(ctx, rest, err))
		}
	}
	return rest, leaves, nil
}

// piecesOf returns the rows of a claim in a sealed batch that would be committed without the other claims.
func (c *committer) piecesOf(ctx context.Context, batch *plan.SealedBatch, p connector.Partition) []connector.Piece {
	only := *batch
	only.Claims = map[connector.Partition]plan.Span{p: batch.Claims[p]}
	return plan.Decide(&only, c.snapshot, c.terms(ctx, &only)).Pieces
}

// faults searches for the records of a claim that fail on their own, once the attempts of record_retry are used up. If
// it finds none, it waits for a growing number of further failures, at most maxSearchGap, before it searches again.
// stopped is the error that ended the search early.
func (c *committer) faults(ctx context.Context, batch *plan.SealedBatch, p connector.Partition, pieces []connector.Piece) (at []plan.Failure, stopped error) {
	t := c.troubleOf(p)
	if failures := t.failures + 1; failures <= c.retry.Attempts() || failures < t.search {
		return nil, nil
	}
	if at, stopped = c.search(ctx, batch, pieces); len(at) == 0 {
		t.search = t.failures + 1 + min(t.failures+1-c.retry.Attempts(), maxSearchGap)
	}
	return at, stopped
}

// rehearse encodes pieces without writing them. A panic becomes a [connector.LocalError].
func (c *committer) rehearse(ctx context.Context, pieces []connector.Piece) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = connector.Recovered(encoding, v)
		}
	}()
	snapshot, err := c.grow(ctx, "", pieces)
	if err != nil {
		return err
	}
	return c.table.Rehearse(ctx, snapshot, pieces)
}

const encoding = "encode"

// maxSearchGap is the maximum number of failures between two searches for records at fault.
const maxSearchGap = 8

const (
	// maxFound and maxTries bound a search. A search that exceeds one of them has shown that single records are not the
	// cause.
	maxFound = 100
	maxTries = 5_000
)

// search returns those rows of pieces that fail to be encoded on their own while all others can be encoded. The caller
// knows that all pieces together fail. search returns none if there are no such rows; stopped is the error that ended
// it early.
func (c *committer) search(ctx context.Context, batch *plan.SealedBatch, pieces []connector.Piece) (at []plan.Failure, stopped error) {
	s := bisection{try: func(p []connector.Piece) error { return c.rehearse(ctx, p) }}
	if stopped = s.halve(pieces); stopped != nil || len(s.found) == 0 || s.exhausted() {
		return nil, stopped
	}
	if rest := without(pieces, s.found); len(rest) > 0 {
		if stopped = s.try(rest); connector.IsLocal(stopped) {
			return nil, nil // without these rows, encoding still fails
		} else if stopped != nil {
			return nil, stopped
		}
	} else if !c.encoded || len(s.found) > 1 {
		return nil, nil // nothing has shown that encoding works at all
	}
	for i, row := range s.found {
		run := batch.RunOf(row)
		offset, ok := c.table.OffsetOf(row.Rows, row.From)
		if run == nil || !ok {
			return nil, nil
		}
		at = append(at, plan.Failure{Partition: run.Partition, Session: run.Session, Offset: offset, Err: s.errs[i], Alone: true})
	}
	return at, nil
}

// bisection searches for failing rows by halves.
type bisection struct {
	try   func([]connector.Piece) error // encodes pieces; nil means that they can be encoded together
	tries int
	found []connector.Piece // the failing rows found so far, one row in each piece
	errs  []error
}

// exhausted reports whether the search has exceeded its bounds.
func (s *bisection) exhausted() bool { return len(s.found) > maxFound || s.tries > maxTries }

// halve searches both halves of pieces that failed together. A local failure is a result of the search; any other error
// ends the search and is returned.
func (s *bisection) halve(pieces []connector.Piece) error {
	if rowsOf(pieces) == 1 {
		_, one := split(pieces, 0)
		return s.narrow(one)
	}
	a, b := split(pieces, rowsOf(pieces)/2)
	if err := s.narrow(a); err != nil {
		return err
	}
	return s.narrow(b)
}

// narrow tries pieces. If they fail, it searches within them.
func (s *bisection) narrow(pieces []connector.Piece) error {
	if s.exhausted() {
		return nil
	}
	s.tries++
	err := s.try(pieces)
	switch {
	case err == nil:
		return nil
	case !connector.IsLocal(err):
		return err
	case rowsOf(pieces) == 1:
		s.found, s.errs = append(s.found, pieces[0]), append(s.errs, err)
		return nil
	}
	return s.halve(pieces)
}

// rowsOf returns the number of rows of pieces.
func rowsOf(pieces []connector.Piece) (n int64) {
	for _, p := range pieces {
		n += p.To - p.From
	}
	return n
}

// split splits pieces after the first n rows.
func split(pieces []connector.Piece, n int64) (a, b []connector.Piece) {
	for _, p := range pieces {
		size := p.To - p.From
		switch {
		case size == 0:
		case n >= size:
			a = append(a, p)
		case n <= 0:
			b = append(b, p)
		default:
			a, b = append(a, connector.Piece{Rows: p.Rows, From: p.From, To: p.From + n}), append(b, connector.Piece{Rows: p.Rows, From: p.From + n, To: p.To})
		}
		n -= size
	}
	return a, b
}

// without returns the part of pieces that is not in rows. Both must have their rows in the same order.
func without(pieces, rows []connector.Piece) (rest []connector.Piece) {
	for _, p := range pieces {
		for len(rows) > 0 && rows[0].Rows == p.Rows && rows[0].From >= p.From && rows[0].From < p.To {
			if rows[0].From > p.From {
				rest = append(rest, connector.Piece{Rows: p.Rows, From: p.From, To: rows[0].From})
			}
			p.From, rows = rows[0].To, rows[1:]
		}
		if p.From < p.To {
			rest = append(rest, p)
		}
	}
	return slices.Clip(rest)
}
