package connector

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"log/slog"
	"sync"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// A recollection is what a table's writer knows of its windows of fingerprints. A window is good for a claim as long as
// it goes to the very position where the claim stands. Else it is filled from the table's rows: at a resume on a
// goroutine of its own, while the other claims commit, and before a decision if something came in between.
//
// Owned by the writer's goroutine, save for what filling has to say.
type recollection struct {
	*Duplicates
	scopes map[Partition]idempotency.Scope // that this member remembers
	resets map[Partition]int64             // the operator's resets that they obey
	swept  time.Time
	log    duplicateLog
	turns  chan struct{} // of those that fill windows from tables, of all writers; nil if there is no other

	filling sync.WaitGroup
	waiting map[Partition]*waiting // claims whose windows are being filled
	failed  map[Partition]error    // those that could not be, until they are tried again
}

// waiting is a claim whose window is being filled: what it resumes with behind that, unless it is lost by then.
type waiting struct {
	resumeRequest
	lost bool
}

const (
	// fillsAtOnce is how many windows are filled from tables at once. Each takes memory that no pool counts, and after a start
	// all tables want to.
	fillsAtOnce = 4

	skippedLines     = 20
	skippedLinesEach = time.Minute
)

func newRecollection(d *Duplicates) *recollection {
	if d == nil {
		return nil
	}
	return &recollection{
		Duplicates: d, scopes: map[Partition]idempotency.Scope{}, resets: map[Partition]int64{},
		waiting: map[Partition]*waiting{}, failed: map[Partition]error{},
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
func (w *writer) gaps(ctx context.Context, claims iter.Seq[Partition]) (map[Partition]gap, error) {
	r, all := w.recollection, map[Partition]gap{}
	for p := range claims {
		position, ok := w.snapshot.Positions[p.AppID(w.pipeline)]
		if !ok {
			continue
		}
		scope := idempotency.Scope{Pipeline: w.pipeline, TableID: w.snapshot.TableID, Identity: r.Identity, Partition: p}
		if old, ok := r.scopes[p]; ok && old != scope {
			r.Store.Release(old) // of the table before
		}
		r.scopes[p] = scope
		w.metrics.duplicates.WithLabelValues(p.Topic) // 0 is something to see, too
		reset := int64(0)
		if r.Reset != nil {
			reset = r.Reset(p)
		}
		through, err := r.Store.Through(ctx, scope)
		restored := 0 < through && through < min(reset, position)
		if err == nil && (through > position || reset != r.resets[p] || restored) {
			// The position was set back: what lies behind it will come again, and is not a duplicate of itself. Or an operator
			// had the window forgotten, and it may have come back with an older copy of a database.
			through, err = 0, r.Store.Reset(ctx, scope)
		}
		if err != nil {
			return nil, fmt.Errorf("remembered fingerprints of %v: %w", p, err)
		}
		r.resets[p] = reset
		if through == position {
			continue
		}
		g := gap{scope: scope, through: through, from: min(max(through, reset), position), next: position, newest: idempotency.Never}
		if newest, ok := w.snapshot.Positions[p.NewestAppID(w.pipeline)]; ok {
			g.newest, g.since = newest, max(newest-r.Window.Milliseconds(), 0)
		}
		all[p] = g
	}
	return all, nil
}

// prepare readies the reading of what gaps need, nil if no row is needed.
func (w *writer) prepare(gaps map[Partition]gap) (Reading, error) {
	q := Recall{Identity: w.recollection.Identity, Claims: map[Partition]Span{}, IDs: w.recollection.IDs}
	for p, g := range gaps {
		if g.newest == idempotency.Never || g.from >= g.next {
			continue
		}
		if len(q.Claims) == 0 || g.since < q.Since {
			q.Since = g.since
		}
		q.Claims[p] = Span{From: g.from, Next: g.next}
	}
	if len(q.Claims) == 0 {
		return nil, nil //nolint:nilnil // nothing to read is no mistake
	}
	table, ok := inside(w.table).(Recaller)
	if !ok {
		return nil, hold.New(hold.TableUnsupported, "the fingerprints of its rows cannot be read back", nil)
	}
	read, err := table.Recall(w.snapshot, q)
	if outside, ok := w.table.(*outsideTable); ok && err == nil {
		read = outside.reading(read)
	}
	return read, err
}

// fill has the store remember what gaps lack. The store goes to the positions only when everything is there. Any
// goroutine; only one at a time for each claim.
func (w *writer) fill(ctx context.Context, gaps map[Partition]gap, read Reading) error {
	if len(gaps) == 0 {
		return nil
	}
	began, store := time.Now(), w.recollection.Store
	var entries int64
	if read != nil {
		if turns := w.recollection.turns; turns != nil {
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
		err := read(ctx, func(rows Recalled) error {
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

// recall looks up the fingerprints of a cut. It is the last thing before decide, so that decide can be pure.
func (w *writer) recall(ctx context.Context, cut *Cut) error {
	r := w.recollection
	if r == nil {
		return nil
	}
	for p := range cut.Claims {
		if r.waiting[p] != nil {
			return classify.Mark(fmt.Errorf("the window of %v is being filled for another session", p), classify.Fenced)
		}
	}
	ours := func(yield func(Partition) bool) {
		for p, span := range cut.Claims { // the others will be fenced
			if w.snapshot.Positions[p.AppID(w.pipeline)] == span.From && !yield(p) {
				return
			}
		}
	}
	for range mostLooks {
		whole, err := w.lookUp(ctx, cut, ours)
		if whole || err != nil {
			return err
		}
	}
	return classify.Mark(errors.New("others keep moving the windows of fingerprints"), classify.Fenced)
}

// mostLooks is how often fingerprints are looked up again because somebody moved a window meanwhile.
const mostLooks = 3

// lookUp fills the windows of a cut's claims and asks for its fingerprints. It tells whether the windows were whole all the
// while: a member that believes in an older position resets one that it shares with us, between our look and our question.
func (w *writer) lookUp(ctx context.Context, cut *Cut, claims iter.Seq[Partition]) (whole bool, err error) {
	r := w.recollection
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
	store := r.Store.For(cut.Batch)
	cut.Seen = map[Partition]map[idempotency.Fingerprint]int64{}
	for p := range claims {
		if cut.Seen[p], err = store.Seen(ctx, r.scopes[p], cut.entries(p)); err != nil {
			return false, fmt.Errorf("look up the fingerprints of %v: %w", p, err)
		}
		through, err := store.Through(ctx, r.scopes[p])
		if err != nil {
			return false, fmt.Errorf("remembered fingerprints of %v: %w", p, err)
		}
		if through != cut.Claims[p].From {
			return false, nil
		}
	}
	return true, nil
}

// entries yields the rows of a claim that have an identity.
func (c *Cut) entries(p Partition) iter.Seq[idempotency.Entry] {
	return func(yield func(idempotency.Entry) bool) {
		for i := range c.Chunks {
			for _, run := range c.Chunks[i].Runs {
				if run.Partition != p || c.Chunks[i].Entries == nil || !run.within(c.Claims) {
					continue
				}
				for _, e := range c.Chunks[i].Entries[run.From:run.To] {
					if !e.Fingerprint.IsZero() && !yield(e) {
						return
					}
				}
			}
		}
	}
}

// remember is step (f) of a commit. What a store does not take now is filled in before the next decision.
func (w *writer) remember(ctx context.Context, p *Plan) {
	r := w.recollection
	if r == nil || p.judged == nil {
		return
	}
	store, failed := r.Store.For(p.Commit.Batch), false
	for partition, span := range p.Next {
		scope, ok := r.scopes[partition]
		if !ok {
			continue // it was lost meanwhile
		}
		if err := store.Remember(ctx, scope, span.From, span.Next, p.remembered(partition)); err != nil && !errors.Is(err, idempotency.ErrMoved) {
			failed = true
			w.failing.remembering.Failed(ctx, w.logger, slog.LevelWarn, "fingerprints of a commit are not remembered yet: they will be read from the table",
				"batch_id", p.Commit.Batch, "topic", partition.Topic, "partition", partition.ID, "err", err)
		}
	}
	if !failed {
		w.failing.remembering.Over(ctx, w.logger, "fingerprints of commits are remembered again")
	}
	for partition, n := range p.judged {
		w.metrics.judged(partition.Topic, n)
	}
	r.log.tell(ctx, w.logger, p)
}

// sweep forgets what is older than the window, once in a while.
func (w *writer) sweep(ctx context.Context) {
	r := w.recollection
	if r == nil || w.snapshot == nil || time.Since(r.swept) < r.Sweep {
		return
	}
	r.swept = time.Now()
	failed := false
	for p, scope := range r.scopes {
		newest, ok := w.snapshot.Positions[p.NewestAppID(w.pipeline)]
		if !ok || r.waiting[p] != nil {
			continue
		}
		if err := r.Store.Sweep(ctx, scope, newest-r.Window.Milliseconds()); err != nil {
			failed = true
			w.failing.sweeping.Failed(ctx, w.logger, slog.LevelWarn, "old fingerprints are not forgotten yet", "topic", p.Topic, "partition", p.ID, "err", err)
		}
	}
	if !failed {
		w.failing.sweeping.Over(ctx, w.logger, "old fingerprints are forgotten again")
	}
}

// ready says which of the claims that resume have their windows, and holds those whose windows cannot be filled. The
// others are filled on another goroutine, and resume again behind that.
func (w *writer) ready(ctx context.Context, claims map[Partition]resumeRequest, result map[Partition]found) error {
	r := w.recollection
	if r == nil {
		return nil
	}
	resumes := func(yield func(Partition) bool) {
		for p, f := range result {
			if f.hold != nil {
				continue
			}
			if waits := r.waiting[p]; waits != nil {
				*waits = waiting{resumeRequest: claims[p]} // its newest session
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
		if err := r.failed[p]; err != nil {
			delete(r.failed, p)
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
		r.waiting[p] = &waiting{resumeRequest: claims[p]}
		delete(result, p)
	}
	r.filling.Go(func() {
		loop := w.loops.Begin("filling " + w.name)
		defer loop.End()
		loop.Work()
		err := w.fill(pulse.With(ctx, loop), gaps, read)
		w.post(func(todo *work) { todo.filled = append(todo.filled, filledWindows{gaps, err}) })
	})
	return nil
}

// unfilled is the hold of a claim without its window.
func (w *writer) unfilled(p Partition, q resumeRequest, f found, err error) found {
	reason, detail, held := hold.Of(err)
	if !held {
		reason, detail = hold.StoreDown, err.Error()
	}
	f.session = q.session
	f.hold = &hold.Hold{Partition: p, Reason: reason, Detail: "the window of fingerprints cannot be filled: " + detail, Offset: f.at.Next}
	return f
}

// filledWindows says that windows were filled, or could not be.
type filledWindows struct {
	gaps map[Partition]gap
	err  error
}

// heardFilled has the claims of filled windows resume.
func (w *writer) heardFilled(ctx context.Context, done []filledWindows) (again map[Partition]resumeRequest) {
	r := w.recollection
	again = map[Partition]resumeRequest{}
	for _, d := range done {
		if d.err == nil {
			w.failing.filling.Over(ctx, w.logger, "windows of fingerprints are filled again")
		}
		if d.err != nil && classify.Of(d.err) != classify.Canceled && !errors.Is(d.err, idempotency.ErrMoved) {
			w.failing.filling.Failed(ctx, w.logger, slog.LevelWarn, "the window of fingerprints cannot be filled from the table", "err", d.err)
		}
		for p := range d.gaps {
			waited := r.waiting[p]
			delete(r.waiting, p)
			if waited.lost {
				w.release(p)
				continue
			}
			// If the window moved meanwhile (it was lost and came back), the gap is another one now.
			if again[p] = waited.resumeRequest; d.err != nil && !errors.Is(d.err, idempotency.ErrMoved) {
				r.failed[p] = d.err
			}
		}
	}
	return again
}

// release forgets a claim that was lost.
func (w *writer) release(p Partition) {
	r := w.recollection
	if r == nil {
		return
	}
	if waits := r.waiting[p]; waits != nil {
		// Who fills the window goes on, and would take what is left of it for the whole. It is released behind that, unless
		// the claim has come back.
		waits.lost = true
		return
	}
	if scope, ok := r.scopes[p]; ok {
		r.Store.Release(scope)
	}
	delete(r.scopes, p)
	delete(r.resets, p)
	delete(r.failed, p)
}

// close waits for what fills windows and forgets all of them.
func (r *recollection) close() {
	if r == nil {
		return
	}
	r.filling.Wait()
	for _, scope := range r.scopes {
		r.Store.Release(scope)
	}
}
