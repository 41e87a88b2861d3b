package plan

import (
	"fmt"
	"maps"
	"slices"

	"sluice/connector"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// Past is a txn in the table that proves that a Sluice pipeline, this or another one, has worked on a topic.
type Past struct {
	appID string
	idempotency.AppID
}

// History returns all txns in the table for a topic of this name, under any pipeline, cluster or topic id.
func History(s *connector.Snapshot, topic string) []Past {
	var all []Past
	for _, appID := range slices.Sorted(maps.Keys(s.Positions)) {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.TableID == "" && id.Partition.Topic == topic {
			all = append(all, Past{appID, id})
		}
	}
	return all
}

// Replaced returns a text that explains it if another table has taken the place of the one that the pipeline wrote: the
// table has txns of the pipeline, but not the pipeline's mark with the present id of the table. Otherwise it returns
// "".
func Replaced(s *connector.Snapshot, pipeline string) string {
	if _, marked := s.Positions[idempotency.TableAppID(pipeline, s.TableID)]; marked {
		return ""
	}
	for appID := range s.Positions {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.Pipeline == pipeline {
			return fmt.Sprintf("pipeline %q wrote another table here; it did not start the one with id %s", pipeline, s.TableID)
		}
	}
	return ""
}

// Added reports whether a partition without a txn was added to a topic whose initial commit this pipeline already
// made, for this cluster and topic id.
func Added(p connector.Partition, known []Past, pipeline string) bool {
	return slices.ContainsFunc(known, func(h Past) bool {
		return h.Pipeline == pipeline && h.Partition.Cluster == p.Cluster && h.Partition.TopicID == p.TopicID
	})
}

// JudgePast says why a claim without a txn must not make its initial commit, or returns "". known is the [History] of
// its topic, offsets are the committed offsets of the group. It does not check the rows of the table: see [RowsBefore].
func JudgePast(p connector.Partition, s *connector.Snapshot, known []Past, offsets map[int32]connector.GroupOffset, pipeline string) (hold.Reason, string) {
	if Added(p, known, pipeline) {
		if o, ok := offsets[p.ID]; ok {
			return hold.UnknownHistory, fmt.Sprintf("the table has no position for %v, but the group has offset %d", p, o.Next)
		}
		return "", ""
	}
	for _, h := range known {
		switch {
		case h.Pipeline != pipeline:
		case h.Partition.Cluster != p.Cluster:
			return hold.ClusterChanged, fmt.Sprintf("the table was filled from cluster %q, this is %q", h.Partition.Cluster, p.Cluster)
		default:
			return hold.TopicRecreated, fmt.Sprintf("the table was filled from topic id %v, topic %q now has id %v", h.Partition.TopicID, p.Topic, p.TopicID)
		}
	}
	if len(known) > 0 {
		return hold.UnknownHistory, fmt.Sprintf("pipeline %q has written topic %q into this table", known[0].Pipeline, p.Topic)
	}
	if len(offsets) > 0 {
		detail := fmt.Sprintf("the table has no position for topic %q, but the group has offsets for %d of its partitions", p.Topic, len(offsets))
		if len(s.Positions) == 0 {
			detail += ": the table does not exist or is empty, so its folder was deleted, or another program has used the group"
		}
		return hold.UnknownHistory, detail
	}
	return "", ""
}

// Finding returns the hold for a position of the table that cannot be read from, nil if it can. Resumes and commands
// use it. It asks [connector.Bounds.Unreadable], as the adapter does for claims that are being read. there is false if
// Kafka has no such partition.
func Finding(at connector.Position, b connector.Bounds, there bool) *hold.Hold {
	holdAt := func(reason hold.Reason, format string, args ...any) *hold.Hold {
		return &hold.Hold{Partition: at.Partition, Reason: reason, Detail: fmt.Sprintf(format, args...), Offset: at.Next}
	}
	if !there {
		return holdAt(hold.TopicRecreated, "topic %q was deleted or created again; the table has position %d of topic id %v",
			at.Partition.Topic, at.Next, at.Partition.TopicID)
	}
	switch reason := b.Unreadable(at.Next); reason {
	case hold.BehindLogStart:
		return holdAt(reason, "offsets [%d, %d) were deleted before they were read", at.Next, b.LogStart)
	case hold.AheadOfLogEnd:
		return holdAt(reason, "the table's position is offset %d, but the log ends at %d", at.Next, b.HighWatermark)
	case hold.Truncated:
		return holdAt(reason, "the log was truncated: from offset %d on it differs from what was read", b.DivergedAt)
	default:
		return nil
	}
}

// RowsBefore returns which rows the table must not have, so that the partitions without a position may make their
// initial commit. For a topic of which no partition has a position, these are all rows of the topic. Otherwise they are
// only the rows of the partition itself. Positions of other partitions prove that the topic was started, but not that
// this partition is new, because its txn may have expired.
func RowsBefore(s *connector.Snapshot, pipeline, topic string, partitions []connector.Partition) (all []connector.RowsOf) {
	known := History(s, topic)
	for _, p := range partitions {
		if _, positioned := s.Positions[p.AppID(pipeline)]; !positioned {
			all = append(all, BlockingRows(p, Added(p, known, pipeline)))
		}
	}
	return slices.Compact(all)
}

// BlockingRows returns which rows the table must not have, so that a partition may make its initial commit. added is
// true if other partitions of its topic have positions: see [Added].
func BlockingRows(p connector.Partition, added bool) connector.RowsOf {
	if added {
		return connector.RowsOf{Topic: p.Topic, Partition: p.ID}
	}
	return connector.RowsOf{Topic: p.Topic, Partition: connector.AnyPartition}
}

// RowsDetail is the text for the operator if the table has such rows but no position: it says how to continue.
func RowsDetail(of connector.RowsOf) string {
	if of.Partition != connector.AnyPartition {
		return fmt.Sprintf("the table has rows of partition %d of topic %q and no position for it, so its records would become rows twice: "+
			"set its position with offsets set, to the largest _kafka_offset of these rows plus 1", of.Partition, of.Topic)
	}
	return fmt.Sprintf("the table has rows of topic %q and no position for it, so its records would become rows twice: take the "+
		"positions over with offsets adopt, or pause the topic, begin it with offsets start, correct it with offsets set, and resume it", of.Topic)
}

// CompareRows orders by topic, then by partition.
func CompareRows(a, b connector.RowsOf) int {
	return connector.Partition{Topic: a.Topic, ID: a.Partition}.Compare(connector.Partition{Topic: b.Topic, ID: b.Partition})
}

// Follows reports whether the table has any position of the pipeline. If so, the table as a whole has kept the
// pipeline's txns, although single ones may have expired.
func Follows(s *connector.Snapshot, pipeline string) bool {
	for appID := range s.Positions {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.Pipeline == pipeline && id.TableID == "" {
			return true
		}
	}
	return false
}

// Derive returns the hold that a partition would get if a member resumed it now, or nil if the member would read it. It
// uses only what the table and Kafka show, and changes nothing, so tools may call it.
//
// offsets are the group's committed offsets of the topic. bounds are the ends of the logs that Kafka returned; a
// partition that is missing there no longer exists. rows says which rows of [RowsBefore] the table has: see
// [connector.Table]. A partition without a position that may make its initial commit has no hold.
func Derive(s *connector.Snapshot, pipeline string, p connector.Partition, offsets map[int32]connector.GroupOffset, bounds map[connector.Partition]connector.Bounds, rows map[connector.RowsOf]bool) *hold.Hold {
	if detail := Replaced(s, pipeline); detail != "" {
		return &hold.Hold{Partition: p, Reason: hold.TableReplaced, Detail: detail, Offset: -1}
	}
	if next, positioned := s.Positions[p.AppID(pipeline)]; positioned {
		b, there := bounds[p]
		return Finding(connector.Position{Partition: p, Next: next, Epoch: -1}, b, there)
	}
	known := History(s, p.Topic)
	if reason, detail := JudgePast(p, s, known, offsets, pipeline); reason != "" {
		return &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: -1}
	}
	if of := BlockingRows(p, Added(p, known, pipeline)); rows[of] {
		return &hold.Hold{Partition: p, Reason: hold.UnknownHistory, Detail: RowsDetail(of), Offset: -1}
	}
	return nil
}
