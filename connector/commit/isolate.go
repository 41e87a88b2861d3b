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

// What becomes of records that fail in our own work, a [connector.LocalError]: their claim leaves the batch, so that the others commit,
// and is read again as record_retry says. In the end the records are looked for that alone fail while the rest passes. Such a record
// is remembered as isolated; when a lane meets it again it is a bad one. Where no record is at fault by itself, nothing is skipped: the
// claim is tried on.

// failedCode stands in metrics for what failed for a reason that nobody knows.
const failedCode = "unknown"

// trouble is what a writer knows of failures in our own work, one after the other: those of a claim, or of batches that no claim alone
// makes fail.
type trouble struct {
	failures int
	first    time.Time
	next     int64 // of a claim: behind the records that failed
	search   int   // failures below which the records at fault are not looked for: the last search found none
}

// Leave says that a claim leaves a batch, and when it may be read again; at once if Until is past. The next batch should be closed
// soon after it was read up to Next, unless that is 0.
type Leave struct {
	Session uint64
	Until   time.Time
	Next    int64
}

// lanesFailed says how it goes on behind a cut in which decoders failed. Nothing of it is usable. The claims whose records failed leave;
// the others are read again at once.
func (c *committer) lanesFailed(ctx context.Context, batch *plan.SealedBatch, err error) Outcome {
	c.metrics.failed.Inc()
	c.metrics.broken(batch)
	o := Outcome{Kind: Fenced, Err: err, Broken: true, Again: true, Leaves: map[connector.Partition]Leave{}}
	for p, failures := range blamed(batch) {
		alone := slices.DeleteFunc(slices.Clone(failures), func(f plan.Failure) bool { return !f.Alone })
		o.Leaves[p] = c.leave(ctx, batch, p, failures, alone, err)
	}
	return o
}

// blamed returns the failures of lanes by claim. A chunk that cannot be sealed is that of each claim with rows in it.
func blamed(batch *plan.SealedBatch) map[connector.Partition][]plan.Failure {
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

// leave says when a claim whose records failed is read again. failures are those of lanes, at the records that were found to be at
// fault by themselves.
func (c *committer) leave(ctx context.Context, batch *plan.SealedBatch, p connector.Partition, failures, at []plan.Failure, err error) Leave {
	t, now, attempts := c.troubleOf(p), time.Now(), c.retry.Attempts()
	if t.failures++; t.first.IsZero() {
		t.first = now
	}
	if t.failures >= attempts { // the next one is the last attempt, or behind it
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
		}, coordinatesOf(p, at)...)...)
	case len(at) > 0:
		c.isolate(ctx, batch, t.first, at)
		delete(c.troubles, p)
	default:
		pause := max(c.retry.Pause(attempts), c.backoff.Pause(t.failures-attempts))
		// The next batch is not the one that failed, but what there is: more of it may show who is at fault.
		l.Until, l.Next = now.Add(pause), 0
		c.goesOn(ctx, t, pause, append([]any{"err", err, "batch_id", batch.ID}, coordinatesOf(p, at)...))
	}
	return l
}

// troubleOf returns the trouble of a claim. What failed before it was known whose records are at fault began it.
func (c *committer) troubleOf(p connector.Partition) *trouble {
	t := c.troubles[p]
	if t == nil {
		t = &trouble{first: c.together.first}
		c.troubles[p] = t
	}
	return t
}

// encodeFailed says how it goes on behind a batch that failed to be encoded. The only claim of a batch is at fault.
func (c *committer) encodeFailed(ctx context.Context, batch *plan.SealedBatch, err error) Outcome {
	if p, sole := soleClaim(batch); sole && c.retry.Attempts() > 0 {
		c.metrics.failed.Inc()
		c.metrics.broken(batch)
		l := c.leave(ctx, batch, p, nil, nil, err)
		return Outcome{Kind: Fenced, Err: err, Broken: true, Again: true, Leaves: map[connector.Partition]Leave{p: l}}
	}
	return c.togetherFailed(ctx, batch, err)
}

// togetherFailed says how it goes on behind a batch that failed to be encoded, and no claim is known to be at fault. After the first
// time it is read again at once: then its claims are encoded one by one before it is written, see rehearsed. Where none of them fails
// alone, the batch is tried on as record_retry says.
func (c *committer) togetherFailed(ctx context.Context, batch *plan.SealedBatch, err error) Outcome {
	t, now, attempts := &c.together, time.Now(), c.retry.Attempts()
	if t.failures++; t.failures == 1 {
		t.first = now
	}
	c.metrics.failed.Inc()
	c.metrics.broken(batch)
	o := Outcome{Kind: Fenced, Err: err, Broken: true, Again: t.failures <= max(attempts, 1)}
	said := []any{"err", err, "batch_id", batch.ID}
	switch n := t.failures - 1; {
	case n == 0:
		c.logger.WarnContext(ctx, "a batch failed in our own work: it is read again, and its claims are encoded one by one", said...)
	case n <= attempts:
		pause := c.retry.Pause(n)
		c.notBefore = now.Add(pause)
		c.metrics.retries.WithLabelValues(c.pipeline, failedCode, soleTopic(batch)).Inc()
		c.logger.WarnContext(ctx, "Retry attempt", append([]any{"attempt", attemptOf(n, attempts), "pause", pause}, said...)...)
	default:
		pause := max(c.retry.Pause(attempts), c.backoff.Pause(n-attempts))
		c.notBefore = now.Add(pause)
		c.goesOn(ctx, t, pause, said)
	}
	return o
}

// goesOn logs that records fail although they were tried as often as record_retry says. Nothing is skipped.
func (c *committer) goesOn(ctx context.Context, t *trouble, pause time.Duration, said []any) {
	c.failing.Failed(ctx, c.logger, slog.LevelError, "records fail in our own work again and again, and none is at fault by itself: nothing is skipped, they are tried on",
		append([]any{"failures", t.failures, "failing_since", t.first, "pause", pause}, said...)...)
}

// soleClaim returns the claim of a cut that has only one.
func soleClaim(batch *plan.SealedBatch) (sole connector.Partition, ok bool) {
	for p := range batch.Claims {
		sole = p
	}
	return sole, len(batch.Claims) == 1
}

// overcome ends what failed and is in the table now.
func (c *committer) overcome(ctx context.Context, next map[connector.Partition]plan.Span) {
	c.together, c.notBefore = trouble{}, time.Time{}
	for p, span := range next {
		if t := c.troubles[p]; t != nil && span.Next >= t.next {
			delete(c.troubles, p)
		}
	}
	if len(c.troubles) == 0 {
		c.failing.Over(ctx, c.logger, "records that failed in our own work are in the table")
	}
}

// isolate remembers records that are at fault. Nothing waits for anything then.
func (c *committer) isolate(ctx context.Context, batch *plan.SealedBatch, first time.Time, at []plan.Failure) {
	for _, f := range at {
		c.verdicts.Add(f.Partition, f.Offset, plan.Verdict{
			Err: isolatedBy(f.Err), Retries: c.retry.Attempts(), First: first, Last: time.Now(),
		})
		if left, ok := c.letterLog.givenUp.Next(); ok {
			c.logger.ErrorContext(ctx, "Giving up", append([]any{
				"attempts", c.retry.Attempts(), "reason", string(deadletter.Isolated), "err", f.Err, "batch_id", batch.ID, "left_out", left,
			}, coordinatesOf(f.Partition, []plan.Failure{f})...)...)
		}
	}
}

func isolatedBy(err error) error {
	return classify.Mark(&connector.RefusedError{Reason: deadletter.Isolated, Detail: "it alone fails while the records around it pass", Err: err}, classify.Poison)
}

func attemptOf(n, attempts int) string { return strconv.Itoa(n) + "/" + strconv.Itoa(attempts) }

// soleTopic is the topic of a cut, "" if it has several: then nobody knows whose record it is.
func soleTopic(batch *plan.SealedBatch) (topic string) {
	for p := range batch.Claims {
		if topic != "" && topic != p.Topic {
			return ""
		}
		topic = p.Topic
	}
	return topic
}

// coordinatesOf are the words of a log line about a claim, and about the record at fault if one is known.
func coordinatesOf(p connector.Partition, at []plan.Failure) []any {
	said := []any{"topic", p.Topic, "partition", p.ID}
	if len(at) == 0 {
		return said
	}
	return append(said, "offset", at[0].Offset,
		"correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: p, Offset: at[0].Offset}))
}

// rehearses reports whether a cut is encoded to nowhere before it is written, while its rows are there: records of it failed before, or
// it is not known whose did.
func (c *committer) rehearses(batch *plan.SealedBatch) bool {
	for p := range batch.Claims {
		if c.troubles[p] != nil {
			return true
		}
	}
	return c.together.failures > 0
}

// rehearsed encodes the plan of a cut to nowhere. If that fails, it encodes each claim by itself: those that fail leave, and the result
// is the plan of the others. failed is what becomes of the cut if it cannot be written at all.
func (c *committer) rehearsed(ctx context.Context, batch *plan.SealedBatch, decided *plan.Plan) (rest *plan.Plan, leaves map[connector.Partition]Leave, failed *Outcome) {
	err := c.rehearse(ctx, decided.Pieces)
	if err == nil {
		return decided, nil, nil
	}
	give := func(o Outcome) (*plan.Plan, map[connector.Partition]Leave, *Outcome) { return nil, nil, &o }
	if !connector.IsLocal(err) {
		return give(c.unsettled(ctx, decided, err))
	}
	leaves = map[connector.Partition]Leave{}
	passing, leaving := *batch, *batch
	passing.Claims, leaving.Claims = maps.Clone(batch.Claims), map[connector.Partition]plan.Span{}
	for _, p := range slices.SortedFunc(maps.Keys(decided.Next), connector.Partition.Compare) {
		pieces := c.piecesOf(ctx, batch, p)
		alone := err // if there is only this one
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
			return give(c.unsettled(ctx, decided, alone))
		}
		at, stopped := c.faults(ctx, batch, p, pieces)
		if stopped != nil {
			return give(c.unsettled(ctx, decided, stopped))
		}
		leaves[p] = c.leave(ctx, batch, p, nil, at, alone)
		leaving.Claims[p] = passing.Claims[p]
		delete(passing.Claims, p)
	}
	if len(leaves) == 0 {
		return give(c.togetherFailed(ctx, batch, err))
	}
	c.metrics.failed.Inc()
	c.metrics.broken(&leaving)
	rest = plan.Decide(&passing, c.snapshot, c.terms(ctx, &passing))
	if len(rest.Pieces) > 0 {
		if err := c.rehearse(ctx, rest.Pieces); connector.IsLocal(err) {
			return give(c.togetherFailed(ctx, &passing, err))
		} else if err != nil {
			return give(c.unsettled(ctx, rest, err))
		}
	}
	return rest, leaves, nil
}

// piecesOf returns the rows of one claim that a cut would commit.
func (c *committer) piecesOf(ctx context.Context, batch *plan.SealedBatch, p connector.Partition) []connector.Piece {
	only := *batch
	only.Claims = map[connector.Partition]plan.Span{p: batch.Claims[p]}
	return plan.Decide(&only, c.snapshot, c.terms(ctx, &only)).Pieces
}

// faults looks for the records of a claim that alone fail, if this was its last attempt.
func (c *committer) faults(ctx context.Context, batch *plan.SealedBatch, p connector.Partition, pieces []connector.Piece) (at []plan.Failure, stopped error) {
	t := c.troubleOf(p)
	if failures := t.failures + 1; failures <= c.retry.Attempts() || failures < t.search {
		return nil, nil
	}
	if at, stopped = c.search(ctx, batch, pieces); len(at) == 0 {
		t.search = t.failures + 1 + min(t.failures+1-c.retry.Attempts(), maxSkipped)
	}
	return at, stopped
}

// rehearse encodes pieces to nowhere.
func (c *committer) rehearse(ctx context.Context, pieces []connector.Piece) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = connector.Recovered(encoding, v)
		}
	}()
	return c.table.Rehearse(ctx, c.snapshot, pieces)
}

const encoding = "encode"

// maxSkipped is how many failures the next search for records at fault waits for, at most.
const maxSkipped = 8

const (
	// maxFound and mostTries bound a search: beyond them something else is wrong than single records.
	maxFound = 100
	maxTries = 5_000
)

// search finds the rows of pieces that alone fail to be encoded while the rest passes. Encoding all of them has
// failed. None if there are no such rows; stopped is why the search could not go on.
func (c *committer) search(ctx context.Context, batch *plan.SealedBatch, pieces []connector.Piece) (at []plan.Failure, stopped error) {
	s := bisection{try: func(p []connector.Piece) error { return c.rehearse(ctx, p) }}
	if stopped = s.halve(pieces); stopped != nil || len(s.found) == 0 || s.many() {
		return nil, stopped
	}
	if rest := without(pieces, s.found); len(rest) > 0 {
		if stopped = s.try(rest); connector.IsLocal(stopped) {
			return nil, nil // not these records alone
		} else if stopped != nil {
			return nil, stopped
		}
	} else if !c.encoded || len(s.found) > 1 {
		return nil, nil // nothing shows that anything passes
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

// bisection looks for rows that fail, by halves.
type bisection struct {
	try   func([]connector.Piece) error // nil if all of them pass together
	tries int
	found []connector.Piece // of one row each
	errs  []error
}

func (s *bisection) many() bool { return len(s.found) > maxFound || s.tries > maxTries }

// halve looks into pieces that failed together. Its error is of another kind than what is looked for.
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

// narrow tries pieces, and looks into them if they fail.
func (s *bisection) narrow(pieces []connector.Piece) error {
	if s.many() {
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

func rowsOf(pieces []connector.Piece) (n int64) {
	for _, p := range pieces {
		n += p.To - p.From
	}
	return n
}

// split parts pieces behind the first n rows.
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

// without returns pieces without some of their rows, which are in the same order.
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
