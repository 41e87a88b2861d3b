package admin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"sluice/classify"
	"sluice/connector"
	"sluice/idempotency"
	"sluice/internal/fail"
	"sluice/internal/laketest"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/sink/delta/objstore"
	"sluice/sink/opslog"
)

// TestInspect_InitialCommitAfterSnapshot: if the initial commit comes after the snapshot was read, inspect reads the
// table again. So the committed offsets cause no hold unknown_history.
func TestInspect_InitialCommitAfterSnapshot(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}")
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	tables, end, err := OpenTables(t.Context(), &Access{Config: laketest.Load(t, l.Config)}, "")
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	o := tables[0]
	before, _, err := o.snapshot(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	l.run()
	queries, err := newKafkaQueries(t.Context(), o.config)
	if err != nil {
		t.Fatal(err)
	}
	defer queries.close()
	if o.store == nil { // the table's folder did not exist when o was opened
		o.store = objstore.Sub(l.Store, "orders")
	}
	seen, err := queries.inspect(t.Context(), o, "orders", before)
	if err != nil {
		t.Fatal(err)
	}
	p := seen.partitions()[0]
	if h := seen.hold(p); h != nil || seen.position(p) != 3 {
		t.Errorf("it stands at %d and is held: %+v", seen.position(p), h)
	}
}

// silent is a table whose Commit checks the precondition and returns err, for example ErrUndecided.
type silent struct {
	connector.Table
	snapshot *connector.Snapshot
	err      error
}

func (s silent) Load(context.Context) (*connector.Snapshot, error) { return s.snapshot, nil }

func (s silent) Commit(_ context.Context, _ *connector.Commit, pre func(*connector.Snapshot) error) (*connector.Snapshot, error) {
	if err := pre(s.snapshot); err != nil {
		return nil, err
	}
	return nil, s.err
}

// TestMove_Outcomes: the outcome of the commit decides the error of the command and the entry in the operations log.
func TestMove_Outcomes(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		err     error
		outcome opslog.Outcome
		kind    fail.Kind
		text    string
	}{
		"unknown": {
			fmt.Errorf("%w: version 7", connector.ErrUndecided), opslog.Unknown, fail.KindDependency,
			"the outcome of the move is unknown",
		},
		"moved on":     {classify.Mark(errors.New("stands at 4"), classify.Fenced), opslog.Conflict, fail.KindRefused, "nothing was changed, the table moved on since it was shown"},
		"denied":       {hold.New(hold.StoreDenied, "403", nil), opslog.Conflict, fail.KindDependency, "nothing was changed: "},
		"unsupported":  {hold.New(hold.TableUnsupported, "a feature", nil), opslog.Conflict, fail.KindRefused, "nothing was changed: "},
		"out of reach": {context.DeadlineExceeded, opslog.Conflict, fail.KindDependency, "nothing was changed: "},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLake(t, "topics: {orders: {}}")
			l.Create("orders", 1)
			topic, err := l.PartitionsOf("orders")
			if err != nil {
				t.Fatal(err)
			}
			at := connector.Partition{Cluster: topic.Cluster, Topic: "orders", TopicID: topic.ID}
			cfg := laketest.Load(t, l.Config)
			guard := reliability.NewGuard("store", cfg.Guard(), slog.New(slog.DiscardHandler), nil, objstore.ErrNotFound, objstore.ErrExists)
			log := opslog.Open(l.Store, "p", opslog.Options{Guard: guard})
			p := &MovePlan{
				Command: "offsets set", of: &Table{config: cfg, table: cfg.Topics["orders"]}, tableID: "T",
				Moves: []*PlannedMove{{Topic: "orders", From: 5, To: 2, partition: at}},
			}
			table := silent{err: c.err, snapshot: &connector.Snapshot{TableID: "T", Positions: map[string]int64{
				at.AppID("p"): 5, idempotency.TableAppID("p", "T"): 0,
			}}}
			err = p.do(t.Context(), t.Context(), table, log, By{Operator: "ann", Reason: "a test"}, time.Minute)
			if fail.Of(err) != c.kind || !strings.Contains(err.Error(), c.text) {
				t.Errorf("%v", err)
			}
			all := l.operations()
			if len(all) != 2 {
				t.Fatalf("%+v", all)
			}
			if done, ok := all[1].(opslog.OffsetsDone); !ok || done.Outcome != c.outcome || done.Intent != 1 || done.Version != -1 || done.Detail == "" {
				t.Errorf("%+v", all[1])
			}
		})
	}
}
