package connector

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

// Partition is Kafka's partition with the identity of its topic and cluster.
type Partition = idempotency.Partition

// The interfaces below are all that the story needs from the world. They are declared here, beside the code that calls
// them, and implemented by the adapters: Group and Log by connector/kafka, Decoder by connector/decode, Table by
// sink/delta. Errors carry a class ([sluice/classify]); an error that must hold partitions is a [hold.Error].

// Group divides the partitions of the configured topics among the members. It divides work and fences nothing: that a
// partition is read by one member at a time is an economy, never a guarantee.
type Group interface {
	// Run joins the group, delivers each new assignment and leaves when ctx ends. It mends what it can and returns only
	// at the end of ctx or on a Fatal error. deliver must not block for long: the heartbeats of a generation go on, the
	// next join waits.
	Run(ctx context.Context, deliver func(Assignment)) error
	// Offsets returns the group's committed offsets of a topic, by the name of the topic (Kafka knows no other).
	// Partitions without one are missing. Needs no membership.
	Offsets(ctx context.Context, topic string) (map[int32]GroupOffset, error)
	// CommitOffsets moves group offsets. They are a hint for tools; an error is logged and tried again at the next turn.
	// Fenced when the member has no generation now.
	CommitOffsets(ctx context.Context, offsets map[Partition]GroupOffset) error
}

// Assignment is what this member should work on, all of it, replacing the assignment before.
type Assignment struct {
	// Joined is false from the end of a generation to the next one; Partitions then keeps the claims of the last
	// generation, which go on: the table's log is the fence.
	Joined     bool
	Partitions []Partition
	// Appeared are the topics among them that did not exist when the group looked for the first time. All of their
	// records came after the start, so they begin at the first one, even if others begin at their end.
	Appeared []string
}

// GroupOffset is a committed offset of the group: the next offset to read and the leader epoch of the record batch
// before it (-1 unknown), which is kept in the offset's metadata.
type GroupOffset struct {
	Next  int64
	Epoch int32
}

// Log reads partitions. Every call may be made from another goroutine than the one that receives Fetched.
type Log interface { //nolint:interfacebloat // three that read, three questions about what there is to read
	// Fetch asks once for committed records from an offset on. The answer comes on Fetched, with the session of the
	// request, as soon as there is a record batch, a control batch to pass or an error that concerns the position.
	// Transient errors (connections, leader moves) are mended inside with jittered back-off and never answered.
	// A second request for a partition replaces the first.
	Fetch(FetchRequest)
	// Forget ends a request. An answer that is already on its way may still come.
	Forget(Partition)
	// Fetched is where answers arrive. It is never closed.
	Fetched() <-chan Fetched
	// Topic returns the topic as it is now, from the cluster's metadata. A missing topic is a [hold.Error] with
	// hold.TopicMissing.
	Topic(ctx context.Context, name string) (Topic, error)
	// Bounds asks the leaders for the ends of partitions. A partition whose topic id is no longer the topic's is left out.
	// An epoch >= 0 also asks whether the log was truncated below the position (KIP-320). A negative Next asks for the ends
	// alone. With an error it returns what could be learnt; an [UnreadError] names what could not, while the cluster answers.
	Bounds(ctx context.Context, partitions []Position) (map[Partition]Bounds, error)
	// OffsetsAt asks the leaders for the first committed record of each partition whose timestamp is not before at. A
	// partition without such a record is left out, and so is one whose topic id is no longer the topic's.
	OffsetsAt(ctx context.Context, partitions []Partition, at time.Time) (map[Partition]int64, error)
}

// Topic is a topic as the cluster's metadata show it.
type Topic struct {
	Cluster    string
	Name       string
	ID         idempotency.TopicID
	Partitions []int32 // ascending
}

// Position is the next offset to read of a partition, and the leader epoch of the record batch before it (-1 unknown).
type Position struct {
	Partition Partition
	Next      int64
	Epoch     int32
}

// Bounds are the ends of a partition's log.
type Bounds struct {
	LogStart      int64
	LastStable    int64 // where a reader of committed records ends
	HighWatermark int64
	LeaderEpoch   int32
	// DivergedAt is where the log of the leader parts from what was read: the position is beyond it. -1 if it does not.
	DivergedAt int64
}

// UnreadError says why [Log.Bounds] could not learn the ends of some partitions, though the cluster answers: a partition has
// no leader, or its leader does not answer or refuses.
type UnreadError struct {
	// Causes are [hold.Error]s, or errors that pass. There is at least one.
	Causes map[Partition]error
}

// Error names the first of the partitions, with its cause, and how many there are.
func (e *UnreadError) Error() string {
	p := e.first()
	return fmt.Sprintf("the ends of %d partitions cannot be learnt: %v: %v", len(e.Causes), p, e.Causes[p])
}

// Unwrap returns the cause that Error names.
func (e *UnreadError) Unwrap() error { return e.Causes[e.first()] }

// first is a partition whose cause passes, if there is one.
func (e *UnreadError) first() Partition {
	all := slices.SortedFunc(maps.Keys(e.Causes), Partition.Compare)
	for _, p := range all {
		if classify.Of(e.Causes[p]) == classify.Transient {
			return p
		}
	}
	return all[0]
}

// FetchRequest asks for the records of one partition.
type FetchRequest struct {
	Position
	// Session comes back with the answer, so that one of an earlier life of the claim is known.
	Session uint64
}

// Fetched is the answer for one partition.
type Fetched struct {
	Partition Partition
	Session   uint64
	From      int64 // the offset that was asked for
	Bounds    Bounds
	// Next is the offset after the last record batch, control and aborted ones included. Epoch is that batch's.
	Next  int64
	Epoch int32
	// Records holds the committed records before Next, nil if there are none.
	Records Records
	Bytes   int // of memory that Records hold
	// Err is a hold.Error: the partition cannot be read from this position. Records before the place come first.
	Err error
}

// Records are the records of one answer, parsed as they are read. The bytes of a record stay valid and unwritten until
// Release.
type Records interface {
	// Read parses the next records into block, which it fills from the start. It returns 0 and io.EOF at the end, and
	// n > 0 with an error for those before a damaged one; that error is a hold.Error with hold.CorruptBatch.
	Read(block []Record) (n int, err error)
	// Release gives the memory of the answer back, from any goroutine, once. No record of it may be touched afterwards,
	// nor its keys, values and headers.
	Release()
}

// Record is a Kafka record. Key and Value are nil if they are null.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970, by the producer or the broker
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is a header of a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Decoder turns records into rows. One exists for each table.
type Decoder interface {
	// Builder makes the columns for one lane. An error means that no row of this schema can be built (a hold.Error
	// with hold.SchemaConflict).
	Builder(Schema) (Builder, error)
}

// Builder fills the columns of one chunk after the other. It belongs to one lane.
type Builder interface { //nolint:interfacebloat // what goes in, what comes out, and four numbers about it
	// Add appends the record as one row. A Poison error leaves the chunk as it was; its text says what is wrong and
	// where, never with bytes of the record. ErrChunkFull asks for Seal and says nothing of the record.
	Add(Partition, *Record) error
	// Rows and Bytes tell what Seal would return; Bytes counts the column buffers.
	Rows() int
	Bytes() int64
	// Held is what the chunk that fills takes in memory now, its unused capacity included; 0 before its first row.
	Held() int64
	// Seal returns the rows and starts the next chunk. The caller releases them. nil if there are none.
	Seal() arrow.RecordBatch
	// Sealed is what the rows of the last Seal take in memory.
	Sealed() int64
	// Ignored returns the fields that Add ignored since the last call, because the schema does not have them.
	Ignored() Ignored
}

// Identifier is a [Builder] of rows that have an identity, if the table declares one.
type Identifier interface {
	// Entries are those of the rows of the last Seal, one for each: nil if the table declares no identity. The caller owns
	// them.
	Entries() []idempotency.Entry
}

// ErrChunkFull says that a chunk has no room for one more row of this size.
var ErrChunkFull = errors.New("chunk is full")

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

// Recaller is a [Table] that can read the fingerprints of its rows. Called by the table's writer alone.
type Recaller interface {
	// Recall prepares to read, as of a snapshot that this table returned. An error is a hold.Error: the table has no such
	// column.
	Recall(s *Snapshot, q Recall) (Reading, error)
}

// Reading reads what was prepared, on any goroutine, once. It yields every row that was asked for, and possibly others.
// Failures of the store are retried inside until ctx ends. Its error is a hold.Error or Canceled, or that of each.
type Reading func(ctx context.Context, each func(Recalled) error) error

// Recall says which rows to read: those of any of the claims at offsets [From, Next) that are not older than Since, in
// milliseconds since 1970.
type Recall struct {
	Identity idempotency.Identity
	Claims   map[Partition]Span
	Since    int64
	IDs      bool // set the producer's ids of the entries, too, where the table has them
}

// Recalled are some rows of a partition, in no order. Written is when their file was, in milliseconds. Entries stay valid
// until the call returns.
type Recalled struct {
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

// Schema is the schema of a table, opaque to the story; connector/schema implements it and holds what can be asked.
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
