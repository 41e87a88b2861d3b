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

// Config is what a reader works with.
type Config struct {
	// Topics are those known before any assignment. A run until current ends at their ends; others come by assignment.
	Topics []string
	Queue  connector.QueueConfig
	Drain  time.Duration // from the signal to stop to the end
	// UntilCurrent ends the run once the tables have what the topics held at its start, or holds.
	UntilCurrent bool
	// Member begins the ids of batches: unlike any other's, now and before.
	Member string

	Log       connector.Log
	Tables    Tables
	Decisions Decisions
	Offsets   *Offsets
	Pools     connector.Pools
	Lanes     lane.Config   // of each lane: Metrics, Records and Loops; the reader sets the rest
	Count     int           // of lanes
	Writers   commit.Config // of each writer, but for Outcomes and Progress
	Publish   func(*connector.Status)
	Logger    *slog.Logger
	Metrics   *Metrics
	Loops     *pulse.Loops // nil if nobody looks
}

// Tables are the tables that topics feed. The reader asks, on its goroutine; answers come at once, without asking anybody.
type Tables interface {
	// Open says which table a topic feeds, false if none. It is asked once for each topic. Topics of one table get the same
	// Target.
	Open(topic string) (connector.TopicConfig, connector.Target, bool)
	// Retire takes back a Target that no topic has fed for a while: Open makes another one if it must. What it returns is called
	// when nobody uses the old one any more; nil calls nothing.
	Retire(table string) (closed func())
	// Blocked says why a claim stands still while somebody tries for it: the table's store is down, a commit is undecided, a
	// broker does not answer. nil means that nothing is wrong.
	Blocked(table string, p connector.Partition) *hold.Hold
}

// Decisions are what operators decided about claims. They are asked often, and answer at once.
type Decisions interface {
	commit.Decisions
	// Paused says that an operator paused a partition, who and why: a hold with hold.Paused, its Since that of the pause. nil
	// means that it may be read.
	Paused(connector.Partition) *hold.Hold
	// Rechecks returns the number of the newest request of an operator to check a partition now instead of when it is due, 0
	// without one. Numbers grow.
	Rechecks(connector.Partition) int64
}

// Undecided are decisions that nobody made.
type Undecided struct{}

// Paused returns nil.
func (Undecided) Paused(connector.Partition) *hold.Hold { return nil }

// FloodAllowed returns false.
func (Undecided) FloodAllowed(string) bool { return false }

// Rechecks returns 0.
func (Undecided) Rechecks(connector.Partition) int64 { return 0 }

// A Reader knows all claims of this member. It alone moves their offsets: what may be fetched, what is handed over to
// the lanes, and when a batch becomes a cut. It never waits for the network, a writer or a pool; only a marker waits for
// a lane, and a lane waits for nobody.
type Reader struct {
	*base

	room       *room
	holds      *holds
	fetches    *fetches
	pauses     *pauseLog
	dispatcher *dispatcher
	current    *current
	batcher    *batcher
	assignment *assignment
	outcomes   *outcomes
	status     *status

	fromGroup   chan connector.Assignment
	fromWriters chan commit.Outcome
	fromLanes   chan struct{}

	loop *pulse.Loop
}

// base is what the parts of a reader share. Only the reader's goroutine uses it.
type base struct {
	Config

	backpressure *lane.Backpressure
	blocks       *lane.Blocks
	chunk        lane.ChunkLimit
	lanes        []*lane.Lane

	claims map[connector.Partition]*claim
	order  []*claim // the claims by partition
	tables []*tableState

	joined   bool // a generation is valid
	assigned bool // there was one
	draining bool
}

const (
	// A cut without rows moves only positions; it waits until so many offsets or so much time have gathered.
	emptyOffsets = 1_000_000
	emptyEvery   = 10 * time.Minute
	showEvery    = 500 * time.Millisecond
)

// New returns a reader with its lanes. The error names a topic of Topics that feeds no table.
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
	r.current = &current{base: r.base}
	r.batcher = &batcher{base: r.base, room: r.room, current: r.current}
	r.assignment = newAssignment(r.base, r.holds, r.batcher)
	r.outcomes = &outcomes{base: r.base, holds: r.holds, fetches: r.fetches, batcher: r.batcher, assignment: r.assignment, current: r.current}
	r.status = &status{base: r.base, pauses: r.pauses, outage: map[standing]*outage{}}
	for _, topic := range c.Topics {
		if r.assignment.feeds(topic) == nil {
			return nil, fmt.Errorf("topic %q feeds no table", topic)
		}
	}
	return r, nil
}

// Deliver tells the reader what this member should work on, or waits until ctx ends.
func (r *Reader) Deliver(ctx context.Context, a connector.Assignment) {
	select {
	case r.fromGroup <- a:
	case <-ctx.Done():
	}
}

// Run works until ctx ends or the run is current, then drains. Lanes and writers are goroutines of group, which work until
// working ends.
func (r *Reader) Run(ctx, working context.Context, group *sync.WaitGroup) {
	for _, l := range r.lanes {
		group.Go(func() { l.Run(working) })
	}
	r.assignment.running = func(w *commit.Writer) { w.Begin(working, group) }
	for _, t := range r.tables {
		r.assignment.running(t.writer)
	}
	r.loop = r.Loops.Begin("reader")
	defer r.loop.End()
	r.loop.Work() // all the time: it turns at least every showEvery
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.turn()
		if r.current.done() {
			r.Logger.InfoContext(ctx, "current: the table has what the topics held at the start")
			break
		}
		timer.Reset(r.batcher.untilDue())
		select {
		case a := <-r.fromGroup:
			r.assignment.assign(a)
		case f := <-r.Log.Fetched():
			r.fetches.fetched(f)
		case o := <-r.fromWriters:
			r.outcomes.handle(o)
		case <-r.fromLanes:
		case <-r.Pools.Fetch.Pressed():
		case <-timer.C:
		case <-ctx.Done():
			r.drain(ctx)
			return
		}
	}
	r.drain(ctx)
}

// turn does what time, memory and operators make due.
func (r *Reader) turn() {
	r.loop.Turn()
	r.holds.wishes()
	r.dispatcher.enqueue()
	r.batcher.sealForMemory = r.room.tableToSeal()
	for _, t := range r.tables {
		if reason := r.batcher.due(t); reason != "" {
			r.batcher.seal(t, reason)
		}
		r.holds.checkDue(t)
	}
	for _, t := range slices.Backward(r.tables) { // one may go
		r.assignment.retire(t)
	}
	r.fetches.turnToFetching()
	r.pauses.watchPauses()
	r.status.show()
}

// drain ends the work: no more fetching, one last cut of what was handed over, its commit, the group offsets. Whatever
// is left at the end of the time is dropped, which only means that it is read again.
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
			if reason := r.batcher.due(t); reason != "" {
				r.batcher.seal(t, reason)
			}
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
			r.Logger.WarnContext(ctx, "drain: time is over, the open batch is dropped and will be read again", "after", r.Drain)
			return
		}
	}
	left, cancel := context.WithTimeout(context.WithoutCancel(ctx), max(r.Drain-time.Since(began), time.Second))
	defer cancel()
	r.Offsets.flush(pulse.With(left, r.loop))
	r.Logger.InfoContext(ctx, "drained", "after", time.Since(began).Round(time.Millisecond))
}
