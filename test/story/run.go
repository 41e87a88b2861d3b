package story

import (
	"context"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/intake"
	"sluice/connector/pipeline"
	"sluice/health/liveness"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// Pipeline is the pipeline of all members.
const Pipeline = "p"

// Topic is the topic of all members.
const Topic = "orders"

// World is a cluster, a table, and the members that move records from one to the other.
type World struct {
	Broker *Broker
	Log    *TableLog
	Chance *Chance
	Logger *slog.Logger
	Start  connector.Start
	// Broken is given to the tables of members.
	Broken func(step string) error
	// UntilCurrent, Every and CommitRows configure the members started from now on.
	UntilCurrent bool
	Every        time.Duration
	CommitRows   int64
	// Queue bounds the records that wait for the lanes.
	Queue connector.QueueConfig
	// Fetch and Batch are the memory of a process for fetch results and for rows, in bytes.
	Fetch, Batch int64
	// Letters takes the dead letters; nil if bad records hold their partitions. HoldAbove is the share of bad
	// records that holds them first, Allowed are the floods that an operator allows. LettersBroken is given to the
	// producers of letters. Set before Begin.
	Letters   *LetterLog
	HoldAbove float64
	Allowed   func(topic string) bool
	// Asked returns the number of the newest request to check a partition, nil if there are none.
	Asked         func(connector.Partition) int64
	LettersBroken func(step string) error
	// Twins are the identities of rows, nil if they have none. Set before Begin.
	Twins *Twins
	// Pauses are the pauses of operators, visible to members at once.
	Pauses Pauses
	// Others are further topics that the members are configured for, with the log of the table that each feeds:
	// World.Log, or another one. Members learn of them by assignment.
	Others map[string]*TableLog
	// Follow replaces Pauses for a process, if set: the process begins once ready is closed, and ctx ends with it.
	Follow func(ctx context.Context, process string) (ready <-chan struct{}, paused func(connector.Partition) *hold.Hold)
	// Retry is the policy for batches that fail for an unknown reason.
	Retry reliability.RecordRetry
	// Odd replaces what the encoder does with rows: it panics on those of kind Unfit.
	Odd func(Source)
	// Together is called with the rows of each encoding, and may panic.
	Together func([]Source)
	// Trace is given to the members and their tables.
	Trace func(format string, args ...any)
	// Open replaces the in-memory table of a process, if set. end is called when the process has ended, crash
	// before a crash.
	Open func(process string) (t connector.Target, crash, end func())
	// Positions and Next replace reading the in-memory log, if set: all txns of the table, the number of its next
	// version.
	Positions func() map[string]int64
	Next      func() int

	// Wedged allows members to stop making progress; otherwise that is a violation.
	Wedged atomic.Bool
	// Wrap changes what a process is given; PausedBy replaces Pauses. Both may be nil, and are set before Begin.
	Wrap     func(*connector.Target)
	PausedBy func(connector.Partition) *hold.Hold
	// Hangs is called within each step of a store or dead-letter topic, which lasts as long as the call. May be
	// nil.
	Hangs func(ctx context.Context, step string)

	late    sync.WaitGroup
	mu      sync.Mutex
	stalls  []string
	members []*Process
	born    int
}

// NewWorld returns a World for a seed, with an empty topic of n partitions.
func NewWorld(seed uint64, partitions int) *World {
	chance := NewChance(seed)
	w := &World{
		Broker: NewBroker(chance), Log: NewTableLog("table-1"), Chance: chance, Logger: slog.New(slog.DiscardHandler),
		Every: time.Second, CommitRows: 20, Fetch: 1 << 20, Batch: 1 << 30,
		Queue: connector.QueueConfig{PauseAt: 12, ResumeAt: 6, PerKey: 4},
	}
	w.Broker.Create(Topic, 1, partitions)
	w.Broker.Paused = w.Pauses.Since
	return w
}

// Process is a running member.
type Process struct {
	Name      string
	Member    *Member
	Table     *Table
	Connector *pipeline.Pipeline
	Metrics   *prometheus.Registry
	Memory    *idempotency.Memory // of fingerprints; nil without Twins
	Loops     *pulse.Loops
	watch     liveness.Watch
	stalls    atomic.Pointer[[]liveness.Stall]
	crash     func()
	end       func()
	stop      context.CancelFunc
	done      chan struct{}

	mu      sync.Mutex
	retired []string
}

func (p *Process) note(what string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.retired = append(p.retired, what)
}

// Retired returns what happened to tables that no topic feeds.
func (p *Process) Retired() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.retired)
}

// Begin starts a process without claims.
func (w *World) Begin(ctx context.Context) *Process {
	w.born++
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{
		Name: fmt.Sprintf("m%d", w.born), stop: cancel, done: make(chan struct{}), Metrics: prometheus.NewRegistry(), Loops: &pulse.Loops{},
	}
	p.Member = w.Broker.NewMember(context.WithoutCancel(ctx))
	p.Table = &Table{Log: w.Log, Member: p.Name, Chance: w.Chance, Late: &w.late, Broken: w.Broken, Trace: w.Trace, Odd: w.unfit, Together: w.Together, Hangs: w.Hangs}
	if w.Odd != nil {
		p.Table.Odd = w.Odd
	}
	p.Member.Trace, p.Member.Position = w.Trace, w.Position
	p.Member.Memory = bytepool.NewScrubbing(w.Fetch)
	target := connector.Target{Table: p.Table, Decoder: Decoder{}}
	p.crash, p.end = p.Table.Kill, func() {}
	if w.Open != nil {
		target, p.crash, p.end = w.Open(p.Name)
	}
	if w.Twins != nil {
		crash := p.crash
		duplicates, own, kill := w.Twins.duplicates(w.Chance)
		target.Duplicates, p.Memory = duplicates, own
		p.crash = func() { kill(); crash() }
		p.Table.Twins = w.Twins
		w.Broker.stampWith(w.Twins.Stamp)
		if w.Open == nil {
			target.Decoder = Decoder{Identity: true}
		}
	}
	var rules *connector.LetterRules
	if w.Letters != nil {
		letters := &DeadLetters{Log: w.Letters, Next: w.next, Broker: w.Broker, Member: p.Name, Attempts: w.Retry.Attempts(), Broken: w.LettersBroken, Late: &w.late, Trace: w.Trace, Hangs: w.Hangs}
		crash := p.crash
		target.Letters, p.crash = letters, func() { letters.Kill(); crash() }
		rules = &connector.LetterRules{HoldAbove: w.HoldAbove}
	}
	begin := make(chan struct{})
	close(begin)
	var ready <-chan struct{} = begin
	paused := w.Pauses.hold
	if w.PausedBy != nil {
		paused = w.PausedBy
	}
	if w.Wrap != nil {
		w.Wrap(&target)
	}
	if w.Follow != nil {
		ready, paused = w.Follow(ctx, p.Name)
	}
	logger := slog.New(strict{w.Logger.Handler()}).With("member", p.Name)
	others := map[string]connector.Target{}
	for topic, log := range w.Others {
		if others[topic] = target; log != w.Log {
			t := &Table{Log: log, Member: p.Name, Chance: w.Chance, Late: &w.late, Trace: w.Trace}
			others[topic] = connector.Target{Table: t, Decoder: Decoder{}}
		}
	}
	feed := connector.TopicConfig{
		Topic: Topic, Table: "t", Start: w.Start, Commit: connector.Limits{Every: w.Every, Rows: w.CommitRows, Bytes: 1 << 20},
		HealthRecords: connector.HealthRecords{Drop: true}, Retry: w.Retry,
		Letters: rules,
	}
	p.Connector = &pipeline.Pipeline{
		Config: pipeline.Config{
			Pipeline:             Pipeline,
			Topics:               []string{Topic},
			Queue:                w.Queue,
			OffsetCommitInterval: 500 * time.Millisecond,
			Drain:                5 * time.Second,
			Lanes:                2,
			UntilCurrent:         w.UntilCurrent,
			Member:               p.Name,
		},
		Group: p.Member, Log: p.Member, Decisions: wishes{paused, w.Allowed, w.Asked}, Logger: logger, Metrics: p.Metrics, Loops: p.Loops,
		Pools:  connector.Pools{Fetch: p.Member.Memory, Batch: bytepool.New(w.Batch)},
		Tables: feeds{feed, target, others, p.note},
		Kafka: reliability.NewGuard("kafka", reliability.Config{
			Backoff:  reliability.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.25},
			Failures: 5, OpenFor: 2 * time.Second, Successes: 1,
		}, slog.New(slog.DiscardHandler), nil),
	}
	w.members = append(w.members, p)
	go w.watch(p)
	go func() {
		defer close(p.done)
		select {
		case <-ready:
		case <-ctx.Done():
			return
		}
		if err := p.Connector.Run(ctx); err != nil {
			panic(err)
		}
	}()
	return p
}

// unfit is what the encoder does with a row. A record that the log has lost since it was read is an ordinary one.
func (w *World) unfit(s Source) {
	if s.Topic != Topic {
		return
	}
	if kinds := w.Broker.Kinds(Topic, s.ID); s.Offset < int64(len(kinds)) && kinds[s.Offset] == Unfit {
		panic(fmt.Sprintf("the encoder breaks on %v", s))
	}
}

// Counted returns the value of a counter of the process, summed over its labels.
func (p *Process) Counted(name string) (sum float64) {
	families, err := p.Metrics.Gather()
	if err != nil {
		panic(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Crash ends a process at once: nothing that it still does has an effect, but its requests in flight may take
// effect.
func (w *World) Crash(p *Process) {
	p.Member.Kill()
	p.crash()
	w.Stop(p)
}

// Stop asks a process to end and waits.
func (w *World) Stop(p *Process) {
	p.stop()
	<-p.done
	p.Member.Wait()
	if fetch, batch := p.Member.Memory.Used(), p.Connector.Pools.Batch.Used(); fetch != 0 || batch != 0 {
		w.Broker.blame("%s has not given back %d bytes of answers, %d of rows", p.Name, fetch, batch)
	}
	p.end()
	w.members = slices.DeleteFunc(w.members, func(o *Process) bool { return o == p })
}

// Done waits for a process that ends by itself.
func (w *World) Done(p *Process) {
	<-p.done
	w.Stop(p)
}

// Close ends all processes and goroutines of w.
func (w *World) Close() {
	for len(w.members) > 0 {
		w.Stop(w.members[0])
	}
	w.late.Wait()
}

func (w *World) next() int {
	if w.Next != nil {
		return w.Next()
	}
	return len(w.Log.Versions())
}

// Position returns the table's position of a partition.
func (w *World) Position(id int32) int64 {
	all := w.Broker.Partitions(Topic)
	now := w.Positions
	if now == nil {
		now = func() map[string]int64 { return positions(w.Log.Versions()) }
	}
	if at, ok := now()[all[id].AppID(Pipeline)]; ok {
		return at
	}
	return -1
}

// AtEnd reports whether the table has every record.
func (w *World) AtEnd() bool {
	for _, p := range w.Broker.Partitions(Topic) {
		if w.Position(p.ID) != int64(len(w.Broker.Kinds(Topic, p.ID))) {
			return false
		}
	}
	return true
}

// Rows returns the offsets of a partition in the table, in the order of versions and rows.
func (w *World) Rows(id int32) []int64 {
	var all []int64
	for _, v := range w.Log.Versions() {
		for _, r := range v.Rows {
			if r.ID == id {
				all = append(all, r.Offset)
			}
		}
	}
	return all
}

// Want returns the offsets in [from, to) that must be rows: those neither dropped nor invisible.
func (w *World) Want(id int32, from, to int64) []int64 {
	var all []int64
	for o, k := range w.Broker.Kinds(Topic, id) {
		if at := int64(o); k == Row && at >= from && at < to {
			all = append(all, at)
		}
	}
	return all
}

// Started returns the initial position of each partition.
func (w *World) Started() map[int32]int64 {
	starts := map[int32]int64{}
	for _, v := range w.Log.Versions() {
		for _, r := range v.Commit.Ranges {
			if r.From == -1 {
				starts[r.Partition] = r.Next
			}
		}
	}
	return starts
}

// Operator returns the table as a command of an operator opens it.
func (w *World) Operator() *Table {
	return &Table{Log: w.Log, Member: "operator", Chance: w.Chance, Late: &w.late}
}

// Forged returns the commit of an operator who sets a position.
func (w *World) Forged(id int32, next int64) connector.Commit {
	p := w.Broker.Partitions(Topic)[id]
	return connector.Commit{Operation: "forged", Txns: []connector.Txn{{AppID: p.AppID(Pipeline), Version: next}}}
}

// Marked reports whether the log has the pipeline's mark on the table.
func (w *World) Marked(table string) bool {
	_, ok := positions(w.Log.Versions())[idempotency.TableAppID(Pipeline, table)]
	return ok
}

// Offsets returns the group's offsets as plain numbers.
func (w *World) Offsets() map[int32]int64 {
	plain := map[int32]int64{}
	for id, o := range w.Broker.GroupOffsets(Topic) {
		plain[id] = o.Next
	}
	return plain
}

// Holds returns the reasons of a process's holds by partition.
func (p *Process) Holds() map[int32]hold.Reason {
	holds := map[int32]hold.Reason{}
	for _, c := range p.Connector.Status().Claims {
		if c.Hold != nil {
			holds[c.Partition.ID] = c.Hold.Reason
		}
	}
	return maps.Clone(holds)
}

// strict is a log handler that fails the test at an illegal transition of a claim.
type strict struct{ slog.Handler }

// Enabled implements [slog.Handler]: it passes errors at any level.
func (s strict) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || s.Handler.Enabled(ctx, level)
}

// Handle ends the test at an illegal transition.
func (s strict) Handle(ctx context.Context, r slog.Record) error {
	if r.Message == intake.IllegalTransition {
		text := r.Message
		r.Attrs(func(a slog.Attr) bool { text += " " + a.String(); return true })
		panic(text)
	}
	if !s.Handler.Enabled(ctx, r.Level) {
		return nil
	}
	return s.Handler.Handle(ctx, r)
}

// WithAttrs implements [slog.Handler].
func (s strict) WithAttrs(attrs []slog.Attr) slog.Handler { return strict{s.Handler.WithAttrs(attrs)} }

// WithGroup implements [slog.Handler].
func (s strict) WithGroup(name string) slog.Handler { return strict{s.Handler.WithGroup(name)} }

// feeds are the tables of a member. Topics other than Topic feed those of World.Others.
type feeds struct {
	feed   connector.TopicConfig
	target connector.Target
	others map[string]connector.Target
	note   func(string)
}

// Open implements [intake.Tables].
func (f feeds) Open(topic string) (connector.TopicConfig, connector.Target, bool) {
	if topic == Topic {
		return f.feed, f.target, true
	}
	other, ok := f.others[topic]
	of := f.feed
	if of.Topic = topic; other != f.target {
		of.Table = topic
	}
	return of, other, ok
}

// Retire implements [intake.Tables].
func (f feeds) Retire(table string) (closed func()) {
	f.note("retired " + table)
	return func() { f.note("closed " + table) }
}

// Blocked implements [intake.Tables].
func (feeds) Blocked(string, connector.Partition) *hold.Hold { return nil }

// wishes are the decisions of the operators of a test; a nil function decides nothing.
type wishes struct {
	paused  func(connector.Partition) *hold.Hold
	allowed func(topic string) bool
	asked   func(connector.Partition) int64
}

// Paused implements [intake.Decisions].
func (w wishes) Paused(p connector.Partition) *hold.Hold {
	if w.paused == nil {
		return nil
	}
	return w.paused(p)
}

// FloodAllowed implements [commit.Decisions].
func (w wishes) FloodAllowed(topic string) bool { return w.allowed != nil && w.allowed(topic) }

// Rechecks implements [intake.Decisions].
func (w wishes) Rechecks(p connector.Partition) int64 {
	if w.asked == nil {
		return 0
	}
	return w.asked(p)
}
