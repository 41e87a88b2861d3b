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

// A window is what a table's writer knows of its windows of fingerprints. A window is good for a claim as long as
// it goes to the very position where the claim stands. Else it is filled from the table's rows: at a resume on a
// goroutine of its own, while the other claims commit, and before a decision if something came in between.
//
// Owned by the writer's goroutine, save for what filling has to say.
type window struct {
	*connector.Duplicates
	*current

	scopes map[connector.Partition]idempotency.Scope // that this member remembers
	resets map[connector.Partition]int64             // the operator's resets that they obey
	swept  time.Time
	log    duplicateLog

	remembering, sweeping, refilling reliability.FailureLog

	requests *requests
	loops    *pulse.Loops
	turns    Fills

	filling sync.WaitGroup
	waiting map[connector.Partition]*waiting // claims whose windows are being filled
	failed  map[connector.Partition]error    // those that could not be, until they are tried again
}

// waiting is a claim whose window is being filled: what it resumes with behind that, unless it is lost by then.
type waiting struct {
	ResumeRequest
	lost bool
}

const (
	// fillsAtOnce is how many windows are filled from tables at once. Each takes memory that no pool counts, and after a start
	// all tables want to.
	fillsAtOnce = 4

	skippedLines     = 20
	skippedLinesEach = time.Minute
)

// newWindow returns the window of a table, nil if the table declares no identity.
func newWindow(d *connector.Duplicates, of *current, q *requests, turns Fills, loops *pulse.Loops) *window {
	if d == nil {
		return nil
	}
	return &window{
		Duplicates: d, current: of, requests: q, turns: turns, loops: loops,
		scopes: map[connector.Partition]idempotency.Scope{}, resets: map[connector.Partition]int64{},
		waiting: map[connector.Partition]*waiting{}, failed: map[connector.Partition]error{},
		log: newDuplicateLog(),
	}
}

// gap is what a window lacks: rows at offsets [from, next).
type gap struct {
	scope         idempotency.Scope
	through       int64 // where the store stands
	from, next    int64
	newest, since int64 // of the partition; Never if it has no rows
}

// gaps compares windows with the positions of claims in a snapshot. What cannot be trusted is reset first.
func (w *window) gaps(ctx context.Context, claims iter.Seq[connector.Partition]) (map[connector.Partition]gap, error) {
	all := map[connector.Partition]gap{}
	for p := range claims {
		position, ok := w.snapshot.Positions[p.AppID(w.pipeline)]
		if !ok {
			continue
		}
		scope := idempotency.Scope{Pipeline: w.pipeline, TableID: w.snapshot.TableID, Identity: w.Identity, Partition: p}
		if old, ok := w.scopes[p]; ok && old != scope {
			w.Store.Release(old) // of the table before
		}
		w.scopes[p] = scope
		w.metrics.duplicates.WithLabelValues(p.Topic) // 0 is something to see, too
		reset := int64(0)
		if w.Reset != nil {
			reset = w.Reset(p)
		}
		through, err := w.Store.Through(ctx, scope)
		restored := 0 < through && through < min(reset, position)
		if err == nil && (through > position || reset != w.resets[p] || restored) {
			// The position was set back: what lies behind it will come again, and is not a duplicate of itself. Or an operator
			// had the window forgotten, and it may have come back with an older copy of a database.
			through, err = 0, w.Store.Reset(ctx, scope)
		}
		if err != nil {
			return nil, fmt.Errorf("remembered fingerprints of %v: %w", p, err)
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

// prepare readies the reading of what gaps need, nil if no row is needed.
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
		return nil, nil //nolint:nilnil // nothing to read is no mistake
	}
	table, ok := inside(w.table).(connector.FingerprintReader)
	if !ok {
		return nil, hold.New(hold.TableUnsupported, "the fingerprints of its rows cannot be read back", nil)
	}
	read, err := table.ReadFingerprints(w.snapshot, q)
	if outside, ok := w.table.(*outsideTable); ok && err == nil {
		read = outside.reading(read)
	}
	return read, err
}

// fill has the store remember what gaps lack. The store goes to the positions only when everything is there. Any
// goroutine; only one at a time for each claim.
func (w *window) fill(ctx context.Context, gaps map[connector.Partition]gap, read connector.Reading) error {
	if len(gaps) == 0 {
		return nil
	}
	began, store := time.Now(), w.Store
	var entries int64
	if read != nil {
		if turns := w.turns; turns != nil {
			if err := outside(ctx, func() error {
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
					at = min(at, g.newest) // it counted as now then, which was a moment before the file was written
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
		w.logger.InfoContext(ctx, "window of fingerprints filled from the table", "partitions", len(gaps), "entries", entries, "after", took.Round(time.Millisecond))
	}
	return nil
}

// load looks up the fingerprints of a cut. It is the last thing before decide, so that decide can be pure.
func (w *window) load(ctx context.Context, batch *plan.SealedBatch) error {
	if w == nil {
		return nil
	}
	for p := range batch.Claims {
		if w.waiting[p] != nil {
			return classify.Mark(fmt.Errorf("the window of %v is being filled for another session", p), classify.Fenced)
		}
	}
	ours := func(yield func(connector.Partition) bool) {
		for p, span := range batch.Claims { // the others will be fenced
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
	return classify.Mark(errors.New("others keep moving the windows of fingerprints"), classify.Fenced)
}

// maxLookups is how often fingerprints are looked up again because somebody moved a window meanwhile.
const maxLookups = 3

// lookUp fills the windows of a cut's claims and asks for its fingerprints. It tells whether the windows were whole all the
// while: a member that believes in an older position resets one that it shares with us, between our look and our question.
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
			return false, fmt.Errorf("remembered fingerprints of %v: %w", p, err)
		}
		if through != batch.Claims[p].From {
			return false, nil
		}
	}
	return true, nil
}

// remember is step (f) of a commit. What a store does not take now is filled in before the next decision.
func (w *window) remember(ctx context.Context, p *plan.Plan) {
	if w == nil || p.Judged == nil {
		return
	}
	store, failed := w.Store.For(p.Commit.Batch), false
	for partition, span := range p.Next {
		scope, ok := w.scopes[partition]
		if !ok {
			continue // it was lost meanwhile
		}
		if err := store.Remember(ctx, scope, span.From, span.Next, p.Remembered(partition)); err != nil && !errors.Is(err, idempotency.ErrMoved) {
			failed = true
			w.remembering.Failed(ctx, w.logger, slog.LevelWarn, "fingerprints of a commit are not remembered yet: they will be read from the table",
				"batch_id", p.Commit.Batch, "topic", partition.Topic, "partition", partition.ID, "err", err)
		}
	}
	if !failed {
		w.remembering.Over(ctx, w.logger, "fingerprints of commits are remembered again")
	}
	for partition, n := range p.Judged {
		w.metrics.judged(partition.Topic, n)
	}
	w.log.log(ctx, w.logger, p)
}

// sweep forgets what is older than the window, once in a while.
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
			w.sweeping.Failed(ctx, w.logger, slog.LevelWarn, "old fingerprints are not forgotten yet", "topic", p.Topic, "partition", p.ID, "err", err)
		}
	}
	if !failed {
		w.sweeping.Over(ctx, w.logger, "old fingerprints are forgotten again")
	}
}

// ready says which of the claims that resume have their windows, and holds those whose windows cannot be filled. The
// others are filled on another goroutine, and resume again behind that.
func (w *window) ready(ctx context.Context, claims map[connector.Partition]ResumeRequest, result map[connector.Partition]Found) error {
	if w == nil {
		return nil
	}
	resumes := func(yield func(connector.Partition) bool) {
		for p, f := range result {
			if f.Hold != nil {
				continue
			}
			if waits := w.waiting[p]; waits != nil {
				*waits = waiting{ResumeRequest: claims[p]} // its newest session
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

// unfilled is the hold of a claim without its window.
func (w *window) unfilled(p connector.Partition, q ResumeRequest, f Found, err error) Found {
	reason, detail, held := hold.Of(err)
	if !held {
		reason, detail = hold.StoreDown, err.Error()
	}
	f.Session = q.Session
	f.Hold = &hold.Hold{Partition: p, Reason: reason, Detail: "the window of fingerprints cannot be filled: " + detail, Offset: f.At.Next}
	return f
}

// filledWindows says that windows were filled, or could not be.
type filledWindows struct {
	gaps map[connector.Partition]gap
	err  error
}

// handleFilled has the claims of filled windows resume.
func (w *window) handleFilled(ctx context.Context, done []filledWindows) (again map[connector.Partition]ResumeRequest) {
	again = map[connector.Partition]ResumeRequest{}
	for _, d := range done {
		if d.err == nil {
			w.refilling.Over(ctx, w.logger, "windows of fingerprints are filled again")
		}
		if d.err != nil && classify.Of(d.err) != classify.Canceled && !errors.Is(d.err, idempotency.ErrMoved) {
			w.refilling.Failed(ctx, w.logger, slog.LevelWarn, "the window of fingerprints cannot be filled from the table", "err", d.err)
		}
		for p := range d.gaps {
			waited := w.waiting[p]
			delete(w.waiting, p)
			if waited.lost {
				w.release(p)
				continue
			}
			// If the window moved meanwhile (it was lost and came back), the gap is another one now.
			if again[p] = waited.ResumeRequest; d.err != nil && !errors.Is(d.err, idempotency.ErrMoved) {
				w.failed[p] = d.err
			}
		}
	}
	return again
}

// release forgets a claim that was lost.
func (w *window) release(p connector.Partition) {
	if w == nil {
		return
	}
	if waits := w.waiting[p]; waits != nil {
		// Who fills the window goes on, and would take what is left of it for the whole. It is released behind that, unless
		// the claim has come back.
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

// close waits for what fills windows and forgets all of them.
func (w *window) close() {
	if w == nil {
		return
	}
	w.filling.Wait()
	for _, scope := range w.scopes {
		w.Store.Release(scope)
	}
}

// Fills are the turns of those that fill windows from tables, of all writers. nil grants any number.
type Fills chan struct{}

// NewFills grants fillsAtOnce turns at a time.
func NewFills() Fills { return make(Fills, fillsAtOnce) }
