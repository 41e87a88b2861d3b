package lettercount

// Log is the range of offsets [Start, End) that Kafka has of a partition. The zero value means a partition that no
// member can read: its topic was deleted or created again, or it belongs to another cluster.
type Log struct{ Start, End int64 }

// Position is the table's position in a partition, and the offsets of the partition that Kafka has.
type Position struct {
	Next int64 // the next offset to read, 0 if the table has no position
	Log  Log
}

// Pending reports whether a dead letter about an offset is pending: the table is not past the record, and members can
// still read it.
func (p Position) Pending(offset int64) bool {
	return offset >= p.Next && offset >= p.Log.Start && offset < p.Log.End
}

// Counts reports whether a dead letter about an offset counts as unresolved. resolved says that an operator discarded
// or acknowledged it. row says that the table has a row with this offset and topic id; Counts uses row only if the
// table is past the record. A row at or after the position does not count, because the position was set back and the
// record may get another result.
func (p Position) Counts(offset int64, row, resolved bool) bool {
	if resolved || p.Pending(offset) {
		return false
	}
	return offset >= p.Next || !row
}
