package intake

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// Config is the configuration of a reader and what it shares with other parts.
type Config struct {
	// Topics are the topics known before any assignment; a run until current reads them to their ends. Others come
	// by assignment.
	Topics []string
	Queue  connector.QueueConfig
	Drain  time.Duration // the longest time of the drain
	// UntilCurrent ends the run once the tables have all records that the topics had at its start. It does not wait for
	// claims that are held.
	UntilCurrent bool
	// Member is the prefix of batch ids. It must be unique among all members, past ones included.
	Member string

	Log       connector.Log
	Tables    Tables
	Decisions Decisions
	Offsets   *Offsets
	Pools     connector.Pools
	Lanes     lane.Config   // the configuration of each lane; the reader sets all fields except Metrics, Records and Loops
	Count     int           // the number of lanes
	Writers   commit.Config // the configuration of each writer; the reader sets Outcomes and Progress
	Publish   func(*connector.Status)
	Logger    *slog.Logger
	Metrics   *Metrics
	Loops     *pulse.Loops // nil if the loop is not watched
}

// Tables provides the tables that topics feed. The reader calls it on its goroutine, so methods must not block.
type Tables interface {
	// Open returns the table that a topic feeds, false if none. The reader calls it once per topic, and again after it
	// has retired the table. Topics of one table get the same Target.
	Open(topic string) (connector.TopicConfig, connector.Target, bool)
	// Retire takes back the Target of a table that no topic feeds any more; a later Open makes a new one. The table's
	// writer calls the returned function, unless nil, after its last use of the old Target.
	Retire(table string) (closed func())
	// Blocked returns why a claim makes no progress although it is not held: the table's store is down, a commit is
	// undecided, a broker does not respond. It returns nil if nothing is wrong.
	Blocked(table string, p connector.Partition) *hold.Hold
}

// Decisions are the decisions of operators about claims. The methods are called often and must not block.
type Decisions interface {
	commit.Decisions
	// Paused returns the hold of a partition that an operator paused: reason hold.Paused, the operator and the
	// operator's reason in Detail, the time in Since. It returns nil if the partition is not paused.
	Paused(connector.Partition) *hold.Hold
	// Rechecks returns the number of the newest request of an operator to check the partition now, 0 if there was
	// none. Numbers increase.
	Rechecks(connector.Partition) int64
	// Flushes returns the number of the newest request of an operator to commit now what is enqueued of the partition's
	// table, 0 if there was none. Numbers increase.
	Flushes(connector.Partition) int64
}

// NoDecisions are the [Decisions] of operators who have decided nothing.
type NoDecisions struct{}

// Paused returns nil.
func (NoDecisions) Paused(connector.Partition) *hold.Hold { return nil }

// FloodAllowed returns false.
func (NoDecisions) FloodAllowed(string) bool { return false }

// Rechecks returns 0.
func (NoDecisions) Rechecks(connector.Partition) int64 { return 0 }

// Flushes returns 0.
func (NoDecisions) Flushes(connector.Partition) int64 { return 0 }

// A Reader owns all claims of this member. Only the reader decides what is fetched, what is enqueued to the lanes, and
// when a batch is sealed. In its loop it never waits for the network, a writer or a pool; only enqueueing a barrier
// waits for a lane, and lanes wait for no other goroutine. The drain waits for the last commits and the committed
// offsets.
type Reader struct {
	*base

	room       *room
	holds      *holds
	fetches    *fetches
	pauses     *pauseLog
	dispatcher *dispatcher
	current    *untilCurrent
	batcher    *batcher
	assignment *assignment
	outcomes   *outcomes
	status     *status

	fromGroup   chan connector.Assignment
	fromWriters chan commit.Outcome
	fromLanes   chan struct{}

	loop *pulse.Loop
}

// base is the state that the parts of a reader share. Only the reader's goroutine uses it.
type base struct {
	Config

	backpressure *lane.Backpressure
	blocks       *lane.Blocks
	chunk        lane.ChunkLimit
	lanes        []*lane.Lane

	claims map[connector.Partition]*claim
	order  []*claim // the claims in the order of their partitions
	tables []*tableState

	joined   bool // true while a generation is valid
	assigned bool // true once there was an assignment
	draining bool
}

const (
	// An open batch without rows and candidates only moves positions. It is sealed after positionsOffsets offsets or
	// after the time positionsEvery. showEvery is the interval at which the status is published; the reader makes a
	// turn at least as often.
	positionsOffsets = 1_000_000
	positionsEvery   = 10 * time.Minute
	showEvery        = 500 * time.Millisecond
)

// New returns a reader with its lanes. It fails if a topic of Topics feeds no table.
func New(c Config) (*Reader, error) {
	c.Pools = c.Pools.WithDefaults()
	r := &Reader{fromGroup: make(chan connector.Assignment), fromWriters: make(chan commit.Outcome), fromLanes: make(chan struct{}, 1)}
	c.Writers.Outcomes, c.Writers.Progress = r.fromWriters, r.fromLanes
	r.base = &base{
		Config:       c,
		backpressure: lane.NewBackpressure(c.Queue),
		blocks:       lane.NewBlocks(2*int(c.Queue.PauseAt)/lane.BlockRecords + c.Count),
		claims:       map[connector.Partition]*claim{},
	}
	r.chunk.Set(c.Pools.Batch.Size(), c.Count, len(c.Topics))
	for id := range c.Count {
		of := c.Lanes
		of.ID, of.Progress, of.Backpressure, of.Blocks, of.Batch, of.Chunk = id, r.fromLanes, r.backpressure, r.blocks, c.Pools.Batch, &r.chunk
		r.lanes = append(r.lanes, lane.New(of))
	}
	r.room = &room{base: r.base}
	r.holds = &holds{base: r.base, room: r.room}
	r.fetches = &fetches{base: r.base, room: r.room, holds: r.holds}
	r.pauses = newPauseLog(r.base, r.room)
	r.dispatcher = &dispatcher{base: r.base, room: r.room, holds: r.holds, fetches: r.fetches, pauses: r.pauses}
	r.current = &untilCurrent{base: r.base}
	r.batcher = &batcher{base: r.base, room: r.room, current: r.current}
	r.assignment = newAssignment(r.base, r.holds, r.batcher)
	r.outcomes = &outcomes{base: r.base, holds: r.holds, fetches: r.fetches, batcher: r.batcher, assignment: r.assignment, current: r.current}
	r.status = &status{base: r.base, pauses: r.pauses, outage: map[outageKey]*outage{}}
	for _, topic := range c.Topics {
		if r.assignment.tableFor(topic) == nil {
			return nil, fmt.Errorf("topic %q feeds no table", topic)
		}
	}
	return r, nil
}

// Deliver sends a new assignment to the reader, and waits until the reader takes it or ctx ends.
func (r *Reader) Deliver(ctx context.Context, a connector.Assignment) {
	select {
	case r.fromGroup <- a:
	case <-ctx.Done():
	}
}

// Run reads until ctx ends or the run is current, then drains. Lanes and writers run as goroutines of group until
// working ends.
func (r *Reader) Run(ctx, working context.Context, group *sync.WaitGroup) {
	for _, l := range r.lanes {
		group.Go(func() { l.Run(working) })
	}
	r.assignment.beginWriter = func(w *commit.Writer) { w.Begin(working, group) }
	for _, t := range r.tables {
		r.assignment.beginWriter(t.writer)
	}
	r.loop = r.Loops.Begin("reader")
	defer r.loop.End()
	r.loop.Work() // the reader always counts as working, because it turns at least once in showEvery
	r.read(ctx)
	r.drain(ctx)
}

// read makes turns until ctx ends or a run until current is done. Between two turns it waits for one event.
func (r *Reader) read(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.turn()
		if r.current.done() {
			r.Logger.InfoContext(ctx, "run until current finished; the tables have what the topics held at the start")
			return
		}
		timer.Reset(r.batcher.untilDue())
		select {
		case a := <-r.fromGroup:
			r.assignment.assign(a)
		case f := <-r.Log.Fetched():
			r.fetches.accept(f)
		case o := <-r.fromWriters:
			r.outcomes.handle(o)
		case <-r.fromLanes: // a lane has decoded records, or memory was released
		case <-r.Pools.Fetch.Pressed():
		case <-timer.C:
		case <-ctx.Done():
			return
		}
	}
}

// turn does everything that is due by time, by memory or by decisions of operators.
func (r *Reader) turn() {
	r.loop.Turn()
	r.holds.applyDecisions()
	r.dispatcher.enqueue()
	r.batcher.sealForMemory = r.room.tableToSeal()
	for _, t := range r.tables {
		r.batcher.sealIfDue(t)
		r.holds.checkDue(t)
	}
	for _, t := range slices.Backward(r.tables) { // in reverse, because retire removes tables
		r.assignment.retire(t)
	}
	r.fetches.updateFetching()
	r.pauses.watchPauses()
	r.status.show()
}

// drain ends the work: it stops fetching, seals the enqueued records, waits for their commits and commits the group's
// offsets. If that takes longer than Config.Drain, it drops the records that are not committed, and their next owner
// reads them again; the group's offsets are then not committed.
func (r *Reader) drain(ctx context.Context) {
	began := time.Now()
	r.draining = true
	for _, t := range r.tables {
		t.writer.Requests.Haste()
	}
	for _, c := range r.claims {
		r.Log.Forget(c.Partition)
		r.holds.dropQueued(c)
	}
	end := time.NewTimer(r.Drain)
	defer end.Stop()
	turn := time.NewTicker(showEvery)
	defer turn.Stop()
	for busy := true; busy; {
		busy = false
		r.loop.Turn()
		for _, t := range r.tables {
			r.batcher.sealIfDue(t)
			busy = busy || t.sealed != nil
		}
		r.status.shown = time.Time{}
		r.status.show()
		if !busy {
			break
		}
		select {
		case o := <-r.fromWriters:
			r.outcomes.handle(o)
		case <-r.fromGroup:
		case f := <-r.Log.Fetched():
			lane.NewFetchResult(f).Release()
		case <-r.fromLanes:
		case <-turn.C:
		case <-end.C:
			r.Logger.WarnContext(ctx, "drain timed out; dropping the open batch, its records will be read again", "after", r.Drain)
			return
		}
	}
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(r.Drain-time.Since(began), time.Second))
	defer cancel()
	r.Offsets.flush(pulse.With(left, r.loop))
	r.Logger.InfoContext(ctx, "drained", "after", time.Since(began).Round(time.Millisecond))
}

// Sweep releases the memory that is left after lanes and writers have ended: of fetch results, of blocks that no lane
// decoded, and of barriers that no writer took.
func (r *Reader) Sweep() {
	for _, c := range r.claims {
		r.holds.dropQueued(c)
	}
	for _, l := range r.lanes {
		l.Sweep()
	}
	for _, t := range r.tables {
		for _, barrier := range append(t.writer.Requests.Left(), t.sealed) {
			barrier.Sweep(r.Pools.Batch)
		}
	}
}
