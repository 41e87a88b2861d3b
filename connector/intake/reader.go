package intake

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/reliability"
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
	Config

	valve   *lane.Valve
	blocks  *lane.Blocks
	chunk   lane.ChunkLimit
	lanes   []*lane.Lane
	tables  []*tableState
	byTopic map[string]*tableState           // nil for a topic that feeds none
	feeding map[string]connector.TopicConfig // by topic, of those that feed a table
	health  map[string]*lane.HealthFilter

	running func(*commit.Writer) // starts a writer

	assignments chan connector.Assignment
	outcomes    chan commit.Outcome
	progress    chan struct{}

	loop *pulse.Loop

	// Owned by run:
	claims   map[connector.Partition]*claim
	order    []*claim // of the hand-over; turned, so that no claim starves another
	turn     int
	pressed  *tableState // to cut for want of memory
	waiting  []*claim    // for room in the batch pool, in the order in which they began
	first    *claim      // of waiting: it gets what becomes free, and nothing else is handed over; nil if there is none
	sheds    bool        // a claim gave up its block while it waited
	pressure backpressure
	sessions uint64
	batches  uint64 // cut so far
	joined   bool   // a generation is valid
	assigned bool   // there was one
	draining bool
	started  bool      // it was joined and every claim resumed, once
	shown    time.Time // when the status was published
	outage   map[standing]*outage
	// wishesSeen is when the claims were last compared with what operators want.
	wishesSeen time.Time
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
	r := &Reader{
		Config:      c,
		valve:       lane.NewValve(c.Queue),
		blocks:      lane.NewBlocks(2*int(c.Queue.PauseAt)/lane.BlockRecords + c.Count),
		assignments: make(chan connector.Assignment),
		outcomes:    make(chan commit.Outcome),
		progress:    make(chan struct{}, 1),
		claims:      map[connector.Partition]*claim{},
		outage:      map[standing]*outage{},
		byTopic:     map[string]*tableState{},
		feeding:     map[string]connector.TopicConfig{},
		health:      map[string]*lane.HealthFilter{},
		pressure:    backpressure{lines: reliability.NewSparse(pauseLines, time.Minute)},
	}
	r.Writers.Outcomes, r.Writers.Progress = r.outcomes, r.progress
	r.chunk.Set(c.Pools.Batch.Size(), c.Count, len(c.Topics))
	for id := range c.Count {
		of := c.Lanes
		of.ID, of.Progress, of.Valve, of.Blocks, of.Batch, of.Chunk = id, r.progress, r.valve, r.blocks, c.Pools.Batch, &r.chunk
		r.lanes = append(r.lanes, lane.New(of))
	}
	for _, topic := range c.Topics {
		if r.feeds(topic) == nil {
			return nil, fmt.Errorf("topic %q feeds no table", topic)
		}
	}
	return r, nil
}

// Deliver tells the reader what this member should work on, or waits until ctx ends.
func (r *Reader) Deliver(ctx context.Context, a connector.Assignment) {
	select {
	case r.assignments <- a:
	case <-ctx.Done():
	}
}

// Run works until ctx ends or the run is current, then drains. Lanes and writers are goroutines of group, which work until
// working ends.
func (r *Reader) Run(ctx, working context.Context, group *sync.WaitGroup) {
	for _, l := range r.lanes {
		group.Go(func() { l.Run(working) })
	}
	r.running = func(w *commit.Writer) { w.Begin(working, group) }
	for _, t := range r.tables {
		r.running(t.writer)
	}
	r.loop = r.Loops.Begin("reader")
	defer r.loop.End()
	r.loop.Work() // all the time: it turns at least every showEvery
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		r.loop.Turn()
		r.wishes()
		r.enqueue()
		r.pressed = r.pressing()
		for _, t := range r.tables {
			if reason := r.due(t); reason != "" {
				r.cut(t, reason)
			}
			r.check(t)
		}
		for _, t := range slices.Backward(r.tables) { // one may go
			r.retire(t)
		}
		r.turnToFetching()
		r.watchPauses()
		r.show()
		if r.current() {
			r.Logger.InfoContext(ctx, "current: the table has what the topics held at the start")
			break
		}
		timer.Reset(r.untilDue())
		select {
		case a := <-r.assignments:
			r.assign(a)
		case f := <-r.Log.Fetched():
			r.fetched(f)
		case o := <-r.outcomes:
			r.heard(o)
		case <-r.progress:
		case <-r.Pools.Fetch.Pressed():
		case <-timer.C:
		case <-ctx.Done():
			r.drain(ctx)
			return
		}
	}
	r.drain(ctx)
}

// assign takes over what this member should work on. Claims that stay are left alone; the end of a generation changes
// nothing: the table's log is the fence.
func (r *Reader) assign(a connector.Assignment) {
	r.joined = a.Joined
	if !a.Joined {
		r.Offsets.soon()
		return
	}
	if r.UntilCurrent && !r.assigned {
		for _, t := range r.tables {
			t.measure() // so that the ends are those of the start
		}
	}
	r.assigned = true
	for p, c := range r.claims {
		if !slices.Contains(a.Partitions, p) {
			r.lose(c)
		}
	}
	for _, topic := range a.Appeared {
		if t := r.feeds(topic); t != nil {
			conf := r.feeding[topic]
			conf.Start = conf.Start.ForNewTopic()
			t.writer.Requests.Follow(conf)
		}
	}
	fresh := map[*tableState][]*claim{}
	for _, p := range a.Partitions {
		if _, have := r.claims[p]; have {
			continue
		}
		t := r.feeds(p.Topic)
		if t == nil {
			continue
		}
		conf := r.feeding[p.Topic]
		c := &claim{
			Partition: p, since: time.Now(), table: t, refuse: conf.Refuse, health: r.health[p.Topic], letters: conf.Letters != nil,
			lane: r.leastLoaded(), position: -1, target: -1,
		}
		r.end(c) // gives it its first session
		r.claims[p], t.claims[p] = c, c
		fresh[t] = append(fresh[t], c)
	}
	r.order = slices.SortedFunc(maps.Values(r.claims), func(a, b *claim) int { return a.Compare(b.Partition) })
	for t, claims := range fresh {
		r.ask(t, claims...)
	}
	r.Logger.Info("assigned", "claims", len(r.claims))
}

// feeds returns the table of a topic, with a writer at work. nil if the topic feeds none: a leader that is configured in
// another way assigned it.
func (r *Reader) feeds(topic string) *tableState {
	if t, known := r.byTopic[topic]; known {
		return t
	}
	conf, target, ok := r.Tables.Open(topic)
	if !ok {
		r.byTopic[topic] = nil
		r.Logger.Error("a topic was assigned that is not configured here: all members of a group need the same topics", "topic", topic)
		return nil
	}
	i := slices.IndexFunc(r.tables, func(t *tableState) bool { return t.name == conf.Table })
	if i < 0 {
		t := &tableState{Table: lane.Table{Decoder: decoderOf(&target), Nulls: target.Nulls}, name: conf.Table, rare: conf.Rare, limits: conf.Commit, claims: map[connector.Partition]*claim{}}
		t.writer = commit.New(r.Writers, conf.Table, target, &t.Table)
		i, r.tables = len(r.tables), append(r.tables, t)
		r.chunk.Set(r.Pools.Batch.Size(), len(r.lanes), r.sharing())
		if r.running != nil {
			r.running(t.writer)
		}
	}
	t := r.tables[i]
	if target.Letters == nil {
		conf.Letters = nil // nobody would take them
	}
	t.writer.Requests.Follow(conf)
	r.Metrics.keyWaits.WithLabelValues(topic)
	r.byTopic[topic], r.feeding[topic] = t, conf
	r.health[topic] = lane.NewHealthFilter(topic, conf.HealthRecords, r.Logger, r.Lanes.Metrics)
	return t
}

// lose forgets a claim. Its rows in the batch that fills are masked at the cut, because its session is not in it.
func (r *Reader) lose(c *claim) {
	r.end(c)
	r.enter(c, lost)
	c.table.writer.Requests.Lose(c.Partition, c.session)
	delete(r.claims, c.Partition)
	delete(c.table.claims, c.Partition)
	r.absolve(c.table)
	r.order = slices.DeleteFunc(r.order, func(o *claim) bool { return o == c })
}

// tableOf returns the table of a writer, nil if it was retired.
func (r *Reader) tableOf(w *commit.Writer) *tableState {
	i := slices.IndexFunc(r.tables, func(t *tableState) bool { return t.writer == w })
	if i < 0 {
		return nil
	}
	return r.tables[i]
}

func (r *Reader) leastLoaded() *lane.Lane {
	load := make([]int, len(r.lanes))
	for _, c := range r.claims {
		load[c.lane.ID]++
	}
	return r.lanes[slices.Index(load, slices.Min(load))]
}

// fetched takes an answer. One of an earlier session, or of a place that was shed, is dropped.
func (r *Reader) fetched(f connector.Fetched) {
	c, ok := r.claims[f.Partition]
	if !ok || c.session != f.Session || !c.fetching || c.ahead != f.From {
		lane.NewAnswer(f).Leave()
		return
	}
	c.fetching = false
	c.bounds = f.Bounds
	c.queue = append(c.queue, lane.NewAnswer(f))
	if f.Err == nil {
		c.ahead, c.aheadEp = f.Next, f.Epoch
	}
	r.request(c)
}

// finish passes the end of an answer: control and aborted batches behind the last record, or the place where it cannot
// go on.
func (r *Reader) finish(c *claim, f *lane.Answer, err error) {
	done := f.Fetched
	c.queue = slices.Delete(c.queue, 0, 1)
	f.Leave()
	if !errors.Is(err, io.EOF) { // a damaged batch: the records before it were handed over
		done.Err = err
	}
	if done.Err != nil {
		r.cannotRead(c, done.Err)
		return
	}
	if done.Next > c.next {
		c.pass(done.Next, done.Epoch, done.Next-1)
		if c.table.opened.IsZero() {
			c.table.opened = time.Now()
		}
		if c.state == retrying {
			r.release(c)
		}
	}
	r.request(c)
}

// cannotRead holds a claim where its log cannot be read on.
func (r *Reader) cannotRead(c *claim, err error) {
	reason, detail, ok := hold.Of(err)
	if !ok {
		reason, detail = hold.CorruptBatch, err.Error()
	}
	r.stand(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.next})
}
