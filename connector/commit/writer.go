package commit

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/pulse"
)

// Config is what the writers of all tables work with.
type Config struct {
	Pipeline, Member string
	Group            connector.Group
	Log              connector.Log
	Kafka            *reliability.Guard // around questions to Kafka
	Decisions        Decisions
	Lanes            int
	Batch            *bytepool.Pool
	Outcomes         chan<- Outcome
	Progress         chan<- struct{} // gets a value when memory was given back
	Fills            Fills
	Logger           *slog.Logger
	Metrics          *Metrics
	Loops            *pulse.Loops // nil if nobody looks
}

// Decisions are what operators decided about batches. They are asked often, from several goroutines, and answer at once.
type Decisions interface {
	// FloodAllowed reports whether an operator lets a flood of bad records of a topic pass now.
	FloodAllowed(topic string) bool
}

// A Writer carries the cuts of one table into its log. It alone looks at the table: resume, START, decide, commit run
// one after the other on its goroutine. The reader asks through requests, and hears of the outcomes.
type Writer struct {
	*current

	Requests  *requests
	outcomes  chan<- Outcome
	resolver  *resolver
	committer *committer
	window    *window // of duplicates; nil if the table declares no identity
	loops     *pulse.Loops

	stop   context.CancelCauseFunc
	closed func() // called when run has ended; nil if nothing waits for that
}

// current is a table as its writer knows it. Only the writer's goroutine uses it, and what fills windows, with a snapshot of its own.
type current struct {
	name     string
	pipeline string
	table    connector.Table
	snapshot *connector.Snapshot // newest known; nil before the first resume
	logger   *slog.Logger
	metrics  *Metrics
}

// New returns the writer of a table. shared is what it shares with the lanes.
func New(c Config, name string, target connector.Target, shared *lane.Table) *Writer {
	logger := c.Logger.With("table", name)
	of := &current{
		name: name, pipeline: c.Pipeline, table: &outsideTable{Table: target.Table, logger: logger},
		logger: logger, metrics: c.Metrics,
	}
	q := newRequests()
	dedup := newWindow(target.Duplicates, of, q, c.Fills, c.Loops)
	commits := &committer{
		current: of, window: dedup, letters: outsideLetters(target.Letters), verdicts: &shared.Verdicts,
		member: c.Member, lanes: c.Lanes, batch: c.Batch, wakeReader: func() { lane.Wake(c.Progress) },
		decisions: c.Decisions, rules: map[string]connector.LetterRules{}, backoff: c.Kafka.Backoff(),
		letterLog: newLetterLog(), ignored: ignoredLog{}, troubles: map[connector.Partition]*trouble{},
	}
	return &Writer{
		current: of, Requests: q, outcomes: c.Outcomes, committer: commits, window: dedup, loops: c.Loops,
		resolver: &resolver{
			current: of, committer: commits, window: dedup, kafka: kafka{c.Group, c.Log, c.Kafka},
			start: map[string]connector.Start{}, rows: map[connector.RowsOf]rowsFound{},
		},
	}
}

// Begin starts the writer on a goroutine of group. It works until ctx ends or it is retired.
func (w *Writer) Begin(ctx context.Context, group *sync.WaitGroup) {
	ctx, w.stop = context.WithCancelCause(ctx)
	group.Go(func() {
		w.run(ctx)
		w.stop(nil)
		if w.closed != nil {
			w.closed()
		}
	})
}

// run works until ctx ends.
func (w *Writer) run(ctx context.Context) {
	loop := w.loops.Begin("writer " + w.name)
	defer loop.End()
	ctx = pulse.With(ctx, loop)
	defer w.window.close()
	for {
		loop.Work()
		todo, pause := w.Requests.take(w.committer.notBefore)
		w.follow(todo.topics)
		for _, barrier := range todo.dropped {
			w.committer.discard(ctx, barrier)
		}
		todo.dropped = nil
		if todo.barrier == nil { // it may hold rows of claims that were lost behind it
			w.leave(&todo)
		}
		if len(todo.filled) > 0 {
			again := w.window.handleFilled(ctx, todo.filled)
			todo.filled = nil
			todo.keep(work{resume: again})
		}
		switch {
		case todo.barrier != nil:
			o := w.committer.write(ctx, todo.barrier)
			o.Barrier = todo.barrier
			w.say(ctx, o)
			for p := range todo.barrier.Claims { // the cut moved what was to be looked at
				delete(todo.compare, p)
			}
			w.leave(&todo)
			todo.barrier = nil
			w.window.sweep(ctx)
		case len(todo.resume) > 0:
			w.say(ctx, w.resolver.resume(ctx, todo.resume))
			todo.resume = nil
		case todo.compare != nil:
			w.say(ctx, w.resolver.compare(ctx, todo.compare))
			todo.compare = nil
		case todo.ends:
			behind, ok := w.resolver.measure(ctx)
			w.say(ctx, Outcome{Kind: Measured, Behind: behind, Unknown: !ok})
			todo.ends = false
		default:
			loop.Rest()
			if !w.sleep(ctx, pause) {
				return
			}
			continue
		}
		w.Requests.post(func(now *work) { now.keep(todo) })
		if ctx.Err() != nil {
			return
		}
	}
}

// sleep waits for more to do, or for so long if it is not 0. It tells whether there is a reason to go on.
func (w *Writer) sleep(ctx context.Context, pause time.Duration) bool {
	var over <-chan time.Time
	if pause > 0 {
		t := time.NewTimer(pause)
		defer t.Stop()
		over = t.C
	}
	select {
	case <-w.Requests.wake:
	case <-over:
	case <-ctx.Done():
		return false
	}
	return true
}

// follow notes topics that feed the table.
func (w *Writer) follow(topics map[string]connector.TopicConfig) {
	for name, conf := range topics {
		w.metrics.follows(name, w.pipeline, conf.Letters != nil)
		w.resolver.start[name], w.committer.retry = conf.Start, conf.Retry
		if conf.Letters != nil {
			w.committer.rules[name] = *conf.Letters
		}
	}
}

// leave gives up claims that were lost, and what was wanted to know of them: nobody would give back their windows.
func (w *Writer) leave(todo *work) {
	for p, session := range todo.lost {
		if q, ok := todo.resume[p]; ok && q.Session < session {
			delete(todo.resume, p)
		}
		w.window.release(p)
		delete(w.committer.troubles, p)
	}
	todo.lost = nil
}
