package admin

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"slices"
	"strings"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/plan"
	"sluice/connector/schema"
	"sluice/internal/fail"
	"sluice/internal/lookup"
	"sluice/internal/open"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// MovePlan is the planned change of positions in one table.
type MovePlan struct {
	Command string         `json:"command"`
	Table   string         `json:"table"`
	Accept  bool           `json:"accepts_table,omitempty"` // true if the move also accepts the table as that of the pipeline
	Moves   []*PlannedMove `json:"moves"`
	Notes   []string       `json:"notes,omitempty"`
	// Outcome, Version and Operation are empty until Move has set them. Version is the new version of the table,
	// Operation the seq of the intent in the operations log.
	Outcome   opslog.Outcome `json:"outcome,omitempty"`
	Version   *int64         `json:"version,omitempty"`
	Operation int64          `json:"operation,omitempty"`

	// Unrecorded is the error of writing the outcome to the operations log, nil if it has the outcome.
	Unrecorded error `json:"-"`

	of       *Table
	topicIDs bool // true if the table has the column of the topic id
	tableID  string
	others   map[string]int64 // the value for the field of the same name in connector.Moves
}

// PlannedMove is the position of a partition before and after the move, and the effect on its records.
type PlannedMove struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"` // the position before the move; -1 if there was none
	To        int64  `json:"to"`
	// Repeated and LeftOut count the offsets that are read again, or not at all. There are at most as many records.
	Repeated int64  `json:"repeated"`
	LeftOut  int64  `json:"left_out"`
	Note     string `json:"note,omitempty"`

	partition connector.Partition
}

// newPlan returns a plan without moves for the table of an inspection. command is how the operations log will name the
// command.
func newPlan(command string, l *inspection) *MovePlan {
	columns, ok := l.snapshot.Schema.(*schema.Schema)
	return &MovePlan{
		Command: command, Table: l.table.URL, Moves: []*PlannedMove{},
		of: l.table, topicIDs: ok && columns.HasTopicID(), tableID: l.snapshot.TableID,
	}
}

// sorted sorts the moves of a plan by topic and partition.
func sorted(p *MovePlan, err error) (*MovePlan, error) {
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(p.Moves, func(a, b *PlannedMove) int {
		return cmp.Or(strings.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
	})
	return p, nil
}

// move adds the move of a partition to an offset. format and args make the note for the operator.
func (p *MovePlan) move(l *inspection, of connector.Partition, to int64, format string, args ...any) {
	s := &PlannedMove{Topic: of.Topic, Partition: of.ID, From: l.position(of), To: to, Note: fmt.Sprintf(format, args...), partition: of}
	switch {
	case s.From < 0:
	case to < s.From:
		s.Repeated = s.From - to
	default:
		s.LeftOut = to - s.From
	}
	p.Moves = append(p.Moves, s)
}

func (p *MovePlan) note(format string, args ...any) {
	p.Notes = append(p.Notes, fmt.Sprintf(format, args...))
}

func refused(format string, args ...any) error {
	return fail.Refused(fmt.Errorf(format, args...))
}

// Move carries out a plan and stores the outcome in it. The store and Kafka may take as long as within. It returns an
// error of [fail.KindRefused] if a commit has changed the table since the plan.
func Move(ctx context.Context, a *Access, p *MovePlan, by By, within time.Duration) error {
	acting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	store, guard, end, err := openForCommit(acting, a)
	if err != nil {
		return err
	}
	defer end()
	table, err := p.open(store, guard, a.Version)
	if err != nil {
		return err
	}
	defer table.Close()
	log := opslog.Open(store, a.Config.Pipeline, opslog.Options{Guard: guard})
	if err := p.endReplays(acting, a, log, by); err != nil {
		return err
	}
	return p.do(ctx, acting, table, log, by, within)
}

// openForCommit opens the store, with its guard, for a commit, and tests that the store is safe for commits. The caller
// calls end after its last request.
func openForCommit(ctx context.Context, a *Access) (store objstore.Store, guard *reliability.Guard, end func(), err error) {
	if store, err = open.Store(ctx, a.Config); err != nil {
		return nil, nil, nil, fail.Dependency(err)
	}
	end = func() {
		if c, ok := store.(io.Closer); ok {
			_ = c.Close() // all puts have ended
		}
	}
	quiet := slog.New(slog.DiscardHandler) // failures are returned as errors, so they are not logged
	guard = reliability.NewGuard("store", a.Config.Guard(), quiet, nil, objstore.ErrNotFound, objstore.ErrExists)
	if err := lookup.Patience(ctx, guard)(func(ctx context.Context) error { return objstore.SelfTest(ctx, store) }); err != nil {
		end()
		if errors.Is(err, objstore.ErrUnsafe) {
			return nil, nil, nil, refused("storage.url: %w", err)
		}
		return nil, nil, nil, fail.Dependency(fmt.Errorf("nothing was changed: %w", err))
	}
	return store, guard, end, nil
}

// endReplays ends the open replays of the table, or returns an error if one of them still runs; see [withdrawReplays].
// This must happen before a move: a replay compares its records with the rows of the table, and if the position moved
// meanwhile, members might make rows of the same records.
func (p *MovePlan) endReplays(ctx context.Context, a *Access, log *opslog.Log, by By) error {
	s, err := log.State(ctx)
	if err != nil {
		return failedOperation(opslog.Entry{}, err)
	}
	if len(s.OpenReplays(p.of.table.Table))+len(s.TopicReplays(p.of.table.Table)) == 0 {
		return nil
	}
	return withdrawReplays(ctx, a, p.of.table.Table, by)
}

// noReplay returns an error if a replay of the table is open.
func (p *MovePlan) noReplay(s *opslog.State) error {
	for _, open := range append(s.OpenReplays(p.of.table.Table), s.TopicReplays(p.of.table.Table)...) {
		if len(open.Letters) > 0 {
			return stillReplaying(open)
		}
	}
	return nil
}

// do writes the intent to the operations log, commits the positions to the table, and writes the outcome to the
// operations log. So there is no move without an intent, and if the outcome cannot be written, the log of the table
// still shows it. acting is ctx with the time limit of the command.
func (p *MovePlan) do(ctx, acting context.Context, table connector.Table, log *opslog.Log, by By, within time.Duration) error {
	host, _ := os.Hostname() // without the name of the host, the entry has none
	record := func(ctx context.Context, body opslog.Body, pre func(*opslog.State) error) (opslog.Entry, error) {
		return log.Append(ctx, opslog.Operation{Operator: by.Operator, Host: host, Reason: by.Reason, Body: body}, pre)
	}
	intent, err := record(acting, opslog.OffsetsIntent{Command: p.Command, Table: p.of.table.Table, Moves: p.moves()}, p.noReplay)
	if fail.Of(err) == fail.KindRefused {
		return err
	}
	if err != nil {
		return fail.Dependency(fmt.Errorf("nothing was changed: %w", err))
	}
	p.Operation = intent.Seq

	s, err := commit.Move(acting, table, p.commit(by))
	done := opslog.OffsetsDone{Intent: intent.Seq, Command: p.Command, Table: p.of.table.Table, Moves: p.moves(), Version: -1, Outcome: opslog.Committed}
	kind := fail.KindDependency
	switch class := classify.Of(err); {
	case err == nil:
		done.Version = s.Version
	case errors.Is(err, connector.ErrUndecided):
		done.Outcome = opslog.Unknown
		err = fmt.Errorf("the outcome of the move is unknown, the store did not respond; offsets show will show it: %w", err)
	case class == classify.Fenced:
		done.Outcome, kind = opslog.Conflict, fail.KindRefused
		err = fmt.Errorf("nothing was changed, the table moved on since it was shown: look again: %w", err)
	default:
		done.Outcome = opslog.Conflict
		if held, ok := errors.AsType[*hold.Error](err); ok && held.Reason != hold.StoreDenied {
			kind = fail.KindRefused
		}
		err = fmt.Errorf("nothing was changed: %w", err)
	}
	if err != nil {
		done.Detail = err.Error()
	}
	p.Outcome, p.Version = done.Outcome, &done.Version
	// The time limit may be over, but the outcome should be recorded, so it gets some more time.
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), min(within, 20*time.Second))
	defer cancel()
	_, p.Unrecorded = record(ending, done, nil)
	if err != nil {
		return &fail.Error{Kind: kind, Err: err}
	}
	return nil
}

// open opens the table for the commit. The commit creates the table if it did not exist at the time of the plan.
func (p *MovePlan) open(store objstore.Store, guard *reliability.Guard, version string) (*delta.Table, error) {
	o := delta.Options{Pipeline: p.of.config.Pipeline, Engine: "sluice/" + version, Guard: guard, TempDir: p.of.config.TempDir}
	if p.tableID == "" {
		columns, err := p.of.table.Columns()
		if err != nil {
			return nil, fail.Usage(fmt.Errorf("schema: %w", err))
		}
		o.Schema, o.Comment, o.Properties = columns, p.of.table.TableComment, p.of.table.TableProperties
	}
	return delta.Open(objstore.Sub(store, p.of.table.Table), o)
}

// commit returns the moves of the plan in the form of package plan.
func (p *MovePlan) commit(by By) *plan.Moves {
	all := &plan.Moves{
		Moved:    connector.Moved{Command: p.Command, Operator: by.Operator, Reason: by.Reason},
		Pipeline: p.of.config.Pipeline, TableID: p.tableID, Accept: p.Accept, Others: p.others,
	}
	for _, s := range p.Moves {
		all.Moves = append(all.Moves, plan.Move{Partition: s.partition, From: s.From, Next: s.To})
	}
	return all
}

// moves returns the moves of the plan in the form of the operations log.
func (p *MovePlan) moves() (all []opslog.Move) {
	for _, s := range p.Moves {
		all = append(all, opslog.Move{Topic: s.Topic, TopicID: s.partition.TopicID.String(), Partition: s.Partition, From: s.From, To: s.To})
	}
	return all
}

// topicsView has the inspections of some topics of one table, and the client for further requests.
type topicsView struct {
	*kafkaQueries
	inspections []*inspection
	tableHold   *HoldInfo // the hold of the whole table, or nil
	end         func()    // closes the connections; the caller calls it after the last request
}

// inspectTopics inspects topics, which must all feed one table. The caller calls end of the view.
func (a *Access) inspectTopics(ctx context.Context, names ...string) (_ *topicsView, err error) {
	tables, end, err := OpenTables(ctx, a, "")
	if err != nil {
		return nil, err
	}
	view := &topicsView{end: end}
	defer func() {
		if err != nil {
			view.end()
		}
	}()
	i := slices.IndexFunc(tables, func(o *Table) bool { return slices.Contains(o.topics, names[0]) })
	for _, name := range names {
		if at := slices.IndexFunc(tables, func(o *Table) bool { return slices.Contains(o.topics, name) }); at < 0 {
			return nil, fail.Usage(fmt.Errorf("topic %s is not in topics of the configuration", name))
		} else if at != i {
			return nil, fail.Usage(fmt.Errorf("topics %s and %s feed different tables: move one after the other", names[0], name))
		}
	}
	o := tables[i]
	s, standing, err := o.snapshot(ctx)
	if err != nil {
		return nil, err
	}
	view.tableHold = standing
	if view.kafkaQueries, err = newKafkaQueries(ctx, o.config); err != nil {
		return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
	}
	view.end = func() { view.close(); end() }
	for _, name := range names {
		l, err := view.inspect(ctx, o, name, s)
		if err == nil {
			err = l.complete()
		}
		if held, ok := errors.AsType[*hold.Error](err); ok && held.Reason == hold.TopicMissing {
			return nil, refused("%w", err)
		}
		if err != nil {
			return nil, fail.Dependency(fmt.Errorf("kafka: %w", err))
		}
		view.inspections = append(view.inspections, l)
	}
	return view, nil
}
