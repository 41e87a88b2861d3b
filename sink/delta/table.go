package delta

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

var _ connector.Table = (*Table)(nil)

// Options configure a [Table].
type Options struct {
	// Pipeline is the name of the pipeline. Its txns have it in their appIds, and commitInfo has it as queryId.
	Pipeline string
	// Engine is the name and version of this program in commitInfo, such as "sluice/0.1.0".
	Engine string
	// Schema is the configured schema without the Kafka columns. A missing table is created with it; an existing one
	// gets its nullable columns with the next rows. With nil an existing table is used as it is, and none is created.
	Schema *schema.Schema
	// Comment and Properties are the description and the properties of a table that is created. An existing table
	// keeps its own.
	Comment    string
	Properties map[string]string
	// Retention returns how long Kafka keeps the records of the topics that feed the table: 0 while that is unknown,
	// math.MaxInt64 for ever. A table that drops positions earlier is refused, and the pipeline repeats its txns
	// before the table drops them. With nil, as commands use it, neither happens.
	Retention func() time.Duration
	// FileSize is the size in bytes at which a data file is closed. 0 means the encoder's default.
	FileSize int64
	// NoStatistics are the paths of columns and fields without bounds in the log and in the footers of data files. A
	// struct stands for all of its fields.
	NoStatistics [][]string
	// Encoders is the working memory for encoding row groups, shared by all tables of a process. With nil each commit
	// makes its own.
	Encoders *datafile.Shares
	// Guard retries the operations of the store and has the store's circuit breaker. The store itself must not retry.
	Guard *reliability.Guard
	// TempDir is the directory for large checkpoints, "" for the system's temporary directory.
	TempDir string

	Logger     *slog.Logger          // nil discards log lines
	Registerer prometheus.Registerer // nil registers no metrics; wrap it to give the metrics a label for the table
}

// Table is a Delta table that one writer appends to. Only that writer's goroutine may call its methods, except
// [Table.Undecided] and [Table.Close].
type Table struct {
	raw     objstore.Store // the store, which does each operation once: for commits and checkpoints
	store   retried        // the same store behind the guard: for reads and data files
	guard   *reliability.Guard
	opt     Options
	log     *slog.Logger
	metrics *metrics

	// head is the newest known version, nil before the first load and after an error that requires a reload. own is the
	// last version that this table committed. tableID is the id of the last known version; it stays when head becomes
	// nil. turn decides when to put. The writer's goroutine owns them all.
	head    *head
	own     *ownCommit
	tableID string
	turn    turn

	checkpoints checkpoints
	crowded     reliability.FailureLog // limits the lines about batches with too many small files

	mu        sync.Mutex
	undecided *hold.Hold // guarded by mu; the hold of the commit whose outcome is unknown, nil if there is none
}

// head is the table as of one version.
type head struct {
	*deltalog.State
	snapshot *connector.Snapshot
	// stamp has the size and the time of the commit's object as it was read. It is zero if they are unknown, and for
	// our own commits, which their txnId identifies.
	stamp objstore.Info
	// schema is nil if this version must not write the table; refusal then says why.
	schema  *schema.Schema
	refusal error
	// rows is the schema for which rows are built: schema, and the configured columns that it lacks. If the configured
	// schema does not fit the table, unfit is the conflict, and rows equals schema.
	rows  *schema.Schema
	unfit error
}

// ownCommit is a version that we committed. It is kept to detect that another writer overwrites it.
type ownCommit struct {
	version int64
	txnID   string
	txns    []connector.Txn

	// overwritten is true once another commit was found at the version; foundTxnID is the txnId of that commit.
	overwritten bool
	foundTxnID  string
}

// Open returns the table at the root of store. It makes no request; [Table.Load] makes the first. The error is that
// of registering the metrics.
func Open(store objstore.Store, opt Options) (*Table, error) {
	if opt.Logger == nil {
		opt.Logger = slog.New(slog.DiscardHandler)
	}
	if opt.Schema != nil {
		opt.Schema = opt.Schema.WithKafkaColumns()
	}
	m, err := newMetrics(opt.Registerer)
	if err != nil {
		return nil, fmt.Errorf("register the metrics of a table: %w", err)
	}
	return &Table{
		raw: store, store: retried{store: store, guard: opt.Guard}, guard: opt.Guard, opt: opt, log: opt.Logger, metrics: m,
	}, nil
}

// Load implements connector.Table: it reads the new commits of the log, and creates the table if there is none and a
// schema is configured. Errors: hold.Error with hold.TableUnsupported for a table that this version must not write,
// hold.SchemaConflict for one that lacks the Kafka columns or does not fit the configured schema, hold.TableReplaced for
// one that vanished, hold.StoreDenied; Canceled when ctx ends.
func (t *Table) Load(ctx context.Context) (*connector.Snapshot, error) {
	began := time.Now()
	err := t.refresh(ctx, t.store)
	if errors.Is(err, deltalog.ErrNoTable) {
		err = t.create(ctx, began)
	}
	if err != nil {
		return nil, t.failed(err)
	}
	if t.head.refusal != nil {
		return nil, t.head.refusal
	}
	if err := t.retained(); err != nil {
		return nil, err
	}
	if t.head.unfit != nil {
		return nil, fmt.Errorf("the configured schema and the table's: %w", t.head.unfit)
	}
	if err := t.keep(ctx); err != nil {
		return nil, fmt.Errorf("repeat txns: %w", err)
	}
	return t.head.snapshot, nil
}

// Close cancels a checkpoint that is being written, waits for it, and prevents new ones. It is safe for concurrent
// use.
func (t *Table) Close() { t.checkpoints.close() }

// undecidedAfter is how long the outcome of a commit may be unknown before it counts as a hold.
const undecidedAfter = 60 * time.Second

// Undecided returns a hold with hold.CommitUndecided if the outcome of a commit has been unknown for a minute or
// more. The hold ends by itself when the outcome is resolved or the commit is given up. It is safe for concurrent
// use.
func (t *Table) Undecided() (hold.Hold, bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.undecided == nil || time.Since(t.undecided.Since) < undecidedAfter {
		return hold.Hold{}, false
	}
	return *t.undecided, true
}

func (t *Table) setUndecided(h *hold.Hold) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.undecided = h
}

// setHead makes s the newest known version and builds its snapshot. stamp has the size and the time of its commit's
// object, zero if unknown.
func (t *Table) setHead(s *deltalog.State, stamp objstore.Info) {
	h := &head{State: s, stamp: stamp}
	if old := t.head; old != nil && sameTable(old.State, s) {
		h.schema, h.refusal, h.rows, h.unfit = old.schema, old.refusal, old.rows, old.unfit
	} else {
		h.schema, h.refusal = supported(s)
		h.forRows(t.opt.Schema, old)
	}
	h.snapshot = &connector.Snapshot{
		TableID: s.Metadata.ID, Version: s.Version, Positions: positions(s.Txns), ReadAt: s.ReadAt,
	}
	if h.schema != nil {
		h.snapshot.Schema, h.snapshot.Table = h.rows, h.schema
	}
	t.head, t.tableID = h, s.Metadata.ID
}

// forRows sets h.rows and h.unfit. configured is nil if no schema is configured, old is the head before h, or nil. A
// schema that equals that of old stays the same value, because lanes cache builders by it: a commit that adds the
// columns for which rows are already built changes nothing for them.
func (h *head) forRows(configured *schema.Schema, old *head) {
	h.rows = h.schema
	if h.schema != nil && configured != nil {
		rows, err := h.schema.ForRows(configured)
		if h.unfit = err; err == nil {
			h.rows = rows
		}
	}
	if old != nil && old.rows != nil && h.rows != nil && h.rows.Equal(old.rows) {
		h.rows = old.rows
	}
}

// positions returns the txn versions for a snapshot, without stale leader epochs. A program that keeps no epochs moves
// a position alone; with the old epoch, Kafka's log would then look truncated before the new position. Position and
// epoch belong together only if both txns have the same time, because one commit sets both.
func positions(txns map[string]deltalog.Txn) map[string]int64 {
	all := make(map[string]int64, len(txns))
	for appID, txn := range txns {
		if position, ok := idempotency.EpochOf(appID); ok && !sameTime(txn, txns[position]) {
			continue
		}
		all[appID] = txn.Version
	}
	return all
}

func sameTime(a, b deltalog.Txn) bool {
	if a.LastUpdated == nil || b.LastUpdated == nil {
		return a.LastUpdated == b.LastUpdated
	}
	return *a.LastUpdated == *b.LastUpdated
}

// encoding returns the options for encoding data files, from the configuration and the table's properties.
func (t *Table) encoding(columns *schema.Schema) datafile.Options {
	config := t.head.Metadata.Configuration
	o := datafile.Options{
		TargetSize: t.opt.FileSize, Shares: t.opt.Encoders, Statistics: statistics(columns, config, t.opt.NoStatistics),
	}
	if n, ok := intProperty(config, "delta.dataSkippingStringPrefixLength", 1, math.MaxInt32); ok {
		o.StringPrefix = n
	}
	return o
}

// failed returns err as the hold.Error that [connector.Table] promises for it: a log that cannot be read, no table and
// no schema to create one, or a store that refuses. Other errors stay as they are.
func (t *Table) failed(err error) error {
	var held *hold.Error
	switch class := classify.Of(err); {
	case errors.As(err, &held):
		return err
	case errors.Is(err, deltalog.ErrCorrupt), errors.As(err, new(*panics.Error)):
		return hold.New(hold.TableUnsupported, "the table's log cannot be read", err)
	case errors.Is(err, deltalog.ErrNoTable):
		return hold.New(hold.SchemaConflict, "there is no table, and no schema is configured to create it with", nil)
	case class == classify.Fatal:
		return hold.New(hold.StoreDenied, "the store refuses", err)
	}
	return err
}
