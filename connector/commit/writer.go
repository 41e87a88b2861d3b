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

// Config has what the writers of all tables of a member share: its names, adapters, pools, channels and metrics.
type Config struct {
	Pipeline, Member string
	Group            connector.Group
	Log              connector.Log
	Kafka            *reliability.Guard // for requests to Kafka
	Decisions        Decisions
	Lanes            int
	Batch            *bytepool.Pool
	Outcomes         chan<- Outcome
	Progress         chan<- struct{} // gets a value when memory was released; must be buffered
	Fills            Fills
	Logger           *slog.Logger
	Metrics          *Metrics
	Loops            *pulse.Loops // nil if the loops are not watched
}

// Decisions are the decisions of operators about batches. They are read often, from several goroutines, and must
// not block.
type Decisions interface {
	// FloodAllowed reports whether an operator currently allows a flood of bad records of the topic.
	FloodAllowed(topic string) bool
}

// A Writer commits the sealed batches of one table. In this member only the writer uses the table: resume, initial
// commit, decide and commit run one after the other on its goroutine, and only the goroutine that fills dedup windows
// reads the table at the same time. The reader sends Requests and receives outcomes.
type Writer struct {
	*writerState

	Requests  *requests
	outcomes  chan<- Outcome
	resolver  *resolver
	committer *committer
	window    *window // nil if the table declares no identity
	loops     *pulse.Loops

	stop   context.CancelCauseFunc
	closed func() // is called when run has ended; nil if there is nothing to close
}

// writerState is what the parts of a writer share. Only the goroutine of the writer uses it; a goroutine that fills
// windows gets what it needs of the snapshot before it starts.
type writerState struct {
	name     string
	pipeline string
	table    connector.Table
	snapshot *connector.Snapshot // the snapshot that was read last; nil before the first resume
	logger   *slog.Logger
	metrics  *Metrics
}

// New returns the writer of a table. shared is the table's part that the lanes use. The caller must start it with
// Begin.
func New(c Config, name string, target connector.Target, shared *lane.Table) *Writer {
	logger := c.Logger.With("table", name)
	of := &writerState{
		name: name, pipeline: c.Pipeline, table: &waitingTable{Table: target.Table, logger: logger},
		logger: logger, metrics: c.Metrics,
	}
	q := newRequests()
	dedup := newWindow(target.Duplicates, of, q, c.Fills, c.Loops)
	commits := &committer{
		writerState: of, window: dedup, decoder: target.Decoder, letters: newWaitingLetters(target.Letters), verdicts: &shared.Verdicts,
		member: c.Member, lanes: c.Lanes, batch: c.Batch, wakeReader: func() { lane.Wake(c.Progress) },
		decisions: c.Decisions, rules: map[string]connector.LetterRules{}, backoff: c.Kafka.Backoff(),
		letterLog: newLetterLog(), ignored: ignoredLog{}, troubles: map[connector.Partition]*trouble{},
	}
	return &Writer{
		writerState: of, Requests: q, outcomes: c.Outcomes, committer: commits, window: dedup, loops: c.Loops,
		resolver: &resolver{
			writerState: of, committer: commits, window: dedup, kafka: kafka{c.Group, c.Log, c.Kafka},
			start: map[string]connector.Start{}, rows: map[connector.RowsOf]rowsFound{},
		},
	}
}

// Begin starts the writer on a goroutine of group. It runs until ctx ends or it is retired.
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

// run handles requests until ctx ends.
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
		// Lost claims are not released while there is a batch, because it may have rows of claims that were lost after
		// it was sealed.
		if todo.barrier == nil {
			w.releaseLost(&todo)
		}
		if len(todo.filled) > 0 {
			again := w.window.handleFilled(ctx, todo.filled)
			todo.filled = nil
			todo.merge(work{resume: again})
		}
		switch {
		case todo.barrier != nil:
			o := w.committer.write(ctx, todo.barrier)
			o.Barrier = todo.barrier
			w.report(ctx, o)
			for p := range todo.barrier.Claims { // the commit has moved the positions of these claims
				delete(todo.compare, p)
			}
			w.releaseLost(&todo)
			todo.barrier = nil
			w.window.sweep(ctx)
		case len(todo.resume) > 0:
			w.report(ctx, w.resolver.resume(ctx, todo.resume))
			todo.resume = nil
		case todo.compare != nil:
			w.report(ctx, w.resolver.compare(ctx, todo.compare))
			todo.compare = nil
		case todo.measure:
			behind, ok := w.resolver.measure(ctx)
			w.report(ctx, Outcome{Kind: Measured, Behind: behind, Unknown: !ok})
			todo.measure = false
		default:
			loop.Rest()
			if !w.sleep(ctx, pause) {
				return
			}
			continue
		}
		w.Requests.post(func(now *work) { now.merge(todo) })
		if ctx.Err() != nil {
			return
		}
	}
}

// sleep waits for requests, at most for pause if that is positive. It returns false if ctx has ended.
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

// follow adds topics that feed the table, with their starts, their rules for dead letters and the retry policy.
func (w *Writer) follow(topics map[string]connector.TopicConfig) {
	for name, conf := range topics {
		w.metrics.follows(name, w.pipeline, conf.Letters != nil)
		w.resolver.start[name], w.committer.retry = conf.Start, conf.Retry
		if conf.Letters != nil {
			w.committer.rules[name] = *conf.Letters
		}
	}
}

// releaseLost drops the requests about lost claims, and deletes their troubles and windows.
func (w *Writer) releaseLost(todo *work) {
	for p, session := range todo.lost {
		if q, ok := todo.resume[p]; ok && q.Session < session {
			delete(todo.resume, p)
		}
		w.window.release(p)
		delete(w.committer.troubles, p)
	}
	todo.lost = nil
}
