package lookup

import (
	"context"
	"errors"
	"slices"
	"strings"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/health/lettercount"
	"sluice/idempotency"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/scan"
)

// apart is the smallest distance between two offsets for which AddPlace begins a new range. The scan then leaves out
// the records in between.
const apart = 100_000

// AddPlace adds an offset to the ranges that a scan will read. It extends the last range if that is of the same
// partition and ends less than [apart] before the offset; otherwise it begins a new range. The caller adds the offsets
// of a topic id in ascending order; if the next topic id has lower ones, they get a new range.
func AddPlace(all []scan.Where, topic string, partition int32, offset int64) []scan.Where {
	if n := len(all); n > 0 && all[n-1].Topic == topic && all[n-1].Partition == partition && all[n-1].From <= offset && offset-all[n-1].Next < apart {
		all[n-1].Next = max(all[n-1].Next, offset+1)
		return all
	}
	return append(all, scan.Where{Topic: topic, Partition: partition, From: offset, Next: offset + 1})
}

// Owner says whether a row was made from a record of a certain partition with a certain topic id.
type Owner int8

// The values of Owner.
const (
	OtherRow   Owner = iota // the row is of another topic id
	ItsRow                  // the row is of the partition
	UnknownRow              // the row has no topic id, and the table has positions of several
)

// OwnerOf returns whether a row is of partition p or of a partition with the same name and another topic id. only is
// the result of [HasItsRows] for p: if it is true, a row without a topic id is of p, otherwise it is unknown.
func OwnerOf(row scan.Place, p idempotency.Partition, only bool) Owner {
	switch {
	case row.Topic != p.Topic || row.Partition != p.ID:
		return OtherRow
	case row.TopicID != "" && p.TopicID != (idempotency.TopicID{}):
		if row.TopicID == p.TopicID.String() {
			return ItsRow
		}
		return OtherRow
	case only:
		return ItsRow
	}
	return UnknownRow
}

// HasItsRows reports whether all rows of a topic name in a table belong to the topic id of p, also those without a topic
// id: the table must have positions of this topic id and of no other one with the name.
func HasItsRows(state *deltalog.State, p idempotency.Partition) bool {
	return OnlyItsRows(state.Txns, p)
}

// OnlyItsRows is [HasItsRows] for a map whose keys are the appIds of the table's txns; it does not use the values.
func OnlyItsRows[T any](txns map[string]T, p idempotency.Partition) bool {
	known := false
	for appID := range txns {
		id, err := idempotency.ParseAppID(appID)
		if err != nil || id.TableID != "" || id.Partition.Topic != p.Topic {
			continue
		}
		if id.Partition.Cluster != p.Cluster || id.Partition.TopicID != p.TopicID {
			return false
		}
		known = true
	}
	return known
}

// TopicIDs returns the clusters and topic ids, as one text, for which a table has positions of a topic name.
func TopicIDs(state *deltalog.State, topic string) string {
	var ids []string
	for appID := range state.Txns {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.TableID == "" && id.Partition.Topic == topic {
			ids = append(ids, id.Partition.Cluster+"/"+id.Partition.TopicID.String())
		}
	}
	slices.Sort(ids)
	return strings.Join(slices.Compact(ids), " ")
}

// Logs has the state in Kafka of partitions with dead letters.
type Logs struct {
	Known  map[idempotency.Partition]lettercount.Log
	Gone   map[idempotency.Partition]string // for each partition that members can no longer read, the reason
	Failed map[idempotency.Partition]error  // the error of the request for each partition that could not be read
}

// Position returns the position of a partition and its log bounds. next is the position in the table, 0 without one.
// The bounds are zero if they are not known; then no dead letter is pending.
func (l *Logs) Position(p idempotency.Partition, next int64) lettercount.Position {
	return lettercount.Position{Next: next, Log: l.Known[p]}
}

// FindLogs fetches the log bounds of partitions of one topic from Kafka. It returns an error if the cluster does not
// respond; failures of single partitions are in the result. find is the method Topics of a [kafka.Client].
func FindLogs(ctx context.Context, find func(context.Context, ...string) (map[string]connector.Topic, map[string]error, error), log *kafka.Log,
	partitions []idempotency.Partition,
) (*Logs, error) {
	l := &Logs{Known: map[idempotency.Partition]lettercount.Log{}, Gone: map[idempotency.Partition]string{}, Failed: map[idempotency.Partition]error{}}
	if len(partitions) == 0 {
		return l, nil
	}
	name := partitions[0].Topic
	found, refused, err := find(ctx, name)
	if err != nil {
		return nil, err
	}
	if why := refused[name]; why != nil {
		for _, p := range partitions {
			l.Failed[p] = why
		}
		return l, nil
	}
	topic, there := found[name]
	var at []connector.Position
	for _, p := range partitions {
		if why := whyGone(p, topic, there); why != "" {
			l.Gone[p] = why
			continue
		}
		at = append(at, connector.Position{Partition: p, Next: -1, Epoch: -1})
	}
	if len(at) == 0 {
		return l, nil
	}
	bounds, err := log.Bounds(ctx, at)
	var unread *connector.UnreadError
	if err != nil && !errors.As(err, &unread) {
		return nil, err
	}
	for _, of := range at {
		p := of.Partition
		switch b, known := bounds[p]; {
		case known:
			l.Known[p] = lettercount.Log{Start: b.LogStart, End: b.HighWatermark}
		case unread != nil && unread.Causes[p] != nil:
			l.Failed[p] = unread.Causes[p]
		default:
			l.Gone[p] = createdAgain
		}
	}
	return l, nil
}

const createdAgain = "the topic was created again before the position passed the record, which cannot be read any more"

// whyGone returns the reason why members can no longer read a partition, "" if they can. topic is the topic that has
// this name now; there is false if none has.
func whyGone(p idempotency.Partition, topic connector.Topic, there bool) string {
	switch {
	case p.TopicID == idempotency.TopicID{}:
		return "the dead letter has no topic id: another program wrote it"
	case !there:
		return "the topic does not exist any more, so the record cannot be read"
	case topic.Cluster != p.Cluster:
		return "the record is of cluster " + p.Cluster + ", which is not the one that is read"
	case topic.ID != p.TopicID:
		return createdAgain
	case !slices.Contains(topic.Partitions, p.ID):
		return "the topic has no such partition"
	}
	return ""
}
