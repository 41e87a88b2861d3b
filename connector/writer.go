package connector

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
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
	ignored  ignoredLog
	failing  failingWork
	snapshot *Snapshot // newest known; nil before the first resume
	failures int       // consecutive cuts that failed for an unknown reason
	retry    reliability.RecordRetry
	trouble  trouble
	hurry    bool                // the process ends: no pause is worth it
	ends     map[Partition]int64 // of all partitions of the topics, when they were first asked for

	rows         map[RowsOf]rowsFound // for which partitions are held
	recollection *recollection        // of duplicates; nil if the table declares no identity
}

// failingWork are the log lines of work that fails again and again.
type failingWork struct {
	unknown     reliability.FailureLog // commits, for a reason that no rule knows
	broken      reliability.FailureLog // batches, in our own work
	remembering reliability.FailureLog // fingerprints
	sweeping    reliability.FailureLog
	filling     reliability.FailureLog
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

type resumeRequest struct {
	session uint64
	// last is where the claim stood as far as the reader knows. Its epoch is that of the position still, if the table has
	// not moved.
	last Position
	// standing is the reason of the hold that the claim is in, "" if none: a finding that is known already needs no
	// second look.
	standing hold.Reason
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
	mend    bool       // the group offset differs
	hold    *hold.Hold // nil if it may be read
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
