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

// Pipeline is the name of the members' pipeline.
const Pipeline = "p"

// Topic is the topic that all members read.
const Topic = "orders"

// Harness is a cluster and a table in memory, and the members that move records from one to the other.
type Harness struct {
	Broker *Broker
	Log    *TableLog
	Chance *Chance
	Logger *slog.Logger
	Start  connector.Start
	// Broken becomes [Table.Broken] of every member.
	Broken func(step string) error
	// UntilCurrent, Every and CommitRows configure the members that begin from now on. UntilCurrent makes them end once
	// they are current; Every and CommitRows are the age and the number of rows that make a batch due.
	UntilCurrent bool
	Every        time.Duration
	CommitRows   int64
	// Queue bounds the records that wait for the lanes.
	Queue connector.QueueConfig
	// Fetch and Batch are the sizes of a process's pools for fetch results and for rows, in bytes.
	Fetch, Batch int64
	// Letters is the dead-letter topic; if nil, bad records hold their partitions. Set before Begin.
	Letters *LetterLog
	// HoldAbove is a share of bad records. If the share in a topic is greater, the bad records hold their partitions
	// and none becomes a dead letter.
	HoldAbove float64
	// Allowed reports whether an operator allows a flood of bad records in a topic. May be nil.
	Allowed func(topic string) bool
	// Asked returns the number of the newest request of an operator to check a partition again, 0 if there is none. May
	// be nil.
	Asked func(connector.Partition) int64
	// Flushes returns the number of the newest request of an operator to flush a partition's table, 0 for none. May be nil.
	Flushes func(connector.Partition) int64
	// LettersBroken becomes [DeadLetters.Broken] of every member.
	LettersBroken func(step string) error
	// Twins knows the identities of the records, nil if they have none. Set before Begin.
	Twins *Twins
	// Pauses are the pauses of operators, visible to members at once.
	Pauses Pauses
	// Others are further topics that the members are configured for, each with the table that it feeds: Harness.Log or
	// another one. Members learn of these topics by assignment.
	Others map[string]*TableLog
	// Follow, if set, replaces Pauses: paused returns the hold of a paused partition, nil for others. The process
	// begins once ready is closed. ctx ends when the process is stopped.
	Follow func(ctx context.Context, process string) (ready <-chan struct{}, paused func(connector.Partition) *hold.Hold)
	// Retry is the policy for batches that fail in the connector's own code.
	Retry reliability.RecordRetry
	// Odd, if set, becomes [Table.Odd]; by default the encoder panics on rows of kind Unfit.
	Odd func(Source)
	// Together becomes [Table.Together].
	Together func([]Source)
	// Trace becomes [Member.Trace] and [Table.Trace].
	Trace func(format string, args ...any)
	// Open, if set, returns the table of a process, which otherwise is in memory. Stop calls end once the process has
	// ended. Crash calls crash before it stops the process.
	Open func(process string) (t connector.Target, crash, end func())
	// Positions and Next must be set if Open is set. They return all txns of the table by appId, and the number of its
	// next version.
	Positions func() map[string]int64
	Next      func() int

	// Wedged is true while a test lets loops of members get stuck. While it is false, a loop that has work and makes no
	// progress is a violation.
	Wedged atomic.Bool
	// Wrap changes the table, decoder and letters of a process before it begins. May be nil; set before Begin.
	Wrap func(*connector.Target)
	// PausedBy, if set, replaces Pauses. Set before Begin.
	PausedBy func(connector.Partition) *hold.Hold
	// Hangs is called within each step of a table or dead-letter topic. The step does not end before Hangs returns. May
	// be nil.
	Hangs func(ctx context.Context, step string)

	late    sync.WaitGroup
	mu      sync.Mutex
	stalls  []string
	members []*Process
	born    int // number of processes so far
}

// NewHarness returns a Harness for a seed. Its topic has the given number of partitions and no records.
func NewHarness(seed uint64, partitions int) *Harness {
	chance := NewChance(seed)
	h := &Harness{
		Broker: NewBroker(chance), Log: NewTableLog("table-1"), Chance: chance, Logger: slog.New(slog.DiscardHandler),
		Every: time.Second, CommitRows: 20, Fetch: 1 << 20, Batch: 1 << 30,
		Queue: connector.QueueConfig{PauseAt: 12, ResumeAt: 6, PerKey: 4},
	}
	h.Broker.Create(Topic, 1, partitions)
	h.Broker.Paused = h.Pauses.Since
	return h
}

// Process is a running member.
type Process struct {
	Name      string
	Member    *Member
	Table     *Table
	Connector *pipeline.Pipeline
	Metrics   *prometheus.Registry
	Memory    *idempotency.Memory // the process's own store of fingerprints; nil without Harness.Twins
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

// Retired returns "retired TABLE" and "closed TABLE" for each table that no topic feeds any more, in the order in which
// that happened.
func (p *Process) Retired() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.retired)
}

// Begin starts a process without claims.
func (h *Harness) Begin(ctx context.Context) *Process {
	h.born++
	ctx, cancel := context.WithCancel(ctx)
	p := &Process{
		Name: fmt.Sprintf("m%d", h.born), stop: cancel, done: make(chan struct{}), Metrics: prometheus.NewRegistry(), Loops: &pulse.Loops{},
	}
	p.Member = h.Broker.NewMember(context.WithoutCancel(ctx))
	p.Table = &Table{Log: h.Log, Member: p.Name, Chance: h.Chance, Late: &h.late, Broken: h.Broken, Trace: h.Trace, Odd: h.unfit, Together: h.Together, Hangs: h.Hangs}
	if h.Odd != nil {
		p.Table.Odd = h.Odd
	}
	p.Member.Trace, p.Member.Position = h.Trace, h.Position
	p.Member.Memory = bytepool.NewScrubbing(h.Fetch)
	target := connector.Target{Table: p.Table, Decoder: Decoder{}}
	p.crash, p.end = p.Table.Kill, func() {}
	if h.Open != nil {
		target, p.crash, p.end = h.Open(p.Name)
	}
	if h.Twins != nil {
		crash := p.crash
		duplicates, own, kill := h.Twins.duplicates(h.Chance)
		target.Duplicates, p.Memory = duplicates, own
		p.crash = func() { kill(); crash() }
		p.Table.Twins = h.Twins
		h.Broker.stampWith(h.Twins.Stamp)
		if h.Open == nil {
			target.Decoder = Decoder{Identity: true}
		}
	}
	var rules *connector.LetterRules
	if h.Letters != nil {
		letters := &DeadLetters{Log: h.Letters, Next: h.next, Broker: h.Broker, Member: p.Name, Attempts: h.Retry.Attempts(), Broken: h.LettersBroken, Late: &h.late, Trace: h.Trace, Hangs: h.Hangs}
		crash := p.crash
		target.Letters, p.crash = letters, func() { letters.Kill(); crash() }
		rules = &connector.LetterRules{HoldAbove: h.HoldAbove}
	}
	begin := make(chan struct{})
	close(begin)
	var ready <-chan struct{} = begin
	paused := h.Pauses.hold
	if h.PausedBy != nil {
		paused = h.PausedBy
	}
	if h.Wrap != nil {
		h.Wrap(&target)
	}
	if h.Follow != nil {
		ready, paused = h.Follow(ctx, p.Name)
	}
	logger := slog.New(strict{h.Logger.Handler()}).With("member", p.Name)
	others := map[string]connector.Target{}
	for topic, log := range h.Others {
		if others[topic] = target; log != h.Log {
			t := &Table{Log: log, Member: p.Name, Chance: h.Chance, Late: &h.late, Trace: h.Trace}
			others[topic] = connector.Target{Table: t, Decoder: Decoder{}}
		}
	}
	feed := connector.TopicConfig{
		Topic: Topic, Table: "t", Start: h.Start, Commit: connector.Limits{Every: h.Every, Rows: h.CommitRows, Bytes: 1 << 20},
		HealthRecords: connector.HealthRecords{Drop: true}, Retry: h.Retry,
		Letters: rules,
	}
	p.Connector = &pipeline.Pipeline{
		Config: pipeline.Config{
			Pipeline:             Pipeline,
			Topics:               []string{Topic},
			Queue:                h.Queue,
			OffsetCommitInterval: 500 * time.Millisecond,
			Drain:                5 * time.Second,
			Lanes:                2,
			UntilCurrent:         h.UntilCurrent,
			Member:               p.Name,
		},
		Group: p.Member, Log: p.Member, Decisions: wishes{paused, h.Allowed, h.Asked, h.Flushes}, Logger: logger, Metrics: p.Metrics, Loops: p.Loops,
		Pools:  connector.Pools{Fetch: p.Member.Memory, Batch: bytepool.New(h.Batch)},
		Tables: feeds{feed, target, others, p.note},
		Kafka: reliability.NewGuard("kafka", reliability.Config{
			Backoff:  reliability.Backoff{Initial: 50 * time.Millisecond, Max: time.Second, Jitter: 0.25},
			Failures: 5, OpenFor: 2 * time.Second, Successes: 1,
		}, slog.New(slog.DiscardHandler), nil),
	}
	h.members = append(h.members, p)
	go h.watch(p)
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

// unfit panics if the record of a row is of kind Unfit. A record that the log has lost counts as an ordinary row.
func (h *Harness) unfit(s Source) {
	if s.Topic != Topic {
		return
	}
	if kinds := h.Broker.Kinds(Topic, s.ID); s.Offset < int64(len(kinds)) && kinds[s.Offset] == Unfit {
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

// Crash ends a process at once and waits for its goroutines. Nothing that it does from now on has an effect, but its
// requests in flight may still take effect.
func (h *Harness) Crash(p *Process) {
	p.Member.Kill()
	p.crash()
	h.Stop(p)
}

// Stop asks a process to end and waits. Memory of its pools that is still in use is a violation.
func (h *Harness) Stop(p *Process) {
	p.stop()
	<-p.done
	p.Member.Wait()
	if fetch, batch := p.Member.Memory.Used(), p.Connector.Pools.Batch.Used(); fetch != 0 || batch != 0 {
		h.Broker.blame("%s has not given back %d bytes of answers, %d of rows", p.Name, fetch, batch)
	}
	p.end()
	h.members = slices.DeleteFunc(h.members, func(o *Process) bool { return o == p })
}

// Done waits for a process that ends by itself.
func (h *Harness) Done(p *Process) {
	<-p.done
	h.Stop(p)
}

// Close ends all processes, and waits for late PUTs and letters.
func (h *Harness) Close() {
	for len(h.members) > 0 {
		h.Stop(h.members[0])
	}
	h.late.Wait()
}

func (h *Harness) next() int {
	if h.Next != nil {
		return h.Next()
	}
	return len(h.Log.Versions())
}

// Position returns the table's position of a partition of Topic, -1 if it has none.
func (h *Harness) Position(id int32) int64 {
	all := h.Broker.Partitions(Topic)
	now := h.Positions
	if now == nil {
		now = func() map[string]int64 { return positions(h.Log.Versions()) }
	}
	if at, ok := now()[all[id].AppID(Pipeline)]; ok {
		return at
	}
	return -1
}

// AtEnd reports whether every position of Topic is at the end of its partition.
func (h *Harness) AtEnd() bool {
	for _, p := range h.Broker.Partitions(Topic) {
		if h.Position(p.ID) != int64(len(h.Broker.Kinds(Topic, p.ID))) {
			return false
		}
	}
	return true
}

// Rows returns the offsets of the rows that the in-memory table has of a partition, in the order of versions and rows.
func (h *Harness) Rows(id int32) []int64 {
	var all []int64
	for _, v := range h.Log.Versions() {
		for _, r := range v.Rows {
			if r.ID == id {
				all = append(all, r.Offset)
			}
		}
	}
	return all
}

// Want returns the offsets in [from, to) of records of kind Row.
func (h *Harness) Want(id int32, from, to int64) []int64 {
	var all []int64
	for o, k := range h.Broker.Kinds(Topic, id) {
		if at := int64(o); k == Row && at >= from && at < to {
			all = append(all, at)
		}
	}
	return all
}

// Started returns the position that the newest initial commit has set, by partition.
func (h *Harness) Started() map[int32]int64 {
	starts := map[int32]int64{}
	for _, v := range h.Log.Versions() {
		for _, r := range v.Commit.Ranges {
			if r.From == -1 {
				starts[r.Partition] = r.Next
			}
		}
	}
	return starts
}

// Operator returns the table as an operator's command opens it.
func (h *Harness) Operator() *Table {
	return &Table{Log: h.Log, Member: "operator", Chance: h.Chance, Late: &h.late}
}

// Forged returns a commit that sets the position of a partition. It replaces the commit of an operator's command, but
// checks nothing.
func (h *Harness) Forged(id int32, next int64) connector.Commit {
	p := h.Broker.Partitions(Topic)[id]
	return connector.Commit{Operation: "forged", Txns: []connector.Txn{{AppID: p.AppID(Pipeline), Version: next}}}
}

// Marked reports whether the log has a txn of the pipeline for the table with this id.
func (h *Harness) Marked(table string) bool {
	_, ok := positions(h.Log.Versions())[idempotency.TableAppID(Pipeline, table)]
	return ok
}

// Offsets returns the group's committed offsets of Topic by partition.
func (h *Harness) Offsets() map[int32]int64 {
	plain := map[int32]int64{}
	for id, o := range h.Broker.GroupOffsets(Topic) {
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

// strict is a log handler that panics at the log line about an illegal transition of a claim.
type strict struct{ slog.Handler }

// Enabled implements [slog.Handler]: errors always reach Handle.
func (s strict) Enabled(ctx context.Context, level slog.Level) bool {
	return level >= slog.LevelError || s.Handler.Enabled(ctx, level)
}

// Handle implements [slog.Handler].
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

// feeds says which table a topic feeds: Topic feeds target, and each topic of Harness.Others feeds its table in others.
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

// wishes are the decisions of operators. Each function may be nil: then nothing is paused, allowed or requested.
type wishes struct {
	paused  func(connector.Partition) *hold.Hold
	allowed func(topic string) bool
	asked   func(connector.Partition) int64
	flushes func(connector.Partition) int64
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

// Flushes implements [intake.Decisions].
func (w wishes) Flushes(p connector.Partition) int64 {
	if w.flushes == nil {
		return 0
	}
	return w.flushes(p)
}

// Rechecks implements [intake.Decisions].
func (w wishes) Rechecks(p connector.Partition) int64 {
	if w.asked == nil {
		return 0
	}
	return w.asked(p)
}
