package connector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// Partition is Kafka's partition together with the identity of its topic and cluster.
type Partition = idempotency.Partition

// Group divides the partitions of the configured topics among the members. It only divides work; it fences nothing.
// Two members may read the same partition at the same time, and the table stays correct.
type Group interface {
	// Run joins the group, delivers each new assignment, and leaves the group when ctx ends. It retries transient
	// errors itself and returns only when ctx ends or on a Fatal error. deliver must return quickly: heartbeats
	// continue while it runs, but the next join waits.
	Run(ctx context.Context, deliver func(Assignment)) error
	// Offsets returns the group's committed offsets of a topic by partition, without the partitions that have none. It
	// takes the topic's name and not its id, because Kafka stores offsets by name. It works without membership, too.
	Offsets(ctx context.Context, topic string) (map[int32]GroupOffset, error)
	// CommitOffsets writes the group's committed offsets. They are a hint for tools: the caller logs an error and
	// retries at the next interval. The error is Fenced if the member has no current generation.
	CommitOffsets(ctx context.Context, offsets map[Partition]GroupOffset) error
}

// Assignment is the complete set of partitions that this member works on. It replaces the previous assignment.
type Assignment struct {
	// Joined is true during a generation of the group. It is false between two generations; then Partitions has the
	// claims of the last one. The member continues to work on these: if another member has them now, the table's
	// precondition fences this one.
	Joined     bool
	Partitions []Partition
	// Appeared lists the topics among Partitions that did not exist when the group first read the metadata. All of
	// their records came after the start, so they are read from their first record, even if the start policy is
	// latest.
	Appeared []string
}

// GroupOffset is a committed offset of the group: the next offset to read, and the leader epoch of the record batch
// before it (-1 if unknown), which Kafka stores in the offset's metadata.
type GroupOffset struct {
	Next  int64
	Epoch int32
}

// Log reads partitions. All methods may be called from goroutines other than the one that receives from Fetched.
type Log interface { //nolint:interfacebloat // three methods read records, three ask about topics and offsets
	// Fetch requests the committed records from an offset on, once. The result arrives on Fetched, with the session
	// of the request, as soon as there is a record batch, a control batch to pass, or an error about the position.
	// Transient errors (connections, leader changes) are retried inside with jittered back-off and never returned.
	// A second request for the same partition replaces the first.
	Fetch(FetchRequest)
	// Forget cancels the request for a partition. A result that is already on its way may still arrive.
	Forget(Partition)
	// Fetched is the channel of fetch results. It is never closed.
	Fetched() <-chan Fetched
	// Topic returns the topic from the cluster's current metadata. For a missing topic the error is a [hold.Error]
	// with hold.TopicMissing.
	Topic(ctx context.Context, name string) (Topic, error)
	// Bounds asks the leaders for the first and last offsets of partitions. It leaves out a partition whose topic has
	// another id now. If a position has Epoch >= 0, Bounds also checks whether the log was truncated below the position
	// (KIP-320). If its Next is negative, Bounds checks nothing. Together with an error, Bounds returns the bounds that
	// it could read; an [UnreadError] names the partitions that it could not read although the cluster answers.
	Bounds(ctx context.Context, partitions []Position) (map[Partition]Bounds, error)
	// OffsetsAt asks the leaders for the first committed record of each partition whose timestamp is not before the
	// time at, and returns its offset. It leaves out partitions without such a record, and partitions whose topic has
	// another id now.
	OffsetsAt(ctx context.Context, partitions []Partition, at time.Time) (map[Partition]int64, error)
}

// Topic is a topic as the cluster's metadata describe it.
type Topic struct {
	Cluster    string
	Name       string
	ID         idempotency.TopicID
	Partitions []int32 // ascending
}

// Position is the next offset to read of a partition, and the leader epoch of the record batch before it (-1 if
// unknown).
type Position struct {
	Partition Partition
	Next      int64
	Epoch     int32
}

// Bounds are the first and last offsets of a partition's log.
type Bounds struct {
	LogStart      int64
	LastStable    int64 // the end of what a read_committed consumer sees
	HighWatermark int64
	LeaderEpoch   int32
	// DivergedAt is the offset, below the position, from which the leader's log differs from the log that was read; -1
	// if no difference is known.
	DivergedAt int64
}

// Unreadable returns the hold reason if reading cannot continue at position next, "" if it can. b must be what
// [Log.Bounds] returned for this same position, because DivergedAt depends on it.
func (b Bounds) Unreadable(next int64) hold.Reason {
	switch {
	case next < b.LogStart:
		return hold.BehindLogStart
	case next > b.HighWatermark:
		return hold.AheadOfLogEnd
	case b.DivergedAt >= 0 && b.DivergedAt < next:
		return hold.Truncated
	}
	return ""
}

// UnreadError says why [Log.Bounds] could not read the bounds of some partitions although the cluster answers: a
// partition has no leader, or its leader does not respond or refuses.
type UnreadError struct {
	// Causes are [hold.Error]s or transient errors, by partition. There is at least one.
	Causes map[Partition]error
}

// Error names one of the partitions with its cause, and the number of partitions.
func (e *UnreadError) Error() string {
	p := e.first()
	return fmt.Sprintf("failed to read the log ends of %d partitions, among them %v: %v", len(e.Causes), p, e.Causes[p])
}

// Unwrap returns the cause that Error names.
func (e *UnreadError) Unwrap() error { return e.Causes[e.first()] }

// first returns the first partition whose cause is transient; if there is none, the first partition of all. So the
// error stays transient as long as one cause may end by itself.
func (e *UnreadError) first() Partition {
	all := slices.SortedFunc(maps.Keys(e.Causes), Partition.Compare)
	for _, p := range all {
		if classify.Of(e.Causes[p]) == classify.Transient {
			return p
		}
	}
	return all[0]
}

// FetchRequest asks for the records of one partition from a position on.
type FetchRequest struct {
	Position
	// Session is copied to the fetch result, so that the reader recognizes results of an older session.
	Session uint64
}

// Fetched is the fetch result of one partition.
type Fetched struct {
	Partition Partition
	Session   uint64
	From      int64 // the requested offset
	Bounds    Bounds
	// Next is the offset after the last record batch that was read, even if that has no committed records. Epoch is the
	// leader epoch of that batch.
	Next  int64
	Epoch int32
	// Records are the committed records before Next, nil if there are none.
	Records Records
	Bytes   int // the memory of Records, in bytes
	// Err is a [hold.Error] if the partition cannot be read at Next. Records still has the records before Next.
	Err error
}

// All returns every partition of the topic.
func (t Topic) All() []Partition {
	all := make([]Partition, len(t.Partitions))
	for i, id := range t.Partitions {
		all[i] = Partition{Cluster: t.Cluster, Topic: t.Name, TopicID: t.ID, ID: id}
	}
	return all
}
