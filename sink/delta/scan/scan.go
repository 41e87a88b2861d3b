// Package scan reads some columns of a Delta table. It streams the data files of one version from the log, skips
// files that certainly hold no rows of interest, and reads only the wanted columns of the wanted row groups of the
// others.
//
// It also reads tables of other programs, as far as reader version 1 goes: timestamps of any unit, INT96 included,
// narrower numbers than in the schema, columns that a file lacks, partition columns. Features that would make the
// result wrong are refused by name: deletion vectors, column mapping, features that this version does not know.
//
// Read in this order: scan.go (the query), prune.go (skipping files), file.go (reading one file), columns.go and
// leaf.go (reading one column).
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

// Query selects what to read.
type Query struct {
	// Columns are the columns to read, at least one. Each is a path of names from the table's column down through
	// structs. They must be numbers, texts, binaries, booleans, dates or timestamps, not lists or maps.
	Columns [][]string
	// Where are the records of interest. Empty means all rows; otherwise rows without Kafka coordinates are not of
	// interest.
	Where []Where
	// Since is the earliest Kafka timestamp of interest, to the millisecond. Zero means all rows; otherwise rows
	// without a timestamp are not of interest.
	Since time.Time
	// Bytes bounds the memory for all data files that are read at a time: pages, rows and prefetched bytes. Default:
	// 64 MiB. A file that needs more is an error. The memory for the log itself (some thousand adds of a checkpoint
	// at a time) is extra.
	Bytes int64
	// Parallel is the number of files read in parallel. Default: 1, which keeps the files in the order of their
	// commits; those that only a checkpoint has come first.
	Parallel int
}

// AnyPartition is the number of a [Where] that selects all partitions of a topic.
const AnyPartition = connector.AnyPartition

// Where are the offsets [From, Next) of a partition.
type Where struct {
	Topic     string
	Partition int32 // a number, or AnyPartition
	From      int64
	Next      int64
}

// Place has the coordinates of a row. Its texts are valid only during the call that gets it.
type Place struct {
	Topic     string
	TopicID   string // as Kafka's tools print it; "" if the row has none
	Partition int32
	Offset    int64
}

// Rows are some rows of one data file, in its order.
type Rows struct {
	Path    string // path of the data file, as the log names it
	Version int64  // version that added the file, -1 if only a checkpoint has it
	Written int64  // time of the file according to the log; milliseconds since 1970
	// Batch has one array for each column of the query, in that order, named by its path joined with dots, and with
	// the Arrow type of the table's schema: see [sluice/connector/schema.Schema.Arrow]. Binary columns are Arrow
	// binaries. Batch is valid until the call returns, unless it is retained.
	Batch arrow.RecordBatch
}

const (
	defaultBytes = 64 << 20
	minBytes     = 1 << 20
)

var (
	// ErrVanished means that a file is missing although the table's log names it: a vacuum or another program deleted
	// it after the version was read.
	ErrVanished = errors.New("data file vanished")
	// ErrUnsound means that a data file is damaged, does not match its entry in the log, or has a form that this version
	// does not read.
	ErrUnsound = errors.New("data file cannot be read")
)

// Run reads the table as of state and calls each with the rows of the query. It skips files and row groups by their
// statistics and does not filter rows, so each may also get other rows, which the caller must filter out. Every row of
// interest comes exactly once, and other rows at most once. Only one goroutine at a time calls each. An error of each
// ends the scan and is returned unchanged.
//
// Errors: a hold.Error with hold.TableUnsupported for a table or file that cannot be read (for files it wraps
// [ErrVanished] or [ErrUnsound]), otherwise those of the log ([deltalog.ErrCorrupt]) and of the store.
func Run(ctx context.Context, store objstore.Store, state *deltalog.State, q Query, each func(Rows) error) error {
	s, err := newScan(store, state, q)
	if err != nil {
		return err
	}
	s.each = each
	return s.run(ctx, state)
}

// scan is one read of a table, by [Run] or [Present].
type scan struct {
	store   objstore.Store
	query   Query
	columns []column

	mu     sync.Mutex
	filter filter // guarded by mu; Present makes it narrower as it finds rows
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

// wanted returns the current filter. In [Present] the filter becomes narrower as rows are found.
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
			return panics.Catch(func() error { // a panic must not leave this goroutine: it would end the process
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

// files sends the files that may hold rows of interest to the readers.
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

// file passes the rows of one data file to the caller. It refuses a file with a deletion vector, and a file outside of
// the table.
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
			"the log names %s, which does not exist: a vacuum with too short a retention, or an operator, deleted it", f.Path), errors.Join(ErrVanished, err))
	case errors.Is(err, ErrUnsound):
		return hold.New(hold.TableUnsupported, "a data file of the table is damaged or not one that this version reads", err)
	}
	return err
}

// emit passes rows to the caller.
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
