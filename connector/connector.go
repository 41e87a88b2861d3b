package connector

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// Config is what steers the story. cmd/connector fills it from config.yaml, where each key is explained.
type Config struct {
	Pipeline string
	// Topics are those known before any assignment. A run until current ends at their ends; others come by assignment.
	Topics               []string
	Queue                QueueConfig
	OffsetCommitInterval time.Duration // group offsets are at most this stale
	Drain                time.Duration // from the signal to stop to the end
	Lanes                int           // 0: one per core
	// UntilCurrent ends the run once the table has what the topics held at its start, or holds.
	UntilCurrent bool
	// Member names this process in dead letters and in the ids of batches: unlike any other's, now and before.
	Member string
}

// TopicConfig is one topic and the table that it feeds.
type TopicConfig struct {
	Topic  string
	Table  string // its name; one table may be fed by many topics, which agree on Commit
	Start  Start
	Refuse Refusals
	// Rare says that the topic has few records, if any: its table does not count among those that share memory.
	Rare bool
	// Retry is for what fails with single records; topics of one table agree on it.
	Retry  reliability.RecordRetry
	Commit Limits
	// HealthRecords are those of this topic alone, whatever else feeds the table.
	HealthRecords HealthRecords
	// Letters are the rules by which bad records of the topic become dead letters; nil: a bad record holds its partition.
	Letters *LetterRules
}

// Limits say when a batch is due: what comes first.
type Limits struct {
	Every time.Duration
	Rows  int64
	Bytes int64 // of Arrow buffers
}

// QueueConfig bounds the records between hand-over and row.
type QueueConfig struct {
	PauseAt, ResumeAt int64 // the valve
	PerKey            int64
}

// Target is a table with the decoder of its rows.
type Target struct {
	Table   Table
	Decoder Decoder
	// Letters takes bad records of the topics that have rules for them. Without it every bad record holds its partition.
	Letters DeadLetters
	// Nulls says that the decoder makes rows of records without a value, too. Else they are passed over and counted.
	Nulls bool
	// Duplicates says which records of the table are the same for their producer; nil: coordinates alone tell records apart.
	Duplicates *Duplicates
}

// Connector moves every record of its topics into their tables.
type Connector struct {
	Config
	Group Group
	Log   Log
	// Route says which table a topic feeds, false if none. It is asked once for each topic, by one goroutine, and answers
	// at once, without asking anybody. Topics of one table get the same Target.
	Route func(topic string) (TopicConfig, Target, bool)
	// Retire takes back a Target that no topic has fed for a while: Route makes another one if it must. Same goroutine. What
	// it returns is called when nobody uses the old one any more. May be nil.
	Retire func(table string) (closed func())
	Kafka  *reliability.Guard // around questions to Kafka that no record waits for
	// Standing says why a claim stands still while somebody tries for it: the table's store is down, a commit is
	// undecided, a broker does not answer. May be nil; nil results mean that nothing is wrong.
	Standing func(table string, p Partition) *hold.Hold
	// Paused says that an operator paused a partition, who and why: a hold with hold.Paused, its Since that of the pause.
	// It is asked often, by one goroutine, and answers at once. May be nil; nil results mean that it may be read.
	Paused func(Partition) *hold.Hold
	// FloodAllowed tells whether an operator lets a flood of bad records of a topic pass now. It is asked often, by several
	// goroutines, and answers at once. May be nil: none is.
	FloodAllowed func(topic string) bool
	// Asked returns the number of the newest request of an operator to check a partition now instead of when it is due, 0
	// without one. Numbers grow. It is asked often, by one goroutine, and answers at once. May be nil: none is made.
	Asked   func(Partition) int64
	Pools   Pools
	Logger  *slog.Logger
	Metrics prometheus.Registerer
	// Loops is where the loops of a run are seen, nil if nobody looks.
	Loops *pulse.Loops

	status atomic.Pointer[Status]
}

// recheck is how often holds and idle claims are held against the table.
const recheck = time.Minute

// Run joins the group, works until ctx ends (or until current, if so configured), drains and leaves. The error is nil
// unless the configuration cannot work.
//
// A failing dependency never ends it: claims hold, with a reason, and go on by themselves.
func (c *Connector) Run(ctx context.Context) error {
	m := newMetrics(c.Metrics)
	if c.Metrics != nil {
		c.Metrics.MustRegister(newLastRecords(c.Status))
	}
	r, err := c.newReader(m)
	if err != nil {
		return err
	}
	// Work in flight outlives the signal to stop: a started commit is finished, or given up at the end of the drain.
	working, stop := context.WithCancelCause(context.WithoutCancel(ctx))
	var goroutines sync.WaitGroup
	for _, l := range r.lanes {
		goroutines.Go(func() { l.run(working) })
	}
	r.begun = func(w *writer) {
		writing, end := context.WithCancelCause(working)
		w.stop = func() { end(classify.Mark(errors.New("no topic feeds the table"), classify.Canceled)) }
		goroutines.Go(func() {
			w.run(writing)
			if w.closed != nil {
				w.closed()
			}
		})
	}
	for _, t := range r.tables {
		r.begun(t.writer)
	}
	goroutines.Go(func() { r.offsets.run(working) })
	member, leave := context.WithCancel(working)
	left := make(chan struct{})
	defer r.sweep()
	go func() {
		defer close(left)
		c.member(member, r)
	}()

	r.run(ctx)

	stop(classify.Mark(errors.New("drained"), classify.Canceled))
	leave()
	<-left
	goroutines.Wait()
	return nil
}

// member stays in the group until ctx ends. A cluster that refuses us is a hold, looked at again each minute.
func (c *Connector) member(ctx context.Context, r *reader) {
	deliver := func(a Assignment) {
		select {
		case r.assignments <- a:
		case <-ctx.Done():
		}
	}
	var refused reliability.FailureLog
	for {
		err := c.Group.Run(ctx, deliver)
		if ctx.Err() != nil {
			return
		}
		refused.Failed(ctx, c.Logger, slog.LevelError, "left the group, will join again", "err", err, "class", classify.Of(err).String(), "pause", recheck)
		deliver(Assignment{Joined: false})
		if reliability.Wait(ctx, recheck) != nil {
			return
		}
	}
}

func (c *Connector) newReader(m *metrics) (*reader, error) {
	n := c.Lanes
	if n == 0 {
		n = runtime.GOMAXPROCS(0)
	}
	pools := c.Pools.withDefaults()
	floodAllowed := c.FloodAllowed
	if floodAllowed == nil {
		floodAllowed = func(string) bool { return false }
	}
	outcomes, progress := make(chan outcome), make(chan struct{}, 1)
	shared := ofWriters{
		outcomes: outcomes, tell: func() { wake(progress) }, turns: make(chan struct{}, fillsAtOnce), lanes: n, batch: pools.Batch, metrics: m, floodAllowed: floodAllowed,
	}
	r := &reader{
		config:      c.Config,
		log:         c.Log,
		logger:      c.Logger,
		metrics:     m,
		valve:       newValve(c.Queue),
		pools:       pools,
		blocks:      newBlockPool(2*int(c.Queue.PauseAt)/blockRecords + n),
		assignments: make(chan Assignment),
		outcomes:    outcomes,
		progress:    progress,
		claims:      map[Partition]*claim{},
		outage:      map[standing]*outage{},
		byTopic:     map[string]*tableState{},
		feeding:     map[string]TopicConfig{},
		health:      map[string]*healthFilter{},
		route:       c.Route,
		retired:     c.Retire,
		loops:       c.Loops,
		newWriter:   func(t *tableState, target Target) *writer { return c.newWriter(t, target, shared) },
		offsets:     newOffsetKeeper(c.Group, c.OffsetCommitInterval, c.Logger, m, c.Loops),
		publish:     func(s *Status) { c.status.Store(s) },
		standing:    c.Standing,
		paused:      c.Paused,
		asked:       c.Asked,

		floodAllowed: floodAllowed,
		pressure:     backpressure{lines: reliability.NewSparse(letterLines, letterLinesEach)},
	}
	records := newRecordLog(c.Logger)
	r.chunk.set(pools.Batch.Size(), n, len(c.Topics))
	for id := range n {
		r.lanes = append(r.lanes, &lane{
			id: id, in: make(chan laneWork, laneQueue), progress: r.progress, valve: r.valve, blocks: r.blocks, metrics: m,
			batch: pools.Batch, chunk: &r.chunk, loops: c.Loops, records: records,
			open: map[*tableState]*openChunk{},
		})
	}
	for _, topic := range c.Topics {
		if r.feeds(topic) == nil {
			return nil, fmt.Errorf("topic %q feeds no table", topic)
		}
	}
	return r, nil
}

// ofWriters is what all writers share.
type ofWriters struct {
	outcomes     chan<- outcome
	tell         func()        // has the reader look again
	turns        chan struct{} // to load windows of fingerprints
	lanes        int
	batch        *bytepool.Pool
	metrics      *metrics
	floodAllowed func(topic string) bool
}

// newWriter returns the writer of a table. It works once it runs.
func (c *Connector) newWriter(t *tableState, target Target, shared ofWriters) *writer {
	logger := c.Logger.With("table", t.name)
	w := &writer{
		name:     t.name,
		state:    t,
		table:    &outsideTable{Table: target.Table, logger: logger},
		letters:  outsideLetters(target.Letters),
		group:    c.Group,
		log:      c.Log,
		kafka:    c.Kafka,
		pipeline: c.Pipeline,
		member:   c.Member,

		out:          shared.outcomes,
		tell:         shared.tell,
		lanes:        shared.lanes,
		batch:        shared.batch,
		metrics:      shared.metrics,
		floodAllowed: shared.floodAllowed,
		wake:         make(chan struct{}, 1),
		logger:       logger,
		loops:        c.Loops,

		start:        map[string]Start{},
		rows:         map[RowsOf]rowsFound{},
		rules:        map[string]LetterRules{},
		told:         newLetterLog(),
		ignored:      ignoredLog{},
		recollection: newRecollection(target.Duplicates),
	}
	if w.recollection != nil {
		w.recollection.turns = shared.turns
	}
	return w
}
