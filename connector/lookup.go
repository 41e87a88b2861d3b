package connector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// Lookup brings from elsewhere what records need to be decoded, such as a schema from a registry: a lane never touches the
// network. It belongs to a table, and its decoder finds there what was brought. What was brought stays at hand for as long as
// records that need it are on their way.
type Lookup interface {
	// Needs says what a record needs that is not at hand, "" if nothing. Records with the same need are served together. It
	// is asked for each record, by several goroutines, and answers at once.
	Needs(Partition, *Record) string
	// Get brings what is needed for a partition's records, on a goroutine of the claim's own. A failure of the dependency is
	// retried inside, by its guard, until ctx ends; what it returns of one is a HoldError, or Canceled. An error that is Poison
	// makes bad records of those that need it, with the code that it tells. Any other error is about what is needed, and may
	// pass: it is tried again as record_retry says, then the records are bad, code retries_exhausted. Errors never hold bytes
	// of a record.
	Get(ctx context.Context, p Partition, need string) error
}

// looker asks the lookup of a table for blocks of records, on behalf of the reader.
type looker struct {
	Lookup
	nulls             bool // records without a value become rows, too
	retry             reliability.RecordRetry
	worker            string
	attempts, givenUp *reliability.Sparse
	logger            *slog.Logger
	metrics           *metrics
}

func newLooker(l Lookup, nulls bool, retry reliability.RecordRetry, worker string, logger *slog.Logger, m *metrics) *looker {
	if l == nil {
		return nil
	}
	lines := func() *reliability.Sparse { return reliability.NewSparse(letterLines, letterLinesEach) }
	return &looker{l, nulls, retry, worker, lines(), lines(), logger, m}
}

// asking is a look-up for a claim that is under way.
type asking struct {
	partition Partition
	block     *block
	err       error // why it stopped: a HoldError, or the end
	cancel    context.CancelCauseFunc
}

// ready tells whether the records of a claim's next block have what they need. If not it has them looked up, and the claim
// hands nothing over meanwhile, so that the order of its records stays.
func (r *reader) ready(c *claim) bool {
	b, l := c.parsed, c.table.looker
	if b.ready || l == nil || !l.misses(c, b) {
		b.ready = true
		return true
	}
	c.parsed, c.asking = nil, &asking{partition: c.Partition, block: b}
	a := c.asking
	refuse := c.refuse
	ctx, cancel := context.WithCancelCause(r.working)
	a.cancel = cancel
	r.launch(func() {
		defer cancel(nil)
		a.err = l.bring(ctx, a.partition, refuse, b)
		select {
		case r.answered <- a:
		case <-r.working.Done():
			r.blocks.put(b)
		}
	})
	return false
}

// brought takes a block back that was looked up for. One of a claim that was lost, fenced or shed since is dropped.
func (r *reader) brought(a *asking) {
	c, ok := r.claims[a.partition]
	if !ok || c.asking != a {
		r.blocks.put(a.block)
		return
	}
	c.asking = nil
	if a.err != nil {
		r.blocks.put(a.block)
		r.cannotRead(c, a.err)
		return
	}
	a.block.ready, c.parsed = true, a.block
}

// unneeded tells whether a record becomes no row whatever could be looked up for it.
func (l *looker) unneeded(refuse Refusals, r *Record) bool {
	return r.Value == nil && !l.nulls || refuse.Of(r) != nil
}

// misses tells whether a record of a block needs something that is not at hand.
func (l *looker) misses(c *claim, b *block) bool {
	for i := range b.records {
		if r := &b.records[i]; !l.unneeded(c.refuse, r) && l.Needs(c.Partition, r) != "" {
			return true
		}
	}
	return false
}

// bring has what the records of a block need brought, one need after the other, and notes which records are bad because it
// cannot be had. Its error is one that concerns all of them.
func (l *looker) bring(ctx context.Context, p Partition, refuse Refusals, b *block) error {
	failed := map[string]verdict{}
	for i := range b.records {
		r := &b.records[i]
		if l.unneeded(refuse, r) {
			continue
		}
		need := l.Needs(p, r)
		if need == "" {
			continue
		}
		v, known := failed[need]
		if !known {
			var err error
			if v, err = l.get(ctx, p, r.Offset, need); err != nil {
				return err
			}
			if v.err == nil {
				continue
			}
			failed[need] = v
		}
		if b.verdicts == nil {
			b.verdicts = map[int64]verdict{}
		}
		b.verdicts[r.Offset] = v
	}
	return nil
}

// get brings one need, which the record at offset is the first to have. The verdict is empty if it was brought.
func (l *looker) get(ctx context.Context, p Partition, offset int64, need string) (v verdict, stopped error) {
	said := []any{
		"topic", p.Topic, "partition", p.ID, "offset", offset,
		"correlation_id", deadletter.Correlation(idempotency.Coordinates{Partition: p, Offset: offset}),
	}
	began := time.Now()
	attempts, err := l.retry.Do(ctx, func(ctx context.Context) error { return l.once(ctx, p, need) }, concludes,
		func(attempt int, pause time.Duration, err error) {
			if attempt == 1 {
				began = time.Now()
			}
			l.metrics.retries.WithLabelValues(l.worker, string(CodeOf(err)), p.Topic).Inc()
			if left, ok := l.attempts.Next(); ok {
				l.logger.WarnContext(ctx, "Retry attempt", append([]any{
					"attempt", attemptOf(attempt, l.retry.Attempts()), "pause", pause, "err", err, "left_out", left,
				}, said...)...)
			}
		})
	switch {
	case err == nil:
		return verdict{}, nil
	case ctx.Err() != nil:
		return verdict{}, context.Cause(ctx)
	case errors.As(err, new(*HoldError)), classify.Of(err) == classify.Canceled, classify.Of(err) == classify.Fenced:
		return verdict{}, err
	case classify.Of(err) == classify.Poison:
		return verdict{err, attempts, began, time.Now()}, nil
	}
	bad := &RefusedError{deadletter.RetriesExhausted, fmt.Sprintf("what it needs could not be had in %d attempts", attempts), err}
	if left, ok := l.givenUp.Next(); ok {
		l.logger.ErrorContext(ctx, "Giving up", append([]any{
			"attempts", attempts, "reason", string(bad.Reason), "err", err, "left_out", left,
		}, said...)...)
	}
	return verdict{classify.Mark(bad, classify.Poison), attempts, began, time.Now()}, nil
}

// once is one attempt.
func (l *looker) once(ctx context.Context, p Partition, need string) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = Recovered("look up", v)
		}
	}()
	return l.Get(ctx, p, need)
}

// concludes tells whether an error of a look-up will stay, or is not for record_retry.
func concludes(err error) bool {
	switch classify.Of(err) {
	case classify.Poison, classify.Canceled, classify.Fenced:
		return true
	case classify.Transient, classify.Fatal:
	}
	return errors.As(err, new(*HoldError))
}
