package connector

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"maps"
	"slices"
	"time"

	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// A reader knows all claims of this member. It alone moves their offsets: what may be fetched, what is handed over to
// the lanes, and when a batch becomes a cut. It never waits for the network, a writer or a pool; only a marker waits for
// a lane, and a lane waits for nobody.
type reader struct {
	config   Config
	log      Log
	logger   *slog.Logger
	metrics  *metrics
	valve    *valve
	blocks   *blockPool
	pools    Pools
	chunk    chunkLimit
	lanes    []*lane
	tables   []*tableState
	byTopic  map[string]*tableState // nil for a topic that feeds none
	feeding  map[string]TopicConfig // by topic, of those that feed a table
	health   map[string]*healthFilter
	offsets  *offsetKeeper
	publish  func(*Status)
	standing func(table string, p Partition) *hold.Hold
	paused   func(Partition) *hold.Hold
	asked    func(Partition) int64

	floodAllowed func(topic string) bool

	route     func(topic string) (TopicConfig, Target, bool)
	retired   func(table string) (closed func())
	newWriter func(*tableState, Target) *writer
	begun     func(*writer) // starts a writer; nil before the run, which starts those that are there

	assignments chan Assignment
	outcomes    chan outcome
	progress    chan struct{}

	loops *pulse.Loops
	loop  *pulse.Loop

	// Owned by run:
	claims   map[Partition]*claim
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

// tableState is what the reader knows of a table. Only filled is shared: lanes count there what they hold.
type tableState struct {
	name    string
	writer  *writer
	decoder Decoder
	nulls   bool // the decoder takes records without a value
	rare    bool // hardly ever fed
	limits  Limits
	filled  filled
	// isolated are records that cannot become rows, as the writer found.
	isolated isolated
	claims   map[Partition]*claim // of this table

	schema  Schema    // that lanes build for
	opened  time.Time // when the batch that fills got its first record; zero if it has none
	cutting *openCut  // the cut on its way, nil if there is none
	stuck   bool      // it can take no more for now
	stopped pause     // of reading for it, while it is stuck
	// again is how far claims were in a cut that is to be made once more, soon; nil if there is none.
	again   map[Partition]int64
	looking bool
	vacant  time.Time // since when it has no claim
	checks  time.Time // when idle claims are looked at again

	// Of a run until current: the partitions of the topics that are behind their ends, of whichever member, nil if unknown; those
	// of them that are left, since they are paused and not ours; and when that was asked last.
	behind    []Position
	left      []hold.Hold
	measuring bool
	measured  time.Time
}

// cuts tells whether a claim is part of the cut on its way.
func (t *tableState) cuts(p Partition) bool {
	if t.cutting == nil {
		return false
	}
	_, in := t.cutting.claims[p]
	return in
}

const (
	// A cut without rows moves only positions; it waits until so many offsets or so much time have gathered.
	emptyOffsets = 1_000_000
	emptyEvery   = 10 * time.Minute
	showEvery    = 500 * time.Millisecond
)

// run works until ctx ends or the run is current, then drains.
func (r *reader) run(ctx context.Context) {
	r.loop = r.loops.Begin("reader")
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
			r.logger.InfoContext(ctx, "current: the table has what the topics held at the start")
			break
		}
		timer.Reset(r.untilDue())
		select {
		case a := <-r.assignments:
			r.assign(a)
		case f := <-r.log.Fetched():
			r.fetched(f)
		case o := <-r.outcomes:
			r.heard(o)
		case <-r.progress:
		case <-r.pools.Fetch.Pressed():
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
func (r *reader) assign(a Assignment) {
	r.joined = a.Joined
	if !a.Joined {
		r.offsets.soon()
		return
	}
	if r.config.UntilCurrent && !r.assigned {
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
			conf.Start = conf.Start.ofNew()
			t.begins(conf)
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
			lane: r.leastLoaded(), state: resuming, position: -1, target: -1,
		}
		r.end(c) // gives it its first session
		r.claims[p], t.claims[p] = c, c
		fresh[t] = append(fresh[t], c)
	}
	r.order = slices.SortedFunc(maps.Values(r.claims), func(a, b *claim) int { return a.Partition.Compare(b.Partition) })
	for t, claims := range fresh {
		r.resume(t, claims...)
	}
	r.logger.Info("assigned", "claims", len(r.claims))
}

// feeds returns the table of a topic, with a writer at work. nil if the topic feeds none: a leader that is configured in
// another way assigned it.
func (r *reader) feeds(topic string) *tableState {
	if t, known := r.byTopic[topic]; known {
		return t
	}
	conf, target, ok := r.route(topic)
	if !ok {
		r.byTopic[topic] = nil
		r.logger.Error("a topic was assigned that is not configured here: all members of a group need the same topics", "topic", topic)
		return nil
	}
	i := slices.IndexFunc(r.tables, func(t *tableState) bool { return t.name == conf.Table })
	if i < 0 {
		t := &tableState{name: conf.Table, decoder: target.decoder(), nulls: target.Nulls, rare: conf.Rare, limits: conf.Commit, claims: map[Partition]*claim{}}
		t.writer = r.newWriter(t, target)
		i, r.tables = len(r.tables), append(r.tables, t)
		r.chunk.set(r.pools.Batch.Size(), len(r.lanes), r.sharing())
		if r.begun != nil {
			r.begun(t.writer)
		}
	}
	t := r.tables[i]
	if target.Letters == nil {
		conf.Letters = nil // nobody would take them
	}
	t.begins(conf)
	r.metrics.follows(topic, r.config.Pipeline, conf.Letters != nil)
	r.byTopic[topic], r.feeding[topic] = t, conf
	r.health[topic] = newHealthFilter(topic, conf.HealthRecords, r.logger, r.metrics)
	return t
}

// begins tells the writer of a topic.
func (t *tableState) begins(conf TopicConfig) {
	t.writer.post(func(w *work) {
		if w.topics == nil {
			w.topics = map[string]TopicConfig{}
		}
		w.topics[conf.Topic] = conf
	})
}

// lose forgets a claim. Its rows in the batch that fills are masked at the cut, because its session is not in it.
func (r *reader) lose(c *claim) {
	r.end(c)
	c.table.writer.post(func(w *work) {
		if w.lost == nil {
			w.lost = map[Partition]uint64{}
		}
		w.lost[c.Partition] = c.session
	})
	delete(r.claims, c.Partition)
	delete(c.table.claims, c.Partition)
	r.absolve(c.table)
	r.order = slices.DeleteFunc(r.order, func(o *claim) bool { return o == c })
}

func (r *reader) leastLoaded() *lane {
	load := make([]int, len(r.lanes))
	for _, c := range r.claims {
		load[c.lane.id]++
	}
	return r.lanes[slices.Index(load, slices.Min(load))]
}

// fetched takes an answer. One of an earlier session, or of a place that was shed, is dropped.
func (r *reader) fetched(f Fetched) {
	c, ok := r.claims[f.Partition]
	if !ok || c.session != f.Session || !c.fetching || c.ahead != f.From {
		newAnswer(f).leave()
		return
	}
	c.fetching = false
	c.bounds = f.Bounds
	c.queue = append(c.queue, newAnswer(f))
	if f.Err == nil {
		c.ahead, c.aheadEp = f.Next, f.Epoch
	}
	r.request(c)
}

// finish passes the end of an answer: control and aborted batches behind the last record, or the place where it cannot
// go on.
func (r *reader) finish(c *claim, f *answer, err error) {
	done := f.Fetched
	c.queue = slices.Delete(c.queue, 0, 1)
	f.leave()
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
		if c.hold != nil && !c.unproven {
			r.release(c)
		}
	}
	r.request(c)
}

// cannotRead holds a claim where its log cannot be read on.
func (r *reader) cannotRead(c *claim, err error) {
	reason, detail, ok := hold.Of(err)
	if !ok {
		reason, detail = hold.CorruptBatch, err.Error()
	}
	r.stand(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.next})
}
