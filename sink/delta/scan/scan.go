// Package scan reads some columns of a Delta table: the data files of one version, streamed from its log, those that
// certainly hold nothing of interest passed over, and of the others only the wanted columns of the wanted row groups.
//
// It reads the tables of others, too, as far as reader version 1 goes: timestamps of any unit, INT96 included, narrower
// numbers than the schema says, columns that a file lacks, columns that a table is partitioned by. What would make the
// answer wrong is refused by name: deletion vectors, column mapping, features that this version does not know.
//
// Read in this order: scan.go (what can be asked), prune.go (what is passed over), file.go (the way through one file),
// columns.go and leaf.go (what a column becomes).
package scan

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"golang.org/x/sync/errgroup"

	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/reliability/panics"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
)

// Query says what to read.
type Query struct {
	// Columns are the columns to read, each by its names from the column of the table down through structs; most have one.
	// At least one. They must be numbers, texts, binaries, booleans, dates or timestamps, not lists or maps.
	Columns [][]string
	// Where are the records of interest. Empty means all rows; otherwise a row that stems from nowhere in Kafka is of none.
	Where []Where
	// Since is the earliest timestamp of Kafka of interest, to the millisecond. Zero means all rows; otherwise a row
	// without one is of none.
	Since time.Time
	// Bytes bounds what is held in memory of data files, all of them that are read at a time: pages, rows, and what was
	// fetched ahead. Default: 64 MiB. A file that cannot be read within it is an error. What the log itself takes
	// (some thousand adds of a checkpoint at a time) comes on top.
	Bytes int64
	// Parallel is how many files are read side by side. Default: 1, which keeps the files in the order of their commits as
	// far as it is known (those that only a checkpoint knows come first).
	Parallel int
}

// AnyPartition stands for all partitions of a topic.
const AnyPartition = connector.AnyPartition

// Where are the offsets [From, Next) of a partition.
type Where struct {
	Topic     string
	Partition int32 // or AnyPartition
	From      int64
	Next      int64
}

// Rows are some rows of one data file, in its order.
type Rows struct {
	Path    string // of the file, as the log names it
	Version int64  // that added the file, -1 if only a checkpoint knows it
	Written int64  // when the file was, as the log says; milliseconds since 1970
	// Batch has one array for each column of the query, in its order and named by its names joined with dots, of the Arrow
	// type of the table's schema: see [sluice/connector/schema.Schema.Arrow]; binary columns are Arrow binaries. It is
	// valid until the call returns, unless it is retained.
	Batch arrow.RecordBatch
}

const (
	defaultBytes = 64 << 20
	minBytes     = 1 << 20
)

var (
	// ErrVanished says that a file is not there although the table's log names it: a vacuum took it after the version
	// was read, or somebody deleted it.
	ErrVanished = errors.New("data file vanished")
	// ErrUnsound says that a file is not what its place in the table says.
	ErrUnsound = errors.New("data file cannot be read")
)

// Run reads the table as of state and hands over what the query asks for, and possibly more: it passes over files and row
// groups by their statistics and looks at no row, so that the caller does. Every row comes at most once, and one of
// interest certainly. each is called by one goroutine at a time; its error ends the scan and is returned as it is.
//
// Errors: a hold.Error with hold.TableUnsupported for a table or file that cannot be read ([ErrVanished] and
// [ErrUnsound] tell the files), otherwise those of the log ([deltalog.ErrCorrupt]) and of the store.
func Run(ctx context.Context, store objstore.Store, state *deltalog.State, q Query, each func(Rows) error) error {
	s, err := newScan(store, state, q)
	if err != nil {
		return err
	}
	s.each = each
	return s.run(ctx, state)
}

// scan is one run.
type scan struct {
	store   objstore.Store
	query   Query
	columns []column

	mu     sync.Mutex
	filter filter // by mu: each may narrow it down
	each   func(Rows) error
}

func newScan(store objstore.Store, state *deltalog.State, q Query) (*scan, error) {
	if q.Bytes <= 0 {
		q.Bytes = defaultBytes
	}
	q.Parallel = max(q.Parallel, 1)
	q.Bytes = max(q.Bytes/int64(q.Parallel), minBytes)
	if err := readable(state); err != nil {
		return nil, err
	}
	columns, err := newColumns(state.Metadata, q.Columns)
	if err != nil {
		return nil, err
	}
	return &scan{store: store, query: q, columns: columns, filter: newFilter(q, state.Metadata)}, nil
}

// wanted is the filter as of now.
func (s *scan) wanted() filter {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.filter
}

func (s *scan) run(ctx context.Context, state *deltalog.State) error {
	readers, ctx := errgroup.WithContext(ctx)
	todo := make(chan deltalog.File)
	for range s.query.Parallel {
		readers.Go(func() error {
			return panics.Catch(func() error { // on a goroutine of its own a panic would end the process
				for f := range todo {
					if err := s.file(ctx, f); err != nil {
						return err
					}
				}
				return nil
			})
		})
	}
	readers.Go(func() error {
		return panics.Catch(func() error { return s.files(ctx, state, todo) })
	})
	return readers.Wait()
}

// files hands the files that may hold rows of interest to the readers.
func (s *scan) files(ctx context.Context, state *deltalog.State, todo chan<- deltalog.File) error {
	defer close(todo)
	for f, err := range deltalog.Files(ctx, s.store, state) {
		if err != nil {
			return fmt.Errorf("scan: %w", err)
		}
		if s.wanted().passes(f.Add) {
			continue
		}
		select {
		case todo <- f:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// file reads one data file.
func (s *scan) file(ctx context.Context, f deltalog.File) error {
	switch {
	case f.DeletionVector != nil:
		return unsupported("some rows of %s are deleted by a deletion vector (feature deletionVectors)", f.Path)
	case strings.Contains(f.Path, "://"):
		return unsupported("%s is a file outside of the table (a shallow clone)", f.Path)
	}
	err := readFile(ctx, s, f)
	switch {
	case errors.Is(err, objstore.ErrNotFound):
		return hold.New(hold.TableUnsupported, fmt.Sprintf(
			"the log names %s, which is not there: a vacuum that is too eager, or a hand, deleted it", f.Path), errors.Join(ErrVanished, err))
	case errors.Is(err, ErrUnsound):
		return hold.New(hold.TableUnsupported, "a data file of the table is damaged or not one that this version reads", err)
	}
	return err
}

// emit gives rows to the caller.
func (s *scan) emit(f deltalog.File, batch arrow.RecordBatch) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.each(Rows{Path: f.Path, Version: f.Version, Written: f.ModificationTime, Batch: batch})
}

func unsupported(format string, args ...any) error {
	return hold.New(hold.TableUnsupported, "the table is not one that this version reads: "+fmt.Sprintf(format, args...), nil)
}

func unsound(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrUnsound, fmt.Sprintf(format, args...))
}
