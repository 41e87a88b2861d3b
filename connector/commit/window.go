package commit

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// A window loads and keeps the fingerprints of one table's dedup windows, one per claim. The window of a claim is
// complete if it reaches exactly the claim's position. If it does not, it is filled from the table's rows: at a
// resume on its own goroutine, while the other claims commit; or before a decision, if the position moved since.
//
// The writer's goroutine owns it. The filling goroutine reports through requests.
type window struct {
	*connector.Duplicates
	*writerState

	scopes map[connector.Partition]idempotency.Scope // the scopes in the store, by claim of this member
	resets map[connector.Partition]int64             // for each scope, the operator's reset that was applied to it last
	swept  time.Time
	log    duplicateLog

	remembering, sweeping, refilling reliability.FailureLog

	requests *requests
	loops    *pulse.Loops
	fills    Fills

	filling sync.WaitGroup
	waiting map[connector.Partition]*waiting // the claims whose windows are being filled
	// The claims whose windows could not be filled, with the error, until the next attempt.
	failed map[connector.Partition]error
}

// waiting is a claim whose window is being filled. Afterwards the claim resumes, unless it was lost meanwhile.
type waiting struct {
	ResumeRequest
	lost bool
}

const (
	// fillsAtOnce is how many windows are filled from tables at the same time. Filling takes memory that no pool
	// counts, and after a start all tables need it.
	fillsAtOnce = 4

	duplicateLines    = 20
	duplicateLinesPer = time.Minute
)

// newWindow returns the windows of a table; nil if the table declares no identity.
func newWindow(d *connector.Duplicates, of *writerState, q *requests, turns Fills, loops *pulse.Loops) *window {
	if d == nil {
		return nil
	}
	return &window{
		Duplicates: d, writerState: of, requests: q, fills: turns, loops: loops,
		scopes: map[connector.Partition]idempotency.Scope{}, resets: map[connector.Partition]int64{},
		waiting: map[connector.Partition]*waiting{}, failed: map[connector.Partition]error{},
		log: newDuplicateLog(),
	}
}

// gap is what the window of a claim lacks: the fingerprints of rows at offsets [from, next).
type gap struct {
	scope      idempotency.Scope
	through    int64 // the offset up to which the store has the window
	from, next int64
	// newest is the partition's newest timestamp, Never if it has no rows. since is the oldest time in its window.
	newest, since int64
}

// gaps compares the windows of claims with their positions in the snapshot, and returns what they lack. It resets a
// window that reaches beyond the position, that an operator has reset, or that a restored database may have brought
// back.
func (w *window) gaps(ctx context.Context, claims iter.Seq[connector.Partition]) (map[connector.Partition]gap, error) {
	all := map[connector.Partition]gap{}
	for p := range claims {
		position, ok := w.snapshot.Positions[p.AppID(w.pipeline)]
		if !ok {
			continue
		}
		scope := idempotency.Scope{Pipeline: w.pipeline, TableID: w.snapshot.TableID, Identity: w.Identity, Partition: p}
		if old, ok := w.scopes[p]; ok && old != scope {
			w.Store.Release(old) // the old scope is of a table that was replaced
		}
		w.scopes[p] = scope
		w.metrics.duplicates.WithLabelValues(p.Topic) // exports the series with 0
		reset := int64(0)
		if w.Reset != nil {
			reset = w.Reset(p)
		}
		through, err := w.Store.Through(ctx, scope)
		restored := 0 < through && through < min(reset, position)
		if err == nil && (through > position || reset != w.resets[p] || restored) {
			// Either the position was set back: records after it will be read again, and must not be duplicates of
			// themselves. Or an operator reset the window, which a database that was restored from a backup may still
			// have.
			through, err = 0, w.Store.Reset(ctx, scope)
		}
		if err != nil {
			return nil, fmt.Errorf("failed to read the dedup window of %v: %w", p, err)
		}
		w.resets[p] = reset
		if through == position {
			continue
		}
		g := gap{scope: scope, through: through, from: min(max(through, reset), position), next: position, newest: idempotency.Never}
		if newest, ok := w.snapshot.Positions[p.NewestAppID(w.pipeline)]; ok {
			g.newest, g.since = newest, max(newest-w.Window.Milliseconds(), 0)
		}
		all[p] = g
	}
	return all, nil
}

// prepare returns a Reading of the rows whose fingerprints are missing in gaps; nil if there are no such rows.
func (w *window) prepare(gaps map[connector.Partition]gap) (connector.Reading, error) {
	q := connector.FingerprintQuery{Identity: w.Identity, Claims: map[connector.Partition]connector.Offsets{}, IDs: w.IDs}
	for p, g := range gaps {
		if g.newest == idempotency.Never || g.from >= g.next {
			continue
		}
		if len(q.Claims) == 0 || g.since < q.Since {
			q.Since = g.since
		}
		q.Claims[p] = connector.Offsets{From: g.from, Next: g.next}
	}
	if len(q.Claims) == 0 {
		return nil, nil //nolint:nilnil // nothing to read is not an error
	}
	table, ok := unwrapTable(w.table).(connector.FingerprintReader)
	if !ok {
		return nil, hold.New(hold.TableUnsupported, "the table cannot return the fingerprints of its rows", nil)
	}
	read, err := table.ReadFingerprints(w.snapshot, q)
	if waits, ok := w.table.(*waitingTable); ok && err == nil {
		read = waits.reading(read)
	}
	return read, err
}

// fill stores the fingerprints that are missing in gaps; read is the result of prepare. The store's window reaches the
// position only after all of its fingerprints were stored. fill may run on any goroutine, but for each claim only one
// at a time.
func (w *window) fill(ctx context.Context, gaps map[connector.Partition]gap, read connector.Reading) error {
	if len(gaps) == 0 {
		return nil
	}
	began, store := time.Now(), w.Store
	var entries int64
	if read != nil {
		if turns := w.fills; turns != nil {
			if err := waitFor(ctx, func() error {
				select {
				case turns <- struct{}{}:
					return nil
				case <-ctx.Done():
					return classify.Mark(context.Cause(ctx), classify.Canceled)
				}
			}); err != nil {
				return err
			}
			defer func() { <-turns }()
		}
		type source struct {
			topic     string
			partition int32
		}
		by := map[source]gap{}
		for p, g := range gaps {
			by[source{p.Topic, p.ID}] = g
		}
		err := read(ctx, func(rows connector.PastRows) error {
			pulse.Of(ctx).Turn()
			g, ok := by[source{rows.Topic, rows.Partition}]
			if !ok || g.newest == idempotency.Never {
				return nil
			}
			return store.Remember(ctx, g.scope, g.through, g.through, func(yield func(idempotency.Entry) bool) {
				for _, e := range rows.Entries {
					at, dated := idempotency.Effective(e.At, rows.Written)
					// If the timestamp is too far ahead, Effective returned the time at which the file was written. The
					// writer judged the record a moment earlier, and the time that counted then is at most the newest
					// timestamp.
					at = min(at, g.newest)
					if !dated || e.Fingerprint.IsZero() || e.Offset < g.from || e.Offset >= g.next || at < g.since {
						continue
					}
					entries++
					if e.At = at; !yield(e) {
						return
					}
				}
			})
		})
		if err != nil {
			return fmt.Errorf("read the fingerprints of rows: %w", err)
		}
	}
	for p, g := range gaps {
		if err := store.Remember(ctx, g.scope, g.through, g.next, func(func(idempotency.Entry) bool) {}); err != nil {
			return fmt.Errorf("remember the fingerprints of %v: %w", p, err)
		}
	}
	if read != nil {
		took := time.Since(began)
		w.metrics.rebuilt.Observe(took.Seconds())
		w.logger.InfoContext(ctx, "filled dedup windows from the table", "partitions", len(gaps), "entries", entries, "after", took.Round(time.Millisecond))
	}
	return nil
}

// load looks up the fingerprints of a sealed batch, and puts those that the windows have into batch.Seen. It runs right
// before Decide, so that Decide can be pure. The error has class Fenced if a window of the batch is being filled for
// another session of its claim, or if other members change the windows at each attempt.
func (w *window) load(ctx context.Context, batch *plan.SealedBatch) error {
	if w == nil {
		return nil
	}
	for p := range batch.Claims {
		if w.waiting[p] != nil {
			return classify.Mark(fmt.Errorf("the dedup window of %v is being filled for another session", p), classify.Fenced)
		}
	}
	ours := func(yield func(connector.Partition) bool) {
		for p, span := range batch.Claims { // only these, because the other claims will be fenced
			if w.snapshot.Positions[p.AppID(w.pipeline)] == span.From && !yield(p) {
				return
			}
		}
	}
	for range maxLookups {
		whole, err := w.lookUp(ctx, batch, ours)
		if whole || err != nil {
			return err
		}
	}
	return classify.Mark(errors.New("other members keep changing the dedup windows"), classify.Fenced)
}

// maxLookups is the number of attempts to look a batch up while other members change its windows.
const maxLookups = 3

// lookUp fills the windows of a sealed batch's claims and looks up its fingerprints. whole is false if a window turned
// out incomplete, because a member with an older position may reset a shared window between filling and look-up.
func (w *window) lookUp(ctx context.Context, batch *plan.SealedBatch, claims iter.Seq[connector.Partition]) (whole bool, err error) {
	gaps, err := w.gaps(ctx, claims)
	if err != nil {
		return false, err
	}
	read, err := w.prepare(gaps)
	if err != nil {
		return false, err
	}
	if err := w.fill(ctx, gaps, read); err != nil {
		if errors.Is(err, idempotency.ErrMoved) {
			return false, nil
		}
		return false, err
	}
	store := w.Store.For(batch.ID)
	batch.Seen = map[connector.Partition]map[idempotency.Fingerprint]int64{}
	for p := range claims {
		if batch.Seen[p], err = store.Seen(ctx, w.scopes[p], batch.Entries(p)); err != nil {
			return false, fmt.Errorf("look up the fingerprints of %v: %w", p, err)
		}
		through, err := store.Through(ctx, w.scopes[p])
		if err != nil {
			return false, fmt.Errorf("failed to read the dedup window of %v: %w", p, err)
		}
		if through != batch.Claims[p].From {
			return false, nil
		}
	}
	return true, nil
}

// remember is step (f) of a commit. If the store fails, the next load reads the missing fingerprints from the table.
func (w *window) remember(ctx context.Context, p *plan.Plan) {
	if w == nil || p.Judged == nil {
		return
	}
	store, failed := w.Store.For(p.Commit.Batch), false
	for partition, span := range p.Next {
		scope, ok := w.scopes[partition]
		if !ok {
			continue // the claim was lost since the batch was sealed
		}
		if err := store.Remember(ctx, scope, span.From, span.Next, p.Remembered(partition)); err != nil && !errors.Is(err, idempotency.ErrMoved) {
			failed = true
			w.remembering.Failed(ctx, w.logger, slog.LevelWarn, "failed to store fingerprints of a commit; they will be read from the table",
				"batch_id", p.Commit.Batch, "topic", partition.Topic, "partition", partition.ID, "err", err)
		}
	}
	if !failed {
		w.remembering.Over(ctx, w.logger, "fingerprints of commits are stored again")
	}
	for partition, n := range p.Judged {
		w.metrics.judged(partition.Topic, n)
	}
	w.log.log(ctx, w.logger, p)
}

// sweep deletes fingerprints that are older than the window. It does nothing if the last sweep was less than w.Sweep
// ago.
func (w *window) sweep(ctx context.Context) {
	if w == nil || w.snapshot == nil || time.Since(w.swept) < w.Sweep {
		return
	}
	w.swept = time.Now()
	failed := false
	for p, scope := range w.scopes {
		newest, ok := w.snapshot.Positions[p.NewestAppID(w.pipeline)]
		if !ok || w.waiting[p] != nil {
			continue
		}
		if err := w.Store.Sweep(ctx, scope, newest-w.Window.Milliseconds()); err != nil {
			failed = true
			w.sweeping.Failed(ctx, w.logger, slog.LevelWarn, "failed to delete old fingerprints; retrying at the next sweep", "topic", p.Topic, "partition", p.ID, "err", err)
		}
	}
	if !failed {
		w.sweeping.Over(ctx, w.logger, "old fingerprints are deleted again")
	}
}

// fillForResume checks the windows of claims that resume. Claims with complete windows stay in result. Those whose
// windows could not be filled stay with a hold. It removes the others, whose windows a goroutine fills; afterwards they
// resume again.
func (w *window) fillForResume(ctx context.Context, claims map[connector.Partition]ResumeRequest, result map[connector.Partition]Found) error {
	if w == nil {
		return nil
	}
	resumes := func(yield func(connector.Partition) bool) {
		for p, f := range result {
			if f.Hold != nil {
				continue
			}
			if waits := w.waiting[p]; waits != nil {
				*waits = waiting{ResumeRequest: claims[p]} // the claim continues to wait, with its newest session
				delete(result, p)
			} else if !yield(p) {
				return
			}
		}
	}
	gaps, err := w.gaps(ctx, resumes)
	if err != nil {
		return err
	}
	for p := range gaps {
		if err := w.failed[p]; err != nil {
			delete(w.failed, p)
			delete(gaps, p)
			result[p] = w.unfilled(p, claims[p], result[p], err)
		}
	}
	read, err := w.prepare(gaps)
	if err != nil {
		for p := range gaps {
			result[p] = w.unfilled(p, claims[p], result[p], err)
		}
		return nil
	}
	if read == nil {
		return w.fill(ctx, gaps, nil)
	}
	for p := range gaps {
		w.waiting[p] = &waiting{ResumeRequest: claims[p]}
		delete(result, p)
	}
	w.filling.Go(func() {
		loop := w.loops.Begin("filling " + w.name)
		defer loop.End()
		loop.Work()
		err := w.fill(pulse.With(ctx, loop), gaps, read)
		w.requests.filled(filledWindows{gaps, err})
	})
	return nil
}

// unfilled returns what a resume has found, with a hold because the window of the claim could not be filled.
func (w *window) unfilled(p connector.Partition, q ResumeRequest, f Found, err error) Found {
	reason, detail, held := hold.Of(err)
	if !held {
		reason, detail = hold.StoreDown, err.Error()
	}
	f.Session = q.Session
	f.Hold = &hold.Hold{Partition: p, Reason: reason, Detail: "failed to fill the dedup window: " + detail, Offset: f.At.Next}
	return f
}

// filledWindows says that filling the windows with these gaps has ended; err is nil if it succeeded.
type filledWindows struct {
	gaps map[connector.Partition]gap
	err  error
}

// handleFilled handles the ends of filling windows. It returns the claims that must resume again, keeps failures for
// these resumes, and releases the windows of claims that were lost meanwhile.
func (w *window) handleFilled(ctx context.Context, done []filledWindows) (again map[connector.Partition]ResumeRequest) {
	again = map[connector.Partition]ResumeRequest{}
	for _, d := range done {
		if d.err == nil {
			w.refilling.Over(ctx, w.logger, "dedup windows are filled again")
		}
		if d.err != nil && classify.Of(d.err) != classify.Canceled && !errors.Is(d.err, idempotency.ErrMoved) {
			w.refilling.Failed(ctx, w.logger, slog.LevelWarn, "failed to fill the dedup window from the table; its claims are held", "err", d.err)
		}
		for p := range d.gaps {
			waited := w.waiting[p]
			delete(w.waiting, p)
			if waited.lost {
				w.release(p)
				continue
			}
			// The resume compares the window again, because the claim may have been lost and come back meanwhile with
			// another position.
			if again[p] = waited.ResumeRequest; d.err != nil && !errors.Is(d.err, idempotency.ErrMoved) {
				w.failed[p] = d.err
			}
		}
	}
	return again
}

// release releases the window of a lost claim. If the window is being filled, release only marks the claim as lost.
func (w *window) release(p connector.Partition) {
	if w == nil {
		return
	}
	if waits := w.waiting[p]; waits != nil {
		// The goroutine still fills the window, and would take an emptied window for a complete one. handleFilled
		// releases it, unless the claim has come back by then.
		waits.lost = true
		return
	}
	if scope, ok := w.scopes[p]; ok {
		w.Store.Release(scope)
	}
	delete(w.scopes, p)
	delete(w.resets, p)
	delete(w.failed, p)
}

// close waits until no window is being filled, and releases all windows.
func (w *window) close() {
	if w == nil {
		return
	}
	w.filling.Wait()
	for _, scope := range w.scopes {
		w.Store.Release(scope)
	}
}

// Fills limits how many windows are filled from tables at once, over all writers. nil is unlimited.
type Fills chan struct{}

// NewFills returns a limit of fillsAtOnce.
func NewFills() Fills { return make(Fills, fillsAtOnce) }
