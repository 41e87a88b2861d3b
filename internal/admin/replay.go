package admin

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/internal/config"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/internal/replay"
	"sluice/reliability"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
	"sluice/reliability/origin"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// DefaultReplayRate is the largest number of dead letters per second of a replay whose operator names no rate.
const DefaultReplayRate = 1000

// ParseReplayMode parses a mode of a replay: direct or topic. ok is false for any other text.
func ParseReplayMode(text string) (mode opslog.ReplayMode, ok bool) {
	switch text {
	case "direct":
		return opslog.Direct, true
	case "topic":
		return opslog.ByTopic, true
	}
	return "", false
}

// ReplayQuery selects dead letters to replay.
type ReplayQuery struct {
	LetterSelection
	// Value, unless nil, replaces the value of the one selected record. The dead letter keeps the old value.
	Value []byte
	// Mode says how rows are made: directly, by a commit of the replay, or through the topic: the replay produces the
	// records to their topic again, and members make the rows.
	Mode opslog.ReplayMode
	// Rate is the largest number of dead letters per second, 0 for no limit.
	Rate float64
}

// ReplayPlan is what a replay would do: a dry run with the present schema of the tables.
type ReplayPlan struct {
	Pipeline string          `json:"pipeline"`
	Tables   []string        `json:"tables"`
	Count    int             `json:"count"`
	Outcomes []ReplayOutcome `json:"outcomes"`
	// Keyed is how many of those that become rows have a key and are not the newest record of their partition. Their
	// rows come after those of newer records, maybe of the same key.
	Keyed int      `json:"behind_newer_records"`
	Notes []string `json:"notes"`

	query  ReplayQuery
	chosen *chosenLetters
}

// ReplayOutcome counts the dead letters of one topic with one reason, by what a replay would make of them.
type ReplayOutcome struct {
	Topic   string `json:"topic"`
	Reason  string `json:"reason"`
	Rows    int    `json:"rows"`               // become rows
	Fails   int    `json:"fail_again"`         // still cannot become rows
	LeftOut int    `json:"left_out,omitempty"` // their value is null, and their topic makes no rows of such records
	Detail  string `json:"detail,omitempty"`   // why the first of them fails again
}

// PlanReplay chooses dead letters and finds out what a replay would make of them. It changes nothing. It returns
// [ErrNothingToDo] with the plan if there is none to replay.
func PlanReplay(ctx context.Context, a *Access, q ReplayQuery) (*ReplayPlan, error) {
	if q.Value != nil && len(q.Records) != 1 {
		return nil, fail.Usage(errors.New("a value replaces that of one record: name one record"))
	}
	if _, err := originKeys(a, q.Mode); err != nil {
		return nil, err
	}
	r, end, err := lookup.NewReader(ctx, a.Config, q.Within)
	if err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	accepted := []LetterState{LetterUnresolved, LetterReplaying}
	if len(q.Records) > 0 || q.States != nil {
		accepted = append(accepted, LetterParked, LetterAcknowledged)
	}
	chosen, err := q.choose(ctx, a, r, LetterReplayed, accepted...)
	if err != nil {
		return nil, err
	}
	p := &ReplayPlan{
		Pipeline: a.Config.Pipeline, Tables: chosen.tables(a), Count: chosen.n, Outcomes: []ReplayOutcome{}, Notes: chosen.notes, query: q, chosen: chosen,
	}
	if p.Count == 0 {
		return p, ErrNothingToDo
	}
	for _, topic := range chosen.topics() {
		if err := replay.Moving(chosen.decisions, topic); err != nil {
			return nil, fail.Refused(err)
		}
	}
	return p, p.rehearse(ctx, a, r)
}

// originKeys returns the keys with which a replay through the topic signs the records that it produces. For a direct
// replay it returns none.
func originKeys(a *Access, mode opslog.ReplayMode) (origin.Keys, error) {
	if mode == opslog.Direct {
		return origin.Keys{}, nil
	}
	path := a.Config.Ops.ReplaySecretFile
	if path == "" {
		return origin.Keys{}, fail.Usage(errors.New("a replay through the topic needs keys: name their file in ops.replay_secret_file, for the members, too"))
	}
	k, err := config.ReadOriginKeys(path)
	if err != nil {
		return origin.Keys{}, fail.Usage(fmt.Errorf("ops.replay_secret_file: %w", err))
	}
	return *k, nil
}

// rehearse decodes the chosen records with the present schema of their tables, and stores the outcomes and Keyed in the
// plan.
func (p *ReplayPlan) rehearse(ctx context.Context, a *Access, r *lookup.Reader) error {
	type key struct{ topic, reason string }
	outcomes := map[key]*ReplayOutcome{}
	builders := map[string]*rehearsal{}
	tables, end, err := openAll(ctx, a.Config, p.chosen.topics())
	if err != nil {
		return err
	}
	defer end()
	err = p.chosen.contents(ctx, a, r, func(l *deadletter.Letter) error {
		b := builders[l.Source.Topic]
		if b == nil {
			if b, err = newRehearsal(ctx, a, tables, l.Source.Topic); err != nil {
				return err
			}
			builders[l.Source.Topic] = b
		}
		at := key{l.Source.Topic, string(l.Reason)}
		o := outcomes[at]
		if o == nil {
			o = &ReplayOutcome{Topic: at.topic, Reason: at.reason}
			outcomes[at] = o
		}
		record := p.record(l)
		switch rows, err := b.tryRow(&record); {
		case err != nil:
			if o.Fails++; o.Detail == "" {
				o.Detail = err.Error()
			}
		case !rows:
			o.LeftOut++
		default:
			o.Rows++
			if l.Key != nil && b.positions[l.Source.AppID(a.Config.Pipeline)].Version > l.Source.Offset+1 {
				p.Keyed++
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	for _, o := range outcomes {
		p.Outcomes = append(p.Outcomes, *o)
	}
	slices.SortFunc(p.Outcomes, func(x, y ReplayOutcome) int {
		return (y.Rows + y.Fails + y.LeftOut) - (x.Rows + x.Fails + x.LeftOut)
	})
	return nil
}

// record returns the record of a dead letter for its replay. It shares the letter's memory.
func (p *ReplayPlan) record(l *deadletter.Letter) replay.Record {
	r := replay.Record{At: l.Source.Partition, Record: connector.Record{Offset: l.Source.Offset, Timestamp: l.Timestamp, Key: l.Key, Value: l.Value}}
	if p.query.Value != nil {
		r.Record.Value = p.query.Value
		r.Edited = &opslog.EditedValue{Topic: l.Source.Topic, Partition: l.Source.ID, Offset: l.Source.Offset, Was: sum(l.Value), Now: sum(r.Record.Value)}
	}
	for _, h := range l.Headers {
		r.Record.Headers = append(r.Record.Headers, connector.Header(h))
	}
	return r
}

// sum returns the SHA-256 of a value in hex.
func sum(value []byte) string {
	h := sha256.Sum256(value)
	return hex.EncodeToString(h[:])
}

// rehearsal decodes records of one topic to find out whether they become rows. It keeps no rows.
type rehearsal struct {
	topic     replay.Topic
	builder   connector.Builder
	positions map[string]deltalog.Txn
}

func newRehearsal(ctx context.Context, a *Access, tables []*Table, topic string) (*rehearsal, error) {
	i := slices.IndexFunc(tables, func(o *Table) bool { return slices.Contains(o.topics, topic) })
	if i < 0 || tables[i].store == nil {
		return nil, fail.Refused(fmt.Errorf("topic %s has no table yet", topic))
	}
	state, err := deltalog.Load(ctx, tables[i].store)
	if err != nil {
		return nil, tables[i].Failed(err)
	}
	columns, err := schema.FromDelta([]byte(state.Metadata.SchemaString))
	if err == nil {
		err = columns.HasKafkaColumns()
	}
	if err != nil {
		return nil, fail.Refused(fmt.Errorf("table %s: %w", tables[i].URL, err))
	}
	r := &rehearsal{topic: replayTopic(a, topic), positions: state.Txns}
	if r.builder, err = r.topic.Decoder.Builder(columns); err != nil {
		return nil, fail.Refused(fmt.Errorf("topic %s: %w", topic, err))
	}
	return r, nil
}

// tryRow reports whether a record becomes a row; err says why it cannot. If row is false and err is nil, the topic
// makes no rows of such records.
func (h *rehearsal) tryRow(r *replay.Record) (row bool, err error) {
	row, err = h.topic.TryRow(h.builder, r)
	if h.builder.Rows() >= 1000 || errors.Is(err, connector.ErrChunkFull) {
		if rows := h.builder.Seal(); rows != nil {
			rows.Release()
		}
	}
	if errors.Is(err, connector.ErrChunkFull) {
		return h.topic.TryRow(h.builder, r)
	}
	return row, err
}

// replayTopic returns how records of a topic become rows.
func replayTopic(a *Access, topic string) replay.Topic {
	t, _, _ := a.Config.Route(topic) // it was routed when its dead letters were judged
	return replay.Topic{Decoder: t.Decoder(nil), Refuse: t.Refusals()}
}

// openReplay opens a table for replays; the caller calls end.
func openReplay(ctx context.Context, a *Access, path string, by By, run *replay.Run) (_ *replay.Table, end func(), err error) {
	store, guard, closeStore, err := openForCommit(ctx, a)
	if err != nil {
		return nil, nil, err
	}
	table, err := delta.Open(objstore.Sub(store, path), delta.Options{
		Pipeline: a.Config.Pipeline, Engine: "sluice/" + a.Version, Guard: guard, NoStatistics: a.Config.NoStatisticsIn(path),
		TempDir: a.Config.TempDir,
	})
	if err != nil {
		closeStore()
		return nil, nil, err
	}
	t := &replay.Table{
		Pipeline: a.Config.Pipeline, Path: path, Table: table, Log: opslog.Open(store, a.Config.Pipeline, opslog.Options{Guard: guard}),
		Topic: func(topic string) replay.Topic { return replayTopic(a, topic) }, Operator: by.Operator, Reason: by.Reason, Run: run,
	}
	return t, func() { table.Close(); closeStore() }, nil
}

// ReplayResult is what a replay did.
type ReplayResult struct {
	Rows    int64                `json:"rows"`
	Failed  map[string]int       `json:"failed"`   // by reason code: those that still cannot become rows
	Parked  int                  `json:"parked"`   // of those that failed: they are parked from now on
	LeftOut map[replay.Why]int   `json:"left_out"` // by cause
	Commits []ReplayCommit       `json:"commits"`
	First   map[string]FirstFail `json:"first_failures"` // by reason code
	// Operation is the seq of the first entry of the replay in the operations log, 0 if it has none.
	Operation int64 `json:"operation"`
}

// ReplayCommit is a commit of a replay.
type ReplayCommit struct {
	Table   string `json:"table"`
	Version int64  `json:"version"`
	Rows    int64  `json:"rows"`
}

// FirstFail is the first record that failed with a reason code.
type FirstFail struct {
	Record string `json:"record"`
	Detail string `json:"detail"`
}

// ReplayProgress says how many dead letters a replay has handled, of how many, and what became of them.
type ReplayProgress struct {
	Done, Of int
	Result   *ReplayResult // as of now; it may be read until progress returns
}

const (
	// finishCommit is how long a commit that has begun may still take after its replay was interrupted. If the outcome
	// of the commit were not known, its dead letters would be undecided until a later replay finds the outcome.
	finishCommit = 5 * time.Second

	// maxReplayRecords and maxReplayBytes bound one commit of a replay.
	maxReplayRecords = 5_000
	maxReplayBytes   = 16 << 20
)

// Replay carries out a plan. It calls progress, unless nil, after each commit, also after one that failed. On an error,
// the result has what was done before it: a repeated replay leaves that out, so it continues where this one ended. If
// ctx ends, it finishes the commit under way, and its error is that of ctx. By may have a key: the first entry of the
// replay in the operations log has it.
func Replay(ctx context.Context, a *Access, p *ReplayPlan, by By, progress func(ReplayProgress)) (*ReplayResult, error) {
	shared := &replay.Run{Once: by.Once}
	run := &replayRun{
		shared: shared, plan: p, progress: progress, began: time.Now(), chunks: map[string]*replayChunk{},
		result: &ReplayResult{Failed: map[string]int{}, LeftOut: make(map[replay.Why]int), Commits: []ReplayCommit{}, First: map[string]FirstFail{}},
	}
	r, end, err := lookup.NewReader(ctx, a.Config, p.query.Within)
	if err != nil {
		return run.result, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	defer end()
	keys, err := originKeys(a, p.query.Mode)
	if err != nil {
		return run.result, err
	}
	if p.query.Mode == opslog.ByTopic {
		quiet := slog.New(slog.DiscardHandler) // what goes wrong comes back as an error
		guard := reliability.NewGuard("kafka", a.Config.Guard(), quiet, nil)
		run.producer = patientProducer{kafka.NewProducer(r.Client, guard), p.query.Within}
	}
	for _, path := range p.Tables {
		t, end, err := openReplay(ctx, a, path, by, shared)
		if err != nil {
			return run.result, err
		}
		defer end()
		t.Keys = keys
		// A replay through the topic that was killed keeps its dead letters until it is withdrawn.
		if _, err := t.Withdraw(ctx, withdrawAfter); err != nil {
			return run.result, replayFailed(err)
		}
		run.chunks[path] = &replayChunk{table: t}
	}
	err = p.chosen.contents(ctx, a, r, func(l *deadletter.Letter) error {
		t, _, err := a.Config.Route(l.Source.Topic)
		if err != nil {
			return fail.Usage(err)
		}
		chunk := run.chunks[t.Table]
		chunk.add(p.record(keep(l)))
		if len(chunk.records) < run.size() && chunk.bytes < maxReplayBytes {
			return nil
		}
		return run.commit(ctx, chunk)
	})
	for _, path := range p.Tables {
		if err == nil {
			err = run.commit(ctx, run.chunks[path])
		}
	}
	return run.result, err
}

// replayRun is a replay that is carried out.
type replayRun struct {
	shared   *replay.Run
	plan     *ReplayPlan
	progress func(ReplayProgress)
	began    time.Time
	done     int
	chunks   map[string]*replayChunk // by path of the table
	result   *ReplayResult
	producer replay.Producer // nil unless the replay goes through the topic
}

// patientProducer produces records, and gives up a request to produce after a time.
type patientProducer struct {
	*kafka.Producer
	within time.Duration
}

// Produce implements [replay.Producer].
func (p patientProducer) Produce(ctx context.Context, to idempotency.Partition, records []connector.Record) error {
	asking, cancel := context.WithTimeout(ctx, max(p.within, time.Minute))
	defer cancel()
	return p.Producer.Produce(asking, to, records)
}

// replayChunk is the records for the next commit of a table. It owns their bytes.
type replayChunk struct {
	table   *replay.Table
	records []replay.Record
	bytes   int
}

func (c *replayChunk) add(r replay.Record) {
	c.records = append(c.records, r)
	c.bytes += len(r.Record.Key) + len(r.Record.Value)
}

// size returns how many records one commit may have: maxReplayRecords, or with a rate at most as many as the rate allows in
// ten seconds.
func (run *replayRun) size() int {
	if run.plan.query.Rate <= 0 {
		return maxReplayRecords
	}
	return max(1, min(maxReplayRecords, int(10*run.plan.query.Rate)))
}

// commit makes rows of a chunk in one commit, adds the result to that of the run, and then waits as long as the rate
// requires.
func (run *replayRun) commit(ctx context.Context, c *replayChunk) error {
	if len(c.records) == 0 {
		return nil
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	working, end := outlast(ctx, finishCommit)
	defer end()
	result, err := run.replay(working, c)
	if err == nil {
		run.done += len(c.records)
	}
	c.records, c.bytes = nil, 0
	run.add(c.table.Path, &result)
	if run.progress != nil {
		run.progress(ReplayProgress{Done: run.done, Of: run.plan.Count, Result: run.result})
	}
	if err != nil {
		return replayFailed(err)
	}
	if rate := run.plan.query.Rate; rate > 0 && run.done < run.plan.Count {
		due := run.began.Add(time.Duration(float64(run.done) / rate * float64(time.Second)))
		return reliability.Wait(ctx, time.Until(due))
	}
	return nil
}

// replay makes rows of the records of a chunk in the mode of the run.
func (run *replayRun) replay(ctx context.Context, c *replayChunk) (replay.Result, error) {
	if run.producer != nil {
		return c.table.Reproduce(ctx, c.records, run.producer)
	}
	return c.table.Add(ctx, c.records)
}

// outlast returns a context that ends the time d after ctx ended. The caller calls end.
func outlast(ctx context.Context, d time.Duration) (_ context.Context, end func()) {
	working, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, func() {
		_ = reliability.Wait(working, d) // ends early if the work is done
		cancel(context.Cause(ctx))
	})
	return working, func() {
		stop()
		cancel(nil)
	}
}

func (run *replayRun) add(path string, result *replay.Result) {
	run.result.Operation = run.shared.First
	run.result.Parked += result.Parked
	run.result.Rows += result.Rows
	if result.Rows > 0 && result.Version >= 0 {
		run.result.Commits = append(run.result.Commits, ReplayCommit{path, result.Version, result.Rows})
	}
	for _, f := range result.Failed {
		if run.result.Failed[f.Code]++; run.result.Failed[f.Code] == 1 {
			run.result.First[f.Code] = FirstFail{f.At.String(), f.Detail}
		}
	}
	for _, left := range result.Left {
		run.result.LeftOut[left.Why]++
	}
}

// replayFailed returns an error of a replay with its kind.
func replayFailed(err error) error {
	held, isHold := errors.AsType[*hold.Error](err)
	switch {
	case errors.As(err, new(*opslog.RepeatedError)):
		return fail.Refused(err)
	case errors.Is(err, connector.ErrUndecided):
		return fail.Dependency(fmt.Errorf("%w; run the same replay again: it finds out and continues", err))
	case isHold && held.Reason != hold.StoreDenied && held.Reason != hold.StoreDown:
		return fail.Refused(err)
	case errors.As(err, new(*replay.RefusedError)):
		return fail.Refused(err)
	}
	return fail.Dependency(err)
}
