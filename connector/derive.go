package connector

import "slices"

// Derive says what a member that resumed the partition now would hold it for, from the table and Kafka alone, or nil.
// offsets are the group's of the topic, bounds those that Kafka knows of; a partition without bounds is gone. A partition
// that the table does not know and may START is no hold. rows says that the table has rows of the topic: see
// [Table.HasRows]. Nothing is changed, so tools may ask.
func Derive(s *Snapshot, pipeline string, p Partition, offsets map[int32]GroupOffset, bounds map[Partition]Bounds, rows bool) *Hold {
	w := &writer{pipeline: pipeline, snapshot: s}
	if detail := Replaced(s, pipeline); detail != "" {
		return &Hold{Partition: p, Reason: ReasonTableReplaced, Detail: detail, Offset: -1}
	}
	if next, known := s.Positions[p.AppID(pipeline)]; known {
		b, there := bounds[p]
		return finding(Position{Partition: p, Next: next, Epoch: -1}, b, there)
	}
	known := history(s, p.Topic)
	late := slices.ContainsFunc(known, func(h past) bool { return w.same(h, p) })
	if reason, detail := w.judgePast(p, known, offsets, late, []Partition{p}); reason != "" {
		return &Hold{Partition: p, Reason: reason, Detail: detail, Offset: -1}
	}
	if rows && !late {
		return &Hold{Partition: p, Reason: ReasonUnknownHistory, Detail: rowsDetail(p.Topic), Offset: -1}
	}
	return nil
}
