package connector

import "sluice/reliability/hold"

// Derive says what a member that resumed the partition now would hold it for, from the table and Kafka alone, or nil.
// offsets are the group's of the topic, bounds those that Kafka knows of; a partition without bounds is gone. A partition
// that the table does not know and may START is no hold. rows are those of [RowsBefore] that the table has: see
// [Table.HasRows]. Nothing is changed, so tools may ask.
func Derive(s *Snapshot, pipeline string, p Partition, offsets map[int32]GroupOffset, bounds map[Partition]Bounds, rows map[RowsOf]bool) *hold.Hold {
	if detail := Replaced(s, pipeline); detail != "" {
		return &hold.Hold{Partition: p, Reason: hold.TableReplaced, Detail: detail, Offset: -1}
	}
	if next, positioned := s.Positions[p.AppID(pipeline)]; positioned {
		b, there := bounds[p]
		return finding(Position{Partition: p, Next: next, Epoch: -1}, b, there)
	}
	known := history(s, p.Topic)
	if reason, detail := judgePast(p, s, known, offsets, pipeline); reason != "" {
		return &hold.Hold{Partition: p, Reason: reason, Detail: detail, Offset: -1}
	}
	if of := rowsBefore(p, added(p, known, pipeline)); rows[of] {
		return &hold.Hold{Partition: p, Reason: hold.UnknownHistory, Detail: of.detail(), Offset: -1}
	}
	return nil
}
