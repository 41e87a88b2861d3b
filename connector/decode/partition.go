package decode

import (
	"encoding/binary"
	"fmt"
	"slices"

	"sluice/connector"
	"sluice/connector/schema"
)

// partitionSources are the columns from which the values of the table's partition columns come.
type partitionSources struct {
	texts     []*column // texts that are such values themselves
	times     []*column // dates and timestamps that are such values themselves, or whose days or hours are
	timestamp bool      // the timestamp of the record is one of times
	sorted    bool      // the table has partitions, by which rows are sorted
}

// set finds the columns of a table's expressions. A bucket takes any value, so its source does not count.
func (s *partitionSources) set(d *jsonDecoder, table *schema.Schema) error {
	expressions, err := table.Expressions()
	if err != nil {
		return err
	}
	s.sorted = len(expressions) > 0
	for _, e := range expressions {
		switch {
		case e.Function == schema.BucketOf:
			continue
		case e.Source == schema.KafkaTimestamp:
			s.timestamp = true
			continue
		}
		i := slices.IndexFunc(d.root.members, func(m member) bool { return m.name == e.Source })
		if i < 0 { // cannot happen: columns of the types that an expression takes are written
			return fmt.Errorf("column %s, by which the table is partitioned, is not filled", e.Source)
		}
		if c := d.root.members[i].column; c.kind == schema.String {
			s.texts = append(s.texts, c)
		} else if c.kind == schema.Date || c.kind == schema.Timestamp {
			s.times = append(s.times, c)
		}
	}
	return nil
}

// take returns false, after a call of fail, if a partition column cannot have a value of the record, which is in the row
// d.rows. Those values are the text that engines use for null; the empty text in a column that must not be null, because
// Delta stores it as null; and times outside of the years that readers know.
func (s *partitionSources) take(d *jsonDecoder, r *connector.Record) bool {
	refuse := func(c *column) bool {
		d.fail(BadPartition, 0)
		d.inColumn(c)
		return false
	}
	for _, c := range s.texts {
		text := c.textOf(d.rows)
		if string(text) == schema.NullPartition || !c.nullable && len(text) == 0 {
			return refuse(c)
		}
	}
	for _, c := range s.times {
		if !c.inYears(d.rows) {
			return refuse(c)
		}
	}
	if s.timestamp && r.Timestamp != noTimestamp && !schema.IsPartitionTime(r.Timestamp*1000) {
		return refuse(d.kafka.timestamp)
	}
	return true
}

// size returns the memory that sorting rows by partition takes.
func (s *partitionSources) size(rows int) int64 {
	if !s.sorted {
		return 0
	}
	return schema.SortedRowBytes * int64(rows)
}

// inYears reports whether the date or timestamp of a row is null, not written yet, or can be that of a partition.
func (c *column) inYears(row int) bool {
	switch {
	case row >= c.n:
		return true
	case c.kind == schema.Date:
		return schema.IsPartitionDate(int32(binary.LittleEndian.Uint32(c.fixed[row*c.width:]))) //nolint:gosec // the bits of the number
	}
	return schema.IsPartitionTime(int64(binary.LittleEndian.Uint64(c.fixed[row*c.width:]))) //nolint:gosec // as above
}
