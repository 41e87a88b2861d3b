package commit

import (
	"context"
	"log/slog"
	"slices"
	"strconv"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// What becomes of cuts that fail in our own work, a [connector.LocalError]: they are read and tried again as record_retry says, and
// then the records are found that alone make them fail while the rest passes. Such a record is remembered as isolated; when
// a lane meets it again it is a bad one. Where no record is at fault by itself, nothing is skipped: the cut is tried on.

// failedCode stands in metrics for what failed for a reason that nobody knows.
const failedCode = "unknown"

// trouble is what a writer knows of cuts that failed one after the other in our own work.
type trouble struct {
	failures int
	first    time.Time
	search   int // failures below which the records at fault are not looked for: the last search found none
	// notBefore is when the next cut may be written.
	notBefore time.Time
	encoded   bool // rows of this table, since the start of the process
}

// broken says how it goes on behind a cut that failed in our own work: tried again after a pause, the records at fault
// isolated, or neither.
func (c *committer) broken(ctx context.Context, cut *plan.Cut, err error) Outcome {
	t, now, attempts := &c.trouble, time.Now(), c.retry.Attempts()
	if t.failures++; t.failures == 1 {
		t.first = now
	}
	c.metrics.failed.Inc()
	c.metrics.broken(cut)
	// In the end the batch is not the one that failed before, but what there is: more of it may show who is at fault.
	o := Outcome{Kind: Fenced, Err: err, Broken: true, Again: t.failures <= attempts}
	if t.failures >= attempts { // the next one is the last attempt, or behind it
		c.verdicts.Suspect(cut.Failures)
	}
	at, _ := cut.FailedAt()
	switch {
	case t.failures <= attempts:
		pause := c.retry.Pause(t.failures)
		t.notBefore = now.Add(pause)
		c.metrics.retries.WithLabelValues(c.pipeline, failedCode, soleTopic(cut)).Inc()
		c.logger.WarnContext(ctx, "Retry attempt", append([]any{
			"attempt", attemptOf(t.failures, attempts), "pause", pause, "err", err, "batch_id", cut.Batch,
		}, coordinatesOf(at)...)...)
	case len(at) > 0:
		c.isolate(ctx, cut, at)
		o.Again = true
	default:
		pause := max(c.retry.Pause(attempts), c.backoff.Pause(t.failures-attempts))
		t.notBefore = now.Add(pause)
		c.failing.Failed(ctx, c.logger, slog.LevelError, "a batch fails in our own work again and again, and no record is at fault by itself: nothing is skipped, it is tried on",
			"failures", t.failures, "failing_since", t.first, "pause", pause, "err", err, "batch_id", cut.Batch)
	}
	return o
}

// isolate remembers records that are at fault. Nothing waits for anything then.
func (c *committer) isolate(ctx context.Context, cut *plan.Cut, at []plan.Failure) {
	for _, f := range at {
		c.verdicts.Add(f.Partition, f.Offset, plan.Verdict{
			Err: isolatedBy(f.Err), Retries: c.retry.Attempts(), First: c.trouble.first, Last: time.Now(),
		})
		if left, ok := c.told.givenUp.Next(); ok {
			c.logger.ErrorContext(ctx, "Giving up", append([]any{
				"attempts", c.retry.Attempts(), "reason", string(deadletter.Isolated), "err", f.Err, "batch_id", cut.Batch, "left_out", left,
			}, coordinatesOf([]plan.Failure{f})...)...)
		}
	}
	c.trouble.settle()
}

// settle ends a row of failures.
func (t *trouble) settle() { t.failures, t.search, t.notBefore = 0, 0, time.Time{} }

func isolatedBy(err error) error {
	return classify.Mark(&connector.RefusedError{Reason: deadletter.Isolated, Detail: "it alone fails while the records around it pass", Err: err}, classify.Poison)
}

func attemptOf(n, attempts int) string { return strconv.Itoa(n) + "/" + strconv.Itoa(attempts) }

// soleTopic is the topic of a cut, "" if it has several: then nobody knows whose record it is.
func soleTopic(cut *plan.Cut) (topic string) {
	for p := range cut.Claims {
		if topic != "" && topic != p.Topic {
			return ""
		}
		topic = p.Topic
	}
	return topic
}

// coordinatesOf are the words of a log line about a record, none if nobody knows which one it is.
func coordinatesOf(at []plan.Failure) []any {
	if len(at) == 0 {
		return nil
	}
	p := at[0].Partition
	return []any{
		"topic", p.Topic, "partition", p.ID, "offset", at[0].Offset,
		"correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: p, Offset: at[0].Offset}),
	}
}

// searches tells whether the next cut is the last attempt, so that the records at fault are looked for if it fails: while
// its rows are there.
func (c *committer) searches() bool {
	t := &c.trouble
	return t.failures > 0 && t.failures >= c.retry.Attempts() && t.failures >= t.search
}

// rehearsed encodes the plan of a cut to nowhere and looks for the records at fault if that fails. nil if it passes.
func (c *committer) rehearsed(ctx context.Context, cut *plan.Cut, plan *plan.Plan) *Outcome {
	err := c.rehearse(ctx, plan.Pieces)
	if err == nil {
		return nil
	}
	var o Outcome
	if !connector.IsLocal(err) {
		o = c.unsettled(ctx, plan, err)
		return &o
	}
	at, stopped := c.search(ctx, cut, plan.Pieces)
	switch {
	case stopped != nil:
		o = c.unsettled(ctx, plan, stopped)
	case len(at) > 0:
		c.metrics.failed.Inc()
		c.metrics.broken(cut)
		c.isolate(ctx, cut, at)
		o = Outcome{Kind: Fenced, Err: err, Broken: true, Again: true}
	default:
		o = c.broken(ctx, cut, err)
		c.trouble.search = c.trouble.failures + min(c.trouble.failures-c.retry.Attempts(), mostSkipped)
	}
	return &o
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

// mostSkipped is how many failures the next search for records at fault waits for, at most.
const mostSkipped = 8

const (
	// mostFound and mostTries bound a search: beyond them something else is wrong than single records.
	mostFound = 100
	mostTries = 5_000
)

// search finds the rows of pieces that alone fail to be encoded while the rest passes. Encoding all of them has
// failed. None if there are no such rows; stopped is why the search could not go on.
func (c *committer) search(ctx context.Context, cut *plan.Cut, pieces []connector.Piece) (at []plan.Failure, stopped error) {
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
	} else if !c.trouble.encoded || len(s.found) > 1 {
		return nil, nil // nothing shows that anything passes
	}
	for i, row := range s.found {
		run := cut.RunOf(row)
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

func (s *bisection) many() bool { return len(s.found) > mostFound || s.tries > mostTries }

// halve looks into pieces that failed together. Its error is of another kind than what is looked for.
func (s *bisection) halve(pieces []connector.Piece) error {
	if rowsOf(pieces) == 1 {
		_, one := split(pieces, 0)
		return s.look(one)
	}
	a, b := split(pieces, rowsOf(pieces)/2)
	if err := s.look(a); err != nil {
		return err
	}
	return s.look(b)
}

// look tries pieces, and looks into them if they fail.
func (s *bisection) look(pieces []connector.Piece) error {
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
