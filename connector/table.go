package connector

import (
	"context"
	"errors"
	"math"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/idempotency"
	"sluice/idempotency/offsets"
	"sluice/reliability/deadletter"
)

// Table is a table that takes rows. In a member only the table's writer calls its methods; a command that moves
// positions has a Table of its own. The guard of the store retries failed requests until ctx ends. So the errors of all
// methods are a [hold.Error], Fenced or Canceled; those of Stage and Rehearse may also be a [LocalError].
type Table interface { //nolint:interfacebloat // one way to write, and the questions that a writer asks about rows
	// Load returns the newest snapshot. It creates a missing table if the configuration allows it.
	Load(ctx context.Context) (*Snapshot, error)
	// Stage encodes pieces into data files and puts them into the store: step (b) of a commit. The order of pieces is
	// kept. batch is the id of the sealed batch, for log lines.
	//
	// Stage calls progress on the caller's goroutine. The first done pieces are encoded, so the caller may release
	// them. encoded is the size in bytes of encoded files that are still in memory, because they are not put yet, and of
	// what Commit will need for the files of a table with partitions, which may be very many.
	Stage(ctx context.Context, s *Snapshot, batch string, pieces []Piece, progress func(done int, encoded int64)) (*Staged, error)
	// Rehearse encodes pieces as Stage would, but puts and keeps nothing, so the same pieces may be encoded again. It
	// returns the errors that Stage would return for the pieces; it does not use the store.
	Rehearse(ctx context.Context, s *Snapshot, pieces []Piece) error
	// OffsetOf returns the Kafka offset of a row, from its Kafka columns; false if it has none.
	OffsetOf(rows arrow.RecordBatch, row int64) (offset int64, ok bool)
	// Commit appends one version to the log: step (d). Before each attempt it calls pre with the log prefix that the
	// version would extend. If pre returns an error, Commit ends and returns that error unchanged. If it succeeds, it
	// returns the snapshot that includes the commit.
	//
	// The error is also Fenced if a version of another writer has made the staged files invalid. It contains
	// [ErrUndecided] if ctx ended while the outcome of a PUT was unknown: then the files stay, and the caller must read
	// the position from the log again.
	Commit(ctx context.Context, c *Commit, pre func(*Snapshot) error) (*Snapshot, error)
	// HasRows returns for each element of `of` whether the table has such rows, in a snapshot that this table has
	// returned. It decides by the statistics of the data files, and if these are not enough, reads the Kafka columns of
	// the files.
	//
	// If thorough is false, HasRows reads no files for an element with [AnyPartition]. Then it finds rows only if the
	// statistics show a file whose rows are all of this topic.
	HasRows(ctx context.Context, s *Snapshot, of []RowsOf, thorough bool) (map[RowsOf]bool, error)
	// Discard deletes the data files of a commit that has failed. It keeps files that the log may contain.
	Discard(ctx context.Context, s *Staged)
}

// DeadLetters writes dead letters: step (c) of a commit. Only the table's writer calls it.
type DeadLetters interface {
	// Write returns nil once all required replicas have acknowledged every letter. Letters of one partition are written
	// in the given order. A letter may be written more than once; after an error, some letters may be written. A guard
	// retries transient failures until ctx ends. The error is a [hold.Error] with hold.DeadLettersUnavailable, or
	// Canceled.
	Write(ctx context.Context, letters []deadletter.Letter) error
}

// FingerprintReader is a [Table] that can read the fingerprints of its rows. Only the table's writer calls it.
type FingerprintReader interface {
	// ReadFingerprints prepares to read the rows of q as of a snapshot that this table returned. The error is a
	// [hold.Error] if the table lacks the column of the identity.
	ReadFingerprints(s *Snapshot, q FingerprintQuery) (Reading, error)
}

// Reading executes a prepared read; call it once, on any goroutine. It passes every requested row to the function each,
// and perhaps other rows. It retries failures of the store until ctx ends. The error is a [hold.Error], Canceled, or
// the error that each returned.
type Reading func(ctx context.Context, each func(PastRows) error) error

// FingerprintQuery selects rows: those of any of the claims at offsets [From, Next) whose Kafka timestamp is Since or
// later, in milliseconds since 1970. Rows without a Kafka timestamp are not selected.
type FingerprintQuery struct {
	Identity idempotency.Identity
	Claims   map[Partition]Offsets
	Since    int64
	IDs      bool // true to read the producer's ids as well, if the table has them
}

// Offsets are the offsets [From, Next) of a partition.
type Offsets struct{ From, Next int64 }

// PastRows are rows of one partition, in no particular order. Written is when their data file was written, in
// milliseconds since 1970. Entries stay valid until the callback returns.
type PastRows struct {
	Topic     string
	Partition int32
	Written   int64
	Entries   []idempotency.Entry
}

// ErrUndecided means that a commit ended before it was known whether the table has it.
var ErrUndecided = errors.New("commit undecided")

// Snapshot is the table as of one version, immutable. A commit that extends this version checks its precondition on it.
type Snapshot struct {
	TableID string
	Version int64
	// Positions has the versions of all txns in the table by appId, of this program and of others. It has the leader
	// epoch of a position only if the same commit set both: see [idempotency.EpochOf].
	Positions map[string]int64
	// Schema is the schema for which rows are built: that of the table, and the columns that the next commit with rows
	// adds to it. Table is the schema of the table alone.
	Schema, Table Schema
	// Fit returns the rows that a builder made as rows of Schema; the caller releases them. It is safe for concurrent use.
	// It is nil if the rows fit as they are, and in every snapshot that a table returns: see [Grow].
	Fit func(arrow.RecordBatch) (arrow.RecordBatch, error)
	// ReadAt is the last time at which Version was known to be the newest.
	ReadAt time.Time
}

// Epoch returns the leader epoch that the table keeps with the position of a partition; -1 means that the member did
// not know it. kept is false if the table keeps none, because the program that set the position writes no epochs.
func (s *Snapshot) Epoch(pipeline string, p Partition) (epoch int32, kept bool) {
	version, kept := s.Positions[p.EpochAppID(pipeline)]
	if !kept || version < 0 || version > math.MaxInt32 {
		return -1, kept
	}
	return int32(version), true
}

// Schema is the schema of a table, opaque to the pipeline. Package connector/schema implements it.
type Schema interface {
	// Fits returns nil if rows built for another schema can be committed under this one, or the reason why not.
	Fits(built Schema) error
}

// Piece is the part of a chunk that enters a commit: rows [From, To) of Rows.
type Piece struct {
	Rows     arrow.RecordBatch
	From, To int64
}

// Staged are data files that are in the store but not yet in the log. Only the table reads Files.
type Staged struct {
	Files any
	Count int // the number of files
	Rows  int64
	Bytes int64
}

// Commit is the content of one version of the table.
type Commit struct {
	Operation string // "STREAMING UPDATE", "SLUICE START", …
	Batch     string // the id of the sealed batch; "" if there is none
	Moved     *Moved // the operator who moved positions; nil if no operator did
	Txns      []Txn
	Staged    *Staged // nil if the commit has no rows
	Ranges    []Range
	// Ignored are the fields of the records that the schema does not have.
	Ignored []IgnoredFields
	// Replayed are the dead letters whose rows the commit adds; nil except in the commits of replays.
	Replayed []Replayed
}

// Txn sets the position of an appId.
type Txn struct {
	AppID   string
	Version int64
}

// Range is the part of commitInfo about one partition: the commit covers offsets [From, Next), with these numbers of
// rows and dead letters. In an initial commit, From is -1. In a commit with [Moved], From and Next are the positions
// before and after the move, and the range has no records.
type Range struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	From      int64  `json:"from"`
	Next      int64  `json:"next"`
	Rows      int64  `json:"rows"`
	Letters   int64  `json:"letters,omitempty"`
	Epoch     int32  `json:"epoch"`
	// HealthRecords is the number of health-check records that were dropped.
	HealthRecords int64 `json:"health_records,omitempty"`
	// Duplicates is the number of records that were left out as repetitions of an earlier one.
	Duplicates int64 `json:"duplicates,omitempty"`
	// Repeats is the number of records that a replay of dead letters had produced again and that were left out, because
	// the table had accepted their origin before, or an origin before theirs was missing.
	Repeats int64 `json:"repeats,omitempty"`
}

// IgnoredFields are the names of fields that a commit ignored in the records of a topic. They are part of
// commitInfo.
type IgnoredFields struct {
	Topic string `json:"topic"`
	// Names are in ascending order, at most [MaxIgnoredNames].
	Names []string `json:"names"`
	// More is true if there were further names.
	More bool `json:"more,omitempty"`
}

// Moved is the part of commitInfo about a command that moved positions: which one, who ran it and why.
type Moved struct {
	Command  string `json:"command"`
	Operator string `json:"operator"`
	Reason   string `json:"reason"`
}

// Replayed is the part of commitInfo that names the records of one partition which a replay of dead letters has made
// rows.
type Replayed struct {
	Cluster   string      `json:"cluster,omitempty"`
	Topic     string      `json:"topic"`
	TopicID   string      `json:"topic_id"` // "-" if it is unknown
	Partition int32       `json:"partition"`
	Offsets   offsets.Set `json:"offsets"` // the offsets as text, such as "12-15,20"
}

// MaxReplayed is the largest number of dead letters that one commit may name in [Commit.Replayed].
const MaxReplayed = 50_000

// Source returns the partition of the records; false if r names none.
func (r Replayed) Source() (Partition, bool) {
	id, err := idempotency.ParseTopicID(r.TopicID)
	if err != nil || r.Topic == "" || r.Partition < 0 {
		return Partition{}, false
	}
	return Partition{Cluster: r.Cluster, Topic: r.Topic, TopicID: id, ID: r.Partition}, true
}

// AnyPartition in [RowsOf] stands for all partitions of a topic.
const AnyPartition int32 = -1

// RowsOf selects rows of a table by the topic and partition in their Kafka columns.
type RowsOf struct {
	Topic     string
	Partition int32 // one partition, or AnyPartition
}
