package connector

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// What becomes of cuts that fail in our own work, a [LocalError]: they are read and tried again as record_retry says, and
// then the records are found that alone make them fail while the rest passes. Such a record is remembered as isolated; when
// a lane meets it again it is a bad one. Where no record is at fault by itself, nothing is skipped: the cut is tried on.

// failedCode stands in metrics for what failed for a reason that nobody knows.
const failedCode = "unknown"

// verdict is why a record of these coordinates cannot become a row, as it was found before a lane met it.
type verdict struct {
	err         error // Poison
	retries     int
	first, last time.Time // when it failed
}

// isolated are the verdicts about records of a table, and the records that lanes try one by one. The table's writer makes
// them, lanes look. The maps and what is in them are never changed, only replaced.
type isolated struct {
	of        atomic.Pointer[map[Partition]map[int64]verdict]
	suspected atomic.Pointer[map[Partition]suspects]
}

// suspects are the offsets [from, to) of a partition, whose rows a lane could not seal together. Lanes try each of these
// records by itself before they make a row of it. The zero value is none.
type suspects struct{ from, to int64 }

func (s suspects) has(offset int64) bool { return s.from <= offset && offset < s.to }

// suspects returns those of a partition.
func (i *isolated) suspects(p Partition) suspects {
	if all := i.suspected.Load(); all != nil {
		return (*all)[p]
	}
	return suspects{}
}

// suspect has lanes try the records of chunks that could not be sealed. The writer's alone.
func (i *isolated) suspect(failures []failure) {
	failures = slices.DeleteFunc(slices.Clone(failures), func(f failure) bool { return !f.sealing })
	if len(failures) == 0 {
		return
	}
	all := map[Partition]suspects{}
	if old := i.suspected.Load(); old != nil {
		maps.Copy(all, *old)
	}
	for _, f := range failures {
		for _, run := range f.runs {
			s, known := all[run.Partition]
			if !known {
				s = suspects{run.First, run.Last + 1}
			}
			all[run.Partition] = suspects{min(s.from, run.First), max(s.to, run.Last+1)}
		}
	}
	i.suspected.Store(&all)
}

// in returns the verdicts about a partition, nil if there are none, which is nearly always.
func (i *isolated) in(p Partition) map[int64]verdict {
	if all := i.of.Load(); all != nil {
		return (*all)[p]
	}
	return nil
}

// add notes a verdict. The writer's alone.
func (i *isolated) add(p Partition, offset int64, v verdict) {
	all := map[Partition]map[int64]verdict{}
	if old := i.of.Load(); old != nil {
		maps.Copy(all, *old)
	}
	of := maps.Clone(all[p])
	if of == nil {
		of = map[int64]verdict{}
	}
	of[offset] = v
	all[p] = of
	i.of.Store(&all)
}

// passed forgets the verdicts that the table's positions have passed, and the suspects of these partitions. The writer's
// alone.
func (i *isolated) passed(next map[Partition]Span) {
	if all := i.suspected.Load(); all != nil {
		left := maps.Clone(*all)
		maps.DeleteFunc(left, func(p Partition, s suspects) bool { span, moved := next[p]; return moved && span.Next >= s.to })
		i.suspected.Store(&left)
	}
	old := i.of.Load()
	if old == nil {
		return
	}
	all := map[Partition]map[int64]verdict{}
	for p, of := range *old {
		span, moved := next[p]
		left := map[int64]verdict{}
		for offset, v := range of {
			if !moved || offset >= span.Next {
				left[offset] = v
			}
		}
		if len(left) > 0 {
			all[p] = left
		}
	}
	if len(all) == 0 {
		i.of.Store(nil)
		return
	}
	i.of.Store(&all)
}

// failure is a record at which a lane's decoder failed for a reason that nobody knows, or the first record of a chunk that
// could not be sealed.
type failure struct {
	partition Partition
	session   uint64
	offset    int64
	err       error
	// alone says that other records pass.
	alone bool
	// runs are the rows that went with the builder.
	runs []Run
	// sealing says that the chunk of runs could not be sealed, whichever of its rows is at fault.
	sealing bool
}

// trouble is what a writer knows of cuts that failed one after the other in our own work.
type trouble struct {
	failures int
	first    time.Time
	search   int // failures below which the records at fault are not looked for: the last search found none
	// notBefore is when the next cut may be written.
	notBefore time.Time
	encoded   bool // rows of this table, since the start of the process
}

// failedAt returns the records of a cut at which lanes failed, and the first error. Nothing of such a cut is usable: the
// rows that stood beside the record are gone.
func (c *Cut) failedAt() (at []failure, err error) {
	for _, f := range c.failures {
		if err == nil {
			err = f.err
		}
		if span, ok := c.Claims[f.partition]; ok && span.Session == f.session && f.alone {
			at = append(at, f)
		}
	}
	return at, err
}

// broken says how it goes on behind a cut that failed in our own work: tried again after a pause, the records at fault
// isolated, or neither.
func (w *writer) broken(ctx context.Context, cut *Cut, err error) outcome {
	t, now, attempts := &w.trouble, time.Now(), w.retry.Attempts()
	if t.failures++; t.failures == 1 {
		t.first = now
	}
	w.metrics.failed.Inc()
	w.metrics.broken(cut)
	// In the end the batch is not the one that failed before, but what there is: more of it may show who is at fault.
	o := outcome{kind: fenced, err: err, broken: true, again: t.failures <= attempts}
	if t.failures >= attempts { // the next one is the last attempt, or behind it
		w.state.isolated.suspect(cut.failures)
	}
	at, _ := cut.failedAt()
	switch {
	case t.failures <= attempts:
		pause := w.retry.Pause(t.failures)
		t.notBefore = now.Add(pause)
		w.metrics.retries.WithLabelValues(w.pipeline, failedCode, soleTopic(cut)).Inc()
		w.logger.WarnContext(ctx, "Retry attempt", append([]any{
			"attempt", attemptOf(t.failures, attempts), "pause", pause, "err", err, "batch_id", cut.Batch,
		}, coordinatesOf(at)...)...)
	case len(at) > 0:
		w.isolate(ctx, cut, at)
		o.again = true
	default:
		pause := max(w.retry.Pause(attempts), w.kafka.Backoff().Pause(t.failures-attempts))
		t.notBefore = now.Add(pause)
		w.failing.broken.Failed(ctx, w.logger, slog.LevelError, "a batch fails in our own work again and again, and no record is at fault by itself: nothing is skipped, it is tried on",
			"failures", t.failures, "failing_since", t.first, "pause", pause, "err", err, "batch_id", cut.Batch)
	}
	return o
}

// isolate remembers records that are at fault. Nothing waits for anything then.
func (w *writer) isolate(ctx context.Context, cut *Cut, at []failure) {
	for _, f := range at {
		w.state.isolated.add(f.partition, f.offset, verdict{
			err: isolatedBy(f.err), retries: w.retry.Attempts(), first: w.trouble.first, last: time.Now(),
		})
		if left, ok := w.told.givenUp.Next(); ok {
			w.logger.ErrorContext(ctx, "Giving up", append([]any{
				"attempts", w.retry.Attempts(), "reason", string(deadletter.Isolated), "err", f.err, "batch_id", cut.Batch, "left_out", left,
			}, coordinatesOf([]failure{f})...)...)
		}
	}
	w.trouble.settle()
}

// settle ends a row of failures.
func (t *trouble) settle() { t.failures, t.search, t.notBefore = 0, 0, time.Time{} }

func isolatedBy(err error) error {
	return classify.Mark(&RefusedError{deadletter.Isolated, "it alone fails while the records around it pass", err}, classify.Poison)
}

func attemptOf(n, attempts int) string { return strconv.Itoa(n) + "/" + strconv.Itoa(attempts) }

// soleTopic is the topic of a cut, "" if it has several: then nobody knows whose record it is.
func soleTopic(cut *Cut) (topic string) {
	for p := range cut.Claims {
		if topic != "" && topic != p.Topic {
			return ""
		}
		topic = p.Topic
	}
	return topic
}

// coordinatesOf are the words of a log line about a record, none if nobody knows which one it is.
func coordinatesOf(at []failure) []any {
	if len(at) == 0 {
		return nil
	}
	p := at[0].partition
	return []any{
		"topic", p.Topic, "partition", p.ID, "offset", at[0].offset,
		"correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: p, Offset: at[0].offset}),
	}
}

// searches tells whether the next cut is the last attempt, so that the records at fault are looked for if it fails: while
// its rows are there.
func (w *writer) searches() bool {
	t := &w.trouble
	return t.failures > 0 && t.failures >= w.retry.Attempts() && t.failures >= t.search
}

// rehearsed encodes the plan of a cut to nowhere and looks for the records at fault if that fails. nil if it passes.
func (w *writer) rehearsed(ctx context.Context, cut *Cut, plan *Plan) *outcome {
	err := w.rehearse(ctx, plan.Pieces)
	if err == nil {
		return nil
	}
	var o outcome
	if !isLocal(err) {
		o = w.unsettled(ctx, plan, err)
		return &o
	}
	at, stopped := w.search(ctx, cut, plan.Pieces)
	switch {
	case stopped != nil:
		o = w.unsettled(ctx, plan, stopped)
	case len(at) > 0:
		w.metrics.failed.Inc()
		w.metrics.broken(cut)
		w.isolate(ctx, cut, at)
		o = outcome{kind: fenced, err: err, broken: true, again: true}
	default:
		o = w.broken(ctx, cut, err)
		w.trouble.search = w.trouble.failures + min(w.trouble.failures-w.retry.Attempts(), mostSkipped)
	}
	return &o
}

// rehearse encodes pieces to nowhere.
func (w *writer) rehearse(ctx context.Context, pieces []Piece) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Recovered(encoding, v)
		}
	}()
	return w.table.Rehearse(ctx, w.snapshot, pieces)
}

const encoding, decoding = "encode", "decode"

// isLocal tells whether an error is a failure of our own work that nobody has explained yet.
func isLocal(err error) bool {
	return err != nil && errors.As(err, new(*LocalError)) && classify.Of(err) != classify.Poison
}

// mostSkipped is how many failures the next search for records at fault waits for, at most.
const mostSkipped = 8

const (
	// mostFound and mostTries bound a search: beyond them something else is wrong than single records.
	mostFound = 100
	mostTries = 5_000
)

// search finds the rows of pieces that alone fail to be encoded while the rest passes. Encoding all of them has
// failed. None if there are no such rows; stopped is why the search could not go on.
func (w *writer) search(ctx context.Context, cut *Cut, pieces []Piece) (at []failure, stopped error) {
	s := bisection{try: func(p []Piece) error { return w.rehearse(ctx, p) }}
	if stopped = s.halve(pieces); stopped != nil || len(s.found) == 0 || s.many() {
		return nil, stopped
	}
	if rest := without(pieces, s.found); len(rest) > 0 {
		if stopped = s.try(rest); isLocal(stopped) {
			return nil, nil // not these records alone
		} else if stopped != nil {
			return nil, stopped
		}
	} else if !w.trouble.encoded || len(s.found) > 1 {
		return nil, nil // nothing shows that anything passes
	}
	for i, row := range s.found {
		run := cut.runOf(row)
		offset, ok := w.table.OffsetOf(row.Rows, row.From)
		if run == nil || !ok {
			return nil, nil
		}
		at = append(at, failure{partition: run.Partition, session: run.Session, offset: offset, err: s.errs[i], alone: true})
	}
	return at, nil
}

// runOf is the run that a row of the cut belongs to.
func (c *Cut) runOf(row Piece) *Run {
	for i := range c.Chunks {
		if c.Chunks[i].Rows != row.Rows {
			continue
		}
		for j := range c.Chunks[i].Runs {
			if r := &c.Chunks[i].Runs[j]; r.From <= row.From && row.From < r.To {
				return r
			}
		}
	}
	return nil
}

// bisection looks for rows that fail, by halves.
type bisection struct {
	try   func([]Piece) error // nil if all of them pass together
	tries int
	found []Piece // of one row each
	errs  []error
}

func (s *bisection) many() bool { return len(s.found) > mostFound || s.tries > mostTries }

// halve looks into pieces that failed together. Its error is of another kind than what is looked for.
func (s *bisection) halve(pieces []Piece) error {
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
func (s *bisection) look(pieces []Piece) error {
	if s.many() {
		return nil
	}
	s.tries++
	err := s.try(pieces)
	switch {
	case err == nil:
		return nil
	case !isLocal(err):
		return err
	case rowsOf(pieces) == 1:
		s.found, s.errs = append(s.found, pieces[0]), append(s.errs, err)
		return nil
	}
	return s.halve(pieces)
}

func rowsOf(pieces []Piece) (n int64) {
	for _, p := range pieces {
		n += p.To - p.From
	}
	return n
}

// split parts pieces behind the first n rows.
func split(pieces []Piece, n int64) (a, b []Piece) {
	for _, p := range pieces {
		size := p.To - p.From
		switch {
		case size == 0:
		case n >= size:
			a = append(a, p)
		case n <= 0:
			b = append(b, p)
		default:
			a, b = append(a, Piece{p.Rows, p.From, p.From + n}), append(b, Piece{p.Rows, p.From + n, p.To})
		}
		n -= size
	}
	return a, b
}

// without returns pieces without some of their rows, which are in the same order.
func without(pieces, rows []Piece) (rest []Piece) {
	for _, p := range pieces {
		for len(rows) > 0 && rows[0].Rows == p.Rows && rows[0].From >= p.From && rows[0].From < p.To {
			if rows[0].From > p.From {
				rest = append(rest, Piece{p.Rows, p.From, rows[0].From})
			}
			p.From, rows = rows[0].To, rows[1:]
		}
		if p.From < p.To {
			rest = append(rest, p)
		}
	}
	return slices.Clip(rest)
}
