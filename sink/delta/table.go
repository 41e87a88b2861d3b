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

// Options of a table.
type Options struct {
	// Pipeline is written into commitInfo, as the id of the query that appends.
	Pipeline string
	// Engine is written into commitInfo: name and version of this program, "sluice/0.1.0".
	Engine string
	// Schema is what the configuration asks for, without the Kafka columns. A missing table is created with it, an
	// existing one must have these columns. nil takes the existing table as it is and creates none.
	Schema *schema.Schema
	// Retention returns how long Kafka keeps the records of the topics that feed the table, 0 while that is not known,
	// math.MaxInt64 for ever. A table that drops positions earlier is refused, and the pipeline's txns are repeated before
	// it drops them. nil is for commands, which do neither.
	Retention func() time.Duration
	// FileSize is the size in bytes at which a data file is closed. 0 takes the encoder's default.
	FileSize int64
	// Encoders is what row groups are encoded with, shared by all tables of a process. nil makes some for each commit.
	Encoders *datafile.Shares
	// Guard stands before the table's store. It retries and breaks; nothing below it does.
	Guard *reliability.Guard
	// TempDir is where a large checkpoint is spooled, "" for the system's directory.
	TempDir string

	Logger     *slog.Logger          // nil discards
	Registerer prometheus.Registerer // nil registers nothing; wrap it to tell tables apart
}

// Table is a Delta table that one writer appends to. All methods but [Table.Undecided] and [Table.Close] belong to that
// writer's goroutine.
type Table struct {
	raw     objstore.Store // does each operation once: commits and checkpoints
	store   retried        // the same behind the guard: reads and data files
	guard   *reliability.Guard
	opt     Options
	log     *slog.Logger
	metrics *metrics

	// head is the newest version known, nil before the first load and after anything that made memory doubtful. own is
	// the last version that this table's commit won. tableID outlives head. turn says when to put. All owned by the writer.
	head    *head
	own     *ownCommit
	tableID string
	turn    turn

	checkpoints checkpoints

	mu        sync.Mutex
	undecided *hold.Hold // by mu; a commit whose outcome is unknown, since when
}

// head is the table as of one version.
type head struct {
	*deltalog.State
	snapshot *connector.Snapshot
	// stamp is the object of the version as it was read, zero if it is not known: our own commits have an id instead.
	stamp objstore.Info
	// schema is nil if the table must not be written; refusal says why.
	schema  *schema.Schema
	refusal error
}

// ownCommit is a version that we won, to notice if another writer overwrites it.
type ownCommit struct {
	version int64
	txnID   string
	txns    []connector.Txn

	// overwritten is set once the version was seen with another commit, whose txnId is foundTxnID.
	overwritten bool
	foundTxnID  string
}

// Open returns the table at the root of store. It does no I/O; the first [Table.Load] does. An error means that the
// metrics cannot be registered.
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

// Load implements connector.Table: it reads what is new in the log and creates the table if there is none and a schema
// was configured. Errors: hold.Error with hold.TableUnsupported for a table that this version must not write,
// hold.SchemaConflict for one that lacks the Kafka columns or the configured ones, hold.TableReplaced for one that
// vanished, hold.StoreDenied; Canceled when ctx ends.
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
	if t.opt.Schema != nil {
		if err := t.head.schema.Fits(t.opt.Schema); err != nil {
			return nil, fmt.Errorf("the configured schema and the table's: %w", err)
		}
	}
	if err := t.keep(ctx); err != nil {
		return nil, fmt.Errorf("repeat txns: %w", err)
	}
	return t.head.snapshot, nil
}

// Close ends what runs in the background, a checkpoint at most, and waits for it. Another one is never started.
func (t *Table) Close() { t.checkpoints.close() }

// undecidedAfter is how long the outcome of a commit may be unknown before that is a hold.
const undecidedAfter = 60 * time.Second

// Undecided tells whether the outcome of a commit has been unknown for a minute or more, as a hold with
// hold.CommitUndecided. It ends by itself when the store answers or the commit is given up. Any goroutine may ask.
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

// setHead makes s the newest version known, whose commit is the object of stamp.
func (t *Table) setHead(s *deltalog.State, stamp objstore.Info) {
	h := &head{State: s, stamp: stamp}
	if old := t.head; old != nil && sameTable(old.State, s) {
		h.schema, h.refusal = old.schema, old.refusal // one value per schema: the decoder keeps builders by it
	} else {
		h.schema, h.refusal = supported(s)
	}
	h.snapshot = &connector.Snapshot{
		TableID: s.Metadata.ID, Version: s.Version, Positions: positions(s.Txns), ReadAt: s.ReadAt,
	}
	if h.schema != nil {
		h.snapshot.Schema = h.schema
	}
	t.head, t.tableID = h, s.Metadata.ID
}

// positions are the versions of txns for a snapshot, without the leader epochs that do not belong to the position beside
// them. A program that keeps no epochs moves a position alone; the epoch of the old one would then look like a truncated
// log. The txns of one commit have one time.
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

// encoding is how data files are encoded, by the options and the table's properties.
func (t *Table) encoding() datafile.Options {
	config := t.head.Metadata.Configuration
	o := datafile.Options{TargetSize: t.opt.FileSize, Shares: t.opt.Encoders}
	if n, ok := intProperty(config, "delta.dataSkippingNumIndexedCols", -1, math.MaxInt32); ok {
		o.IndexedLeaves = n // 0 is taken care of where the statistics enter the log
	}
	if n, ok := intProperty(config, "delta.dataSkippingStringPrefixLength", 1, math.MaxInt32); ok {
		o.StringPrefix = n
	}
	return o
}

// failed gives an error the form that connector.Table promises.
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
