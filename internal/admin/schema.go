package admin

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/internal/fail"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// SchemaPlan compares the configured schema with that of the table. [ApplySchema] makes the changes.
type SchemaPlan struct {
	Table   string `json:"table"` // the URL
	Version int64  `json:"version"`
	Schema  string `json:"schema"` // the table's schema as DDL
	// Next are the changes that the next commit with rows makes by itself: columns that it adds, such as "channel
	// string", and columns that it makes nullable, such as "item null".
	Next []string `json:"next_commit"`
	// Apply are the changes that only [ApplySchema] makes, because a new version of this program may be their only cause.
	Apply []string `json:"only_apply,omitempty"`
	// Undeclared are columns of the table that the configured schema does not have. They are written all the same.
	Undeclared []string `json:"undeclared,omitempty"`
	// Looser are columns that are not null in the configured schema and nullable in the table.
	Looser []string `json:"nullable_in_table,omitempty"`
	// Renamed are the columns, of the table and of the changes, that another field of the record fills than their name says.
	Renamed []schema.Renamed `json:"renamed,omitempty"`
	// Conflict is why the two do not fit: the topics of the table are held. "" if they fit.
	Conflict string `json:"conflict,omitempty"`

	// Committed is the version that has the changes, Operation the seq of the intent in the operations log; nil and 0
	// before [ApplySchema].
	Committed *int64 `json:"committed,omitempty"`
	Operation int64  `json:"operation,omitempty"`
	// Unrecorded is the error of writing the outcome to the operations log, nil if it has the outcome.
	Unrecorded error `json:"-"`

	of      *Table
	tableID string
	from    *schema.Schema // the table's schema
	to      *schema.Schema // the configured schema
}

// PlanSchema compares the configured schema of a table with that of the table. The error is [deltalog.ErrNoTable] if
// there is no table; its first member creates it with the configured schema.
func PlanSchema(ctx context.Context, o *Table) (*SchemaPlan, error) {
	if o.store == nil {
		return nil, deltalog.ErrNoTable
	}
	info, err := delta.Inspect(ctx, o.store)
	switch {
	case err != nil:
		return nil, err
	case info.Refusal != nil:
		return nil, fail.Found(fmt.Errorf("table %s: %w", o.URL, info.Refusal))
	}
	configured, err := o.table.Columns()
	if err != nil {
		return nil, fail.Usage(fmt.Errorf("schema: %w", err))
	}
	p := &SchemaPlan{
		Table: o.URL, Version: info.Version, Schema: info.Schema.DDL(), Next: []string{},
		of: o, tableID: info.ID, from: info.Schema, to: configured.WithKafkaColumns().WithPartitionsOf(info.Schema),
	}
	p.Looser = looser(p.from.Fields(), p.to.Fields(), "")
	for _, f := range p.from.Fields() {
		if !schema.IsKafkaColumn(f.Name) && !p.to.Has([]string{f.Name}) && !o.table.Makes(f) {
			p.Undeclared = append(p.Undeclared, f.Name+" "+f.Type.String())
		}
	}
	next, err := p.from.ForRows(p.to)
	if held, ok := errors.AsType[*hold.Error](err); ok {
		p.Conflict, p.Renamed = held.Why(), p.from.Renamed()
		return p, nil
	}
	if err != nil {
		return nil, err
	}
	all, err := next.Extended(p.to)
	if err != nil {
		return nil, err
	}
	p.Renamed = all.Renamed()
	p.Next, p.Apply = p.from.ChangesTo(next).List(), next.ChangesTo(all).List()
	return p, nil
}

// changes returns all changes that [ApplySchema] makes.
func (p *SchemaPlan) changes() []string { return append(append([]string{}, p.Next...), p.Apply...) }

// ApplySchema adds the columns of a plan to the table, in a version without rows, and stores the outcome in the plan.
// The store may take as long as within. The error is [ErrNothingToDo] if the table has the columns already, and of
// [fail.KindRefused] if the schemas do not fit, or the table has changed since the plan.
//
// The intent is written to the operations log first, the outcome afterwards. So there is no change without an intent,
// and if the outcome cannot be written, the log of the table still shows it.
func ApplySchema(ctx context.Context, a *Access, p *SchemaPlan, by By, within time.Duration) error {
	switch {
	case p.Conflict != "":
		return refused("nothing was changed: %s", p.Conflict)
	case len(p.changes()) == 0:
		return ErrNothingToDo
	}
	acting, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	store, guard, end, err := openForCommit(acting, a)
	if err != nil {
		return err
	}
	defer end()
	table, err := delta.Open(objstore.Sub(store, p.of.table.Table), delta.Options{
		Pipeline: a.Config.Pipeline, Engine: "sluice/" + a.Version, Guard: guard,
	})
	if err != nil {
		return fail.Dependency(err)
	}
	defer table.Close()
	log := opslog.Open(store, a.Config.Pipeline, opslog.Options{Guard: guard})
	host, _ := os.Hostname() // without the name of the host, the entry has none
	record := func(ctx context.Context, body opslog.Body) (opslog.Entry, error) {
		return log.Append(ctx, opslog.Operation{Operator: by.Operator, Host: host, Reason: by.Reason, Body: body}, nil)
	}
	intent, err := record(acting, opslog.SchemaIntent{Table: p.of.table.Table, Changes: p.changes()})
	if err != nil {
		return fail.Dependency(fmt.Errorf("nothing was changed: %w", err))
	}
	p.Operation = intent.Seq
	done := opslog.SchemaDone{Intent: intent.Seq, Table: p.of.table.Table, Changes: p.changes(), Version: -1, Outcome: opslog.Conflict}
	s, err := p.commit(acting, table, by)
	kind := fail.KindDependency
	switch held, isHold := errors.AsType[*hold.Error](err); {
	case err == nil:
		done.Outcome, done.Version = opslog.Committed, s.Version
		p.Committed = &s.Version
	case errors.Is(err, connector.ErrUndecided):
		done.Outcome = opslog.Unknown
		err = fmt.Errorf("the outcome is unknown, the store did not respond; table schema diff will show it: %w", err)
	case errors.Is(err, ErrNothingToDo):
	case classify.Of(err) == classify.Fenced, isHold && held.Reason != hold.StoreDenied:
		kind = fail.KindRefused
		err = fmt.Errorf("nothing was changed, the table has changed since it was shown: look again: %w", err)
	default:
		err = fmt.Errorf("nothing was changed: %w", err)
	}
	if err != nil {
		done.Detail = err.Error()
	}
	// The time limit may be over, but the outcome should be recorded, so it gets some more time.
	ending, stop := context.WithTimeout(context.WithoutCancel(ctx), min(within, 20*time.Second))
	defer stop()
	_, p.Unrecorded = record(ending, done)
	if err == nil || errors.Is(err, ErrNothingToDo) {
		return err
	}
	return &fail.Error{Kind: kind, Err: err}
}

func (p *SchemaPlan) commit(ctx context.Context, table *delta.Table, by By) (*connector.Snapshot, error) {
	if _, err := table.Load(ctx); err != nil {
		return nil, err
	}
	return table.AddColumns(ctx, connector.Moved{Command: "table schema apply", Operator: by.Operator, Reason: by.Reason}, p.from, p.to,
		func(s *connector.Snapshot) error {
			now, ok := s.Table.(*schema.Schema)
			if !ok || s.TableID != p.tableID {
				return classify.Mark(fmt.Errorf("the table was %s, now it is %s", p.tableID, s.TableID), classify.Fenced)
			}
			if then, err := now.Extended(p.to); err == nil && then == now {
				return ErrNothingToDo
			}
			return nil
		})
}
