package connector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/classify"
	"sluice/idempotency"
)

// Partition is Kafka's partition with the identity of its topic and cluster.
type Partition = idempotency.Partition

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

// All returns the partitions of a topic.
func (t Topic) All() []Partition {
	all := make([]Partition, len(t.Partitions))
	for i, id := range t.Partitions {
		all[i] = Partition{Cluster: t.Cluster, Topic: t.Name, TopicID: t.ID, ID: id}
	}
	return all
}
