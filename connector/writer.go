package connector

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"sluice/classify"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/pulse"
)

// A writer carries the cuts of one table into its log. It alone looks at the table: resume, START, decide, commit run
// one after the other on its goroutine. The reader gives it work through post, which never blocks, and hears of the
// outcome on out.
type writer struct {
	table    Table
	letters  DeadLetters // nil if no topic of the table has them
	group    Group
	log      Log
	kafka    *reliability.Guard
	pipeline string
	member   string
	out      chan<- outcome
	batch    *bytepool.Pool
	tell     func() // has the reader look again
	lanes    int
	state    *tableState // the reader's; only passed back to it
	logger   *slog.Logger
	metrics  *metrics
	loops    *pulse.Loops
	name     string // of the table

	floodAllowed func(topic string) bool

	stop   func() // ends run
	closed func() // what comes after run, if it was retired

	mu   sync.Mutex
	todo work
	wake chan struct{}

	// Owned by run:
	start    map[string]Start // by topic
	rules    map[string]LetterRules
	told     letterLog
	snapshot *Snapshot // newest known; nil before the first resume
	failures int       // consecutive cuts that failed for an unknown reason
	retry    reliability.RecordRetry
	trouble  trouble
	hurry    bool                // the process ends: no pause is worth it
	ends     map[Partition]int64 // of all partitions of the topics, when they were first asked for

	recollection *recollection // of duplicates; nil if the table declares no identity
}

// work is what the reader wants of a writer. Each kind exists at most once at a time.
type work struct {
	topics map[string]TopicConfig // that feed the table from now on, too
	cut    *openCut
	// dropped are cuts that nobody wants any more; what the lanes had for them is given back.
	dropped []*openCut
	resume  map[Partition]resumeRequest
	look    map[Partition]int64
	lost    map[Partition]uint64 // claims that are not this member's any more, with a session behind their last one
	filled  []filledWindows      // of fingerprints
	ends    bool                 // how far the whole table is from where its topics ended at the first such question
	hurry   bool                 // do not wait for anything but the world: the process ends
}

// openCut is a cut whose marker is on its way through the lanes.
type openCut struct {
	id     string // of the batch
	claims map[Partition]Span
	parts  chan part // one from each lane, with room for all
	passed atomic.Int32
	held   atomic.Int64 // of the batch pool, in bytes
	taken  bool         // by its writer, who owns this
}

// marked tells whether the marker is through all lanes.
func (o *openCut) marked(lanes int) bool { return int(o.passed.Load()) == lanes }

// part is what one lane had for a cut.
type part struct {
	lane       int
	chunks     []Chunk
	candidates []Candidate
	dropped    []Dropped
	failed     *failure // nothing of the part is usable, nor of the cut
}

type resumeRequest struct {
	session uint64
	// last is where the claim stood as far as the reader knows. Its epoch is that of the position still, if the table has
	// not moved: the group's offset may be older, or lost.
	last Position
	// standing is the reason of the hold that the claim is in, "" if none: a finding that is known already needs no
	// second look.
	standing Reason
	// paused says that what is found only matters once an operator resumes the claim: it needs no second look, either.
	paused bool
}

// outcome is what a writer says to the reader.
type outcome struct {
	kind    outcomeKind
	table   *tableState
	cut     *openCut            // that it is about, nil for a resume or a look
	plan    *Plan               // of settled and fenced cuts, if it came so far
	resumed map[Partition]found // of resumed
	err     error               // of fenced and failed
	behind  []Position          // of measured
	unknown bool                // of measured: nobody could say
	schema  Schema
	broken  bool // of fenced: the cut failed in our own work, which the writer has said
	again   bool // of fenced: the same records are wanted once more, and soon
}

type outcomeKind uint8

const (
	settled  outcomeKind = iota // a cut is in the log, or had nothing to commit
	fenced                      // positions moved: everything of this table is dropped and resumed
	failed                      // the table cannot be written: its claims hold
	resumed                     // claims know where they stand
	looked                      // idle claims stand where they were
	measured                    // which partitions, of whatever member, are behind the ends
)

// found is where a claim stands.
type found struct {
	session uint64
	at      Position
	bounds  Bounds
	mend    bool  // the group offset differs
	hold    *Hold // nil if it may be read
}

// post adds to the writer's work. It never blocks.
func (w *writer) post(add func(*work)) {
	w.mu.Lock()
	add(&w.todo)
	w.mu.Unlock()
	select {
	case w.wake <- struct{}{}:
	default:
	}
}

// run works until ctx ends.
func (w *writer) run(ctx context.Context) {
	loop := w.loops.Begin("writer " + w.name)
	defer loop.End()
	ctx = pulse.With(ctx, loop)
	defer w.recollection.close()
	for {
		loop.Work()
		todo, pause := w.take()
		w.follow(todo.topics)
		for _, open := range todo.dropped {
			w.discard(ctx, open)
		}
		todo.dropped = nil
		if todo.cut == nil { // it may hold rows of claims that were lost behind it
			w.leave(&todo)
		}
		if len(todo.filled) > 0 {
			again := w.heardFilled(ctx, todo.filled)
			todo.filled = nil
			todo.keep(work{resume: again})
		}
		switch {
		case todo.cut != nil:
			o := w.write(ctx, todo.cut)
			o.cut = todo.cut
			w.say(ctx, o)
			for p := range todo.cut.claims { // the cut moved what was to be looked at
				delete(todo.look, p)
			}
			w.leave(&todo)
			todo.cut = nil
			w.sweep(ctx)
		case len(todo.resume) > 0:
			w.say(ctx, w.resume(ctx, todo.resume))
			todo.resume = nil
		case todo.look != nil:
			w.say(ctx, w.look(ctx, todo.look))
			todo.look = nil
		case todo.ends:
			behind, ok := w.measure(ctx)
			w.say(ctx, outcome{kind: measured, behind: behind, unknown: !ok})
			todo.ends = false
		default:
			loop.Rest()
			if !w.sleep(ctx, pause) {
				return
			}
			continue
		}
		w.post(func(now *work) { now.keep(todo) })
		if ctx.Err() != nil {
			return
		}
	}
}

// take returns what there is to do. A cut that came too early after one that failed stays where it is, for pause.
func (w *writer) take() (todo work, pause time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	todo, w.todo = w.todo, work{}
	w.hurry = w.hurry || todo.hurry
	if pause = time.Until(w.trouble.notBefore); todo.cut == nil || pause <= 0 || w.hurry {
		return todo, 0
	}
	w.todo.cut, todo.cut = todo.cut, nil
	return todo, pause
}

// sleep waits for more to do, or for so long if it is not 0. It tells whether there is a reason to go on.
func (w *writer) sleep(ctx context.Context, pause time.Duration) bool {
	var over <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-w.wake:
	case <-over:
	case <-ctx.Done():
		return false
	}
	return true
}

// follow notes topics that feed the table.
func (w *writer) follow(topics map[string]TopicConfig) {
	for name, conf := range topics {
		w.start[name], w.retry = conf.Start, conf.Retry
		if conf.Letters != nil {
			w.rules[name] = *conf.Letters
		}
	}
}

// leave gives up claims that were lost, and what was wanted to know of them: nobody would give back their windows.
func (w *writer) leave(todo *work) {
	for p, session := range todo.lost {
		if q, ok := todo.resume[p]; ok && q.session < session {
			delete(todo.resume, p)
		}
		w.release(p)
	}
	todo.lost = nil
}

// keep puts back what was taken and not done yet, unless something newer came.
func (now *work) keep(old work) {
	for p, r := range old.resume {
		if now.resume == nil {
			now.resume = map[Partition]resumeRequest{}
		}
		if newer, ok := now.resume[p]; !ok || newer.session < r.session {
			now.resume[p] = r
		}
	}
	if now.look == nil {
		now.look = old.look
	}
	now.ends = now.ends || old.ends
}

func (w *writer) say(ctx context.Context, o outcome) {
	o.table = w.state
	if w.snapshot != nil {
		o.schema = w.snapshot.Schema
	}
	select {
	case w.out <- o:
	case <-ctx.Done():
	}
}

// write gathers a cut from the lanes, decides and commits it.
func (w *writer) write(ctx context.Context, open *openCut) outcome {
	cut := w.gather(ctx, open)
	if cut == nil {
		return outcome{kind: fenced, err: context.Cause(ctx)}
	}
	logger := w.logger.With("batch_id", open.id)
	holding := w.hold(open, cut)
	defer holding.end()
	if _, err := cut.failedAt(); err != nil {
		return w.broken(ctx, cut, err)
	}
	if err := w.recall(ctx, cut); err != nil {
		return w.unsettled(ctx, nil, err)
	}
	plan := decide(cut, w.snapshot, w.terms(cut))
	holding.plan(plan.Pieces)
	if len(plan.Next) == 0 {
		w.metrics.stopped(plan)
		logger.DebugContext(ctx, "nothing to commit", "holds", len(plan.Holds))
		return outcome{kind: settled, plan: plan}
	}
	if len(plan.Pieces) > 0 && w.searches() {
		if o := w.rehearsed(ctx, cut, plan); o != nil {
			return *o
		}
	}
	began := time.Now()
	s, err := w.commit(ctx, plan, holding)
	if err == nil {
		w.snapshot, w.failures = s, 0
		w.trouble.settle()
		w.state.isolated.passed(plan.Next)
		took := time.Since(began)
		w.metrics.committed(plan, took)
		w.metrics.stopped(plan)
		logger.InfoContext(ctx, "committed", plan.told(s.Version, took)...)
		return outcome{kind: settled, plan: plan}
	}
	if isLocal(err) {
		return w.broken(ctx, cut, err)
	}
	return w.unsettled(ctx, plan, err)
}

// told is what a line says of a plan that was committed.
func (p *Plan) told(version int64, took time.Duration) []any {
	var rows, letters, duplicates, health int64
	for _, r := range p.Commit.Ranges {
		rows, letters, duplicates, health = rows+r.Rows, letters+r.Letters, duplicates+r.Duplicates, health+r.HealthRecords
	}
	said := []any{"version", version, "partitions", len(p.Next), "rows", rows}
	if s := p.Commit.Staged; s != nil {
		said = append(said, "files", s.Count, "bytes", s.Bytes)
	}
	said = append(said, "letters", letters, "duplicates", duplicates, "health_records", health, "took", took.Round(time.Millisecond))
	if p.oldest > 0 {
		said = append(said, "oldest_age", time.Since(time.UnixMilli(p.oldest)).Round(time.Millisecond))
	}
	return said
}

// terms are those of now.
func (w *writer) terms(cut *Cut) terms {
	t := terms{pipeline: w.pipeline, member: w.member, letters: w.rules, allowed: map[string]bool{}}
	if w.recollection != nil {
		t.window, t.now = w.recollection.Window, time.Now()
	}
	for i := range cut.Candidates {
		topic := cut.Candidates[i].Partition.Topic
		if _, asked := t.allowed[topic]; !asked {
			t.allowed[topic] = w.floodAllowed(topic)
		}
	}
	return t
}

// unsettled says what becomes of the claims of a commit that did not happen, or not surely.
func (w *writer) unsettled(ctx context.Context, plan *Plan, err error) outcome {
	held := (*HoldError)(nil)
	if plan != nil {
		w.metrics.lost(plan, classify.Of(err))
	}
	switch class := classify.Of(err); {
	case class == classify.Fenced, class == classify.Canceled:
		return outcome{kind: fenced, plan: plan, err: err}
	case errors.As(err, &held):
		return outcome{kind: failed, plan: plan, err: err}
	}
	// Unknown: nothing about the cut is trusted any more. Resume from the log, after a pause that grows.
	w.failures++
	w.metrics.failed.Inc()
	logger := w.logger
	if plan != nil {
		logger = logger.With("batch_id", plan.Commit.Batch)
	}
	logger.ErrorContext(ctx, "commit failed for an unknown reason, its claims resume from the table", "err", err, "failures", w.failures)
	_ = reliability.Wait(ctx, w.kafka.Backoff().Pause(w.failures)) // ends early with ctx, as it should
	return outcome{kind: fenced, plan: plan, err: err}
}

// gather waits for the part of every lane. nil if ctx ended first.
func (w *writer) gather(ctx context.Context, open *openCut) *Cut {
	open.taken = true
	parts := make([]part, w.lanes)
	for range w.lanes {
		select {
		case p := <-open.parts:
			parts[p.lane] = p
		case <-ctx.Done():
			for _, p := range parts {
				p.release(w.batch)
			}
			return nil
		}
	}
	cut := &Cut{Batch: open.id, Claims: open.claims}
	for _, p := range parts {
		cut.Chunks = append(cut.Chunks, p.chunks...)
		cut.Candidates = append(cut.Candidates, p.candidates...)
		cut.Dropped = append(cut.Dropped, p.dropped...)
		if p.failed != nil {
			cut.failures = append(cut.failures, *p.failed)
		}
	}
	return cut
}

// discard gives back what the lanes have for a cut that was dropped before it was taken.
func (w *writer) discard(ctx context.Context, open *openCut) {
	if open.taken {
		return
	}
	if cut := w.gather(ctx, open); cut != nil {
		w.hold(open, cut).end()
	}
}

// look compares claims that have nothing to commit with the log: an operator or another member may have moved them.
func (w *writer) look(ctx context.Context, expected map[Partition]int64) outcome {
	s, err := w.table.Load(ctx)
	if err != nil {
		return w.unsettled(ctx, nil, err)
	}
	before := w.snapshot
	w.snapshot = s
	if before != nil && before.TableID != s.TableID || Replaced(s, w.pipeline) != "" {
		return outcome{kind: fenced, err: classify.Mark(errors.New("the table was replaced"), classify.Fenced)}
	}
	for p, at := range expected {
		if now, ok := s.Positions[p.AppID(w.pipeline)]; !ok || now != at {
			return outcome{kind: fenced, err: classify.Mark(errors.New("the position of "+p.String()+" moved"), classify.Fenced)}
		}
	}
	return outcome{kind: looked}
}

// measure returns the partitions of the topics that the table has not taken to where they ended when this was first
// asked: all of them, not only our claims. A member that died a moment ago may still have its share, and nobody reads it.
func (w *writer) measure(ctx context.Context) (behind []Position, ok bool) {
	if w.ends == nil {
		ends, err := w.currentEnds(ctx)
		if err != nil {
			return nil, false
		}
		w.ends = ends
	}
	s, err := w.table.Load(ctx)
	if err != nil {
		return nil, false
	}
	for p, end := range w.ends {
		at, known := s.Positions[p.AppID(w.pipeline)]
		switch {
		case !known:
			behind = append(behind, Position{p, -1, -1})
		case at < end:
			behind = append(behind, Position{p, at, -1})
		}
	}
	return behind, true
}

func (w *writer) currentEnds(ctx context.Context) (map[Partition]int64, error) {
	ends := map[Partition]int64{}
	for name := range w.start {
		topic, err := w.topic(ctx, name)
		if err != nil {
			return nil, err
		}
		bounds, err := w.bounds(ctx, positionsAt(topic.all()))
		if err != nil {
			return nil, err
		}
		for p, b := range bounds {
			ends[p] = b.LastStable
		}
	}
	return ends, nil
}
