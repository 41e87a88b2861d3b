package connector

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// Table is where rows end up. All of its methods are called by the table's writer alone. Store failures are retried
// inside, by the store's guard, until ctx ends; what is returned is a hold.Error, Fenced or Canceled, or a [LocalError] of
// Stage.
type Table interface { //nolint:interfacebloat // one way to write, and two questions about rows that cannot be
	// Load returns the newest snapshot. It creates the table if it does not exist and may be created.
	Load(ctx context.Context) (*Snapshot, error)
	// Stage encodes pieces into data files and puts them, step (b) of a commit. The order of rows in pieces, row groups and
	// adds is the order given. batch is the id of the cut, for log lines. progress is called by the same goroutine: the first done pieces are encoded and not
	// touched any more, and files of so many bytes wait in memory until they are put.
	Stage(ctx context.Context, s *Snapshot, batch string, pieces []Piece, progress func(done int, encoded int64)) (*Staged, error)
	// Rehearse encodes pieces as Stage would, and puts and keeps nothing. Nothing refers to the pieces when it returns, and
	// they may be encoded again. Its errors are those of Stage, without the store's.
	Rehearse(ctx context.Context, s *Snapshot, pieces []Piece) error
	// OffsetOf returns the offset that a row stems from, by its Kafka columns; false if it has none.
	OffsetOf(rows arrow.RecordBatch, row int64) (offset int64, ok bool)
	// Commit appends one version to the log, step (d). pre is called with each log prefix that the version would
	// extend, the one before the first try included; its error ends the commit and is returned as it is. The result is
	// the snapshot with the commit in it. Fenced also if a version in between made the staged files invalid.
	// ErrUndecided is in the chain of the error if ctx ended with a PUT of unknown outcome: the files stay, and the
	// position must be taken from the log again.
	Commit(ctx context.Context, c *Commit, pre func(*Snapshot) error) (*Snapshot, error)
	// HasRows returns which rows the table has as of a snapshot that it returned, by the statistics of its data files and
	// the Kafka columns of those files whose statistics leave it open. Without thorough it reads no files for whole topics,
	// and finds those topics that have a file of their own.
	HasRows(ctx context.Context, s *Snapshot, of []RowsOf, thorough bool) (map[RowsOf]bool, error)
	// Discard deletes the data files of a commit that has certainly not happened. Files that may be in the log stay.
	Discard(ctx context.Context, s *Staged)
}

// DeadLetters takes records that cannot become rows, step (c) of a commit. Called by the table's writer alone.
type DeadLetters interface {
	// Write returns nil once every letter is durable: acknowledged by all replicas that must have it. Letters of one
	// partition are written in the order given. A letter may become durable more than once, and some may be when the
	// others fail. Failures that pass are retried inside, by a guard of their own, until ctx ends; what is returned is a
	// hold.Error with hold.DeadLettersUnavailable, or Canceled.
	Write(ctx context.Context, letters []deadletter.Letter) error
}

// FingerprintReader is a [Table] that can read the fingerprints of its rows. Called by the table's writer alone.
type FingerprintReader interface {
	// ReadFingerprints prepares to read, as of a snapshot that this table returned. An error is a hold.Error: the table has no such
	// column.
	ReadFingerprints(s *Snapshot, q FingerprintQuery) (Reading, error)
}

// Reading reads what was prepared, on any goroutine, once. It yields every row that was asked for, and possibly others.
// Failures of the store are retried inside until ctx ends. Its error is a hold.Error or Canceled, or that of each.
type Reading func(ctx context.Context, each func(PastRows) error) error

// FingerprintQuery says which rows to read: those of any of the claims at offsets [From, Next) that are not older than Since, in
// milliseconds since 1970.
type FingerprintQuery struct {
	Identity idempotency.Identity
	Claims   map[Partition]Offsets
	Since    int64
	IDs      bool // set the producer's ids of the entries, too, where the table has them
}

// Offsets are the offsets [From, Next) of a partition.
type Offsets struct{ From, Next int64 }

// PastRows are some rows of a partition, in no order. Written is when their file was, in milliseconds. Entries stay valid
// until the call returns.
type PastRows struct {
	Topic     string
	Partition int32
	Written   int64
	Entries   []idempotency.Entry
}

// ErrUndecided says that a commit was given up before its outcome was known.
var ErrUndecided = errors.New("commit undecided")

// Snapshot is the table as of one version: what a commit that extends this version must look at. It is immutable.
type Snapshot struct {
	TableID string
	Version int64
	// Positions are the versions of all txn actions by appId, our own and foreign ones. The leader epoch of a position is
	// among them only if the commit that set the position set it, too: see [idempotency.EpochOf].
	Positions map[string]int64
	Schema    Schema
	// ReadAt is when the newest version was known to be the newest.
	ReadAt time.Time
}

// Epoch returns the leader epoch that the table keeps beside the position of a partition, -1 if it keeps that none is known.
// It returns false if the table keeps nothing: the program that set the position keeps no epochs.
func (s *Snapshot) Epoch(pipeline string, p Partition) (epoch int32, kept bool) {
	version, kept := s.Positions[p.EpochAppID(pipeline)]
	if !kept || version < 0 || version > math.MaxInt32 {
		return -1, kept
	}
	return int32(version), true
}

// Schema is the schema of a table, opaque to the pipeline; connector/schema implements it and holds what can be asked.
type Schema interface {
	// Fits says whether rows built for another schema can be committed under this one; the error says why not.
	Fits(built Schema) error
}

// Piece is a part of a chunk that enters a commit: rows [From, To) of Rows.
type Piece struct {
	Rows     arrow.RecordBatch
	From, To int64
}

// Staged are data files that were put and are not in the log yet; the table knows what is in them.
type Staged struct {
	Files any
	Count int // of files
	Rows  int64
	Bytes int64
}

// Commit is what one version of the table will say.
type Commit struct {
	Operation string // "STREAMING UPDATE", "SLUICE START", …
	Batch     string // the id of the cut, "" if there is none
	Moved     *Moved // by an operator, else nil
	Txns      []Txn
	Staged    *Staged // nil for a commit without rows
	Ranges    []Range
	// Ignored are the fields that the schema does not have, in the records of the rows.
	Ignored []IgnoredFields
}

// Txn sets the position of an appId.
type Txn struct {
	AppID   string
	Version int64
}

// Range says in commitInfo which offsets of a partition a commit covers: [From, Next), with this many rows and dead
// letters. From is -1 at a START. In a commit that was [Moved] it is the position before and after, and covers nothing.
type Range struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	Next      int64  `json:"next"`
	Rows      int64  `json:"rows"`
	Letters   int64  `json:"letters,omitempty"`
	Epoch     int32  `json:"epoch"`
	// HealthRecords were dropped.
	HealthRecords int64 `json:"health_records,omitempty"`
	// Duplicates of a record before were left out.
	Duplicates int64 `json:"duplicates,omitempty"`
}

// IgnoredFields are the names of fields that a commit ignored in the records of a topic. It is part of commitInfo.
type IgnoredFields struct {
	Topic string `json:"topic"`
	// Names are ascending, at most MaxIgnoredNames.
	Names []string `json:"names"`
	// More is true if there were other names.
	More bool `json:"more,omitempty"`
}

// Moved says in commitInfo who moved positions by which command, and why.
type Moved struct {
	Command  string `json:"command"`
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
}

// AnyPartition stands for all partitions of a topic, in [RowsOf].
const AnyPartition int32 = -1

// RowsOf names rows of a table by the place in Kafka that their columns tell.
type RowsOf struct {
	Topic     string
	Partition int32 // or AnyPartition
}
