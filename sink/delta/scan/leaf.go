package scan

import (
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	pq "github.com/apache/arrow-go/v18/parquet/schema"
)

// leafIndex returns the index of a column outside of lists and maps, -1 if the file lacks it.
func leafIndex(columns *pq.Schema, path []string) int {
	for i := range columns.NumColumns() {
		if slices.Equal(columns.Column(i).ColumnPath(), path) {
			return i
		}
	}
	return -1
}

// findLeaf returns the index of a column in a file. It returns -1 if the file lacks the column: it was added to the
// table later, and is null in this file. It is an error if the file has a group of columns in its place.
func findLeaf(columns *pq.Schema, c column) (int, error) {
	if i := leafIndex(columns, c.path); i >= 0 {
		return i, nil
	}
	for i := range columns.NumColumns() {
		if at := columns.Column(i).ColumnPath(); len(at) > len(c.path) && slices.Equal(at[:len(c.path)], c.path) {
			return -1, unsound("column %s is a group of columns there", c.name())
		}
	}
	return -1, nil
}

// timeUnit is the unit of timestamps in a file.
type timeUnit int64

const (
	millis timeUnit = iota
	micros
	nanos
)

// micros converts to microseconds, rounding down; ok is false if the result overflows.
func (u timeUnit) micros(v int64) (int64, bool) {
	switch u {
	case millis:
		return v * 1000, v >= math.MinInt64/1000 && v <= math.MaxInt64/1000
	case nanos:
		return floorDiv(v, 1000), true
	case micros:
	}
	return v, true
}

func floorDiv(v, by int64) int64 {
	q := v / by
	if v%by < 0 {
		q--
	}
	return q
}

// unitOf returns the unit of a column of timestamps. It returns false if the column has another type, or a unit that is
// not known.
func unitOf(c *pq.Column) (timeUnit, bool) {
	t, ok := c.LogicalType().(pq.TimestampLogicalType)
	if !ok {
		if p, isPointer := c.LogicalType().(*pq.TimestampLogicalType); isPointer {
			t, ok = *p, true
		}
	}
	if !ok {
		return 0, false
	}
	switch t.TimeUnit() {
	case pq.TimeUnitMillis:
		return millis, true
	case pq.TimeUnitMicros:
		return micros, true
	case pq.TimeUnitNanos:
		return nanos, true
	case pq.TimeUnitUnknown:
	}
	return 0, false
}

// leaf reads one column of one row group into a builder. It decodes values first and copies them into the builder later
// (take), so that their size is known before the copy.
type leaf struct {
	name string
	defs []int16
	rows int // number of rows that the last call of decode has decoded
	took int // number of them that were taken, from the first on

	decode func() error         // decodes the next rows, all of one page, and sets rows to their number; 0 at the end
	fits   func(room int64) int // number of decoded rows whose texts fit into room bytes, at least 1
	take   func(n int) (bytes int64, err error)
	end    func() error
}

// maxDecoded is the number of rows that are decoded of a column at a time.
const maxDecoded = 1024

// have returns how many decoded rows can be taken so that their texts fit into room bytes, at least 1. If all decoded
// rows were taken, it decodes more. It is an error if the column has no more rows.
func (l *leaf) have(room int64) (int, error) {
	if l.took == l.rows {
		if err := l.decode(); err != nil {
			return 0, unsound("column %s: %v", l.name, err)
		}
		if l.rows == 0 {
			return 0, unsound("column %s ends too early", l.name)
		}
	}
	return l.fits(room), nil
}

// typed is a column of a row group with values of one physical type.
type typed[P any] interface {
	ReadBatchInPage(n int64, values []P, defs, reps []int16) (rows int64, read int, err error)
	Err() error
}

// pour makes l read values of the physical type P; it returns false if the column has another type. null and add append
// to the builder. add returns false for a value that the table's column cannot hold.
func pour[P any](l *leaf, from file.ColumnChunkReader, null func(), add func(P) bool) bool {
	r, ok := from.(typed[P])
	if !ok {
		return false
	}
	values, next := make([]P, maxDecoded), 0 // values[next:] are decoded and not yet taken
	deepest := from.Descriptor().MaxDefinitionLevel()
	valid := func(i int) bool { return deepest == 0 || l.defs[i] == deepest }
	l.decode = func() error {
		rows, read, err := r.ReadBatchInPage(maxDecoded, values, l.defs, nil)
		if err == nil {
			err = r.Err()
		}
		l.rows, l.took, next = int(rows), 0, 0
		if err != nil {
			return err
		}
		for i := range l.rows {
			if valid(i) {
				read--
			}
		}
		if read != 0 {
			return errors.New("there are more or fewer values than it says")
		}
		return nil
	}
	l.fits = func(int64) int { return l.rows - l.took }
	texts, _ := any(values).([]parquet.ByteArray)
	if texts != nil {
		l.fits = func(room int64) int {
			at := next
			for i := l.took; i < l.rows; i++ {
				if !valid(i) {
					continue
				}
				if room -= int64(len(texts[at])); room < 0 {
					return max(i-l.took, 1)
				}
				at++
			}
			return l.rows - l.took
		}
	}
	l.take = func(n int) (bytes int64, err error) {
		for range n {
			if valid(l.took) {
				if !add(values[next]) {
					return 0, unsound("column %s: a value is out of the column's range", l.name)
				}
				if texts != nil {
					bytes += int64(len(texts[next]))
				}
				next++
			} else {
				null()
			}
			l.took++
		}
		return bytes, nil
	}
	return true
}

// newLeaf returns the reader of a column of a row group into a builder of the table's type.
func newLeaf(c column, from file.ColumnChunkReader, into array.Builder) (*leaf, error) {
	l := &leaf{name: c.name(), defs: make([]int16, maxDecoded), end: from.Close}
	if !l.connect(from, into) {
		d := from.Descriptor()
		return nil, unsound("column %s is %s %s, which is no %s of the table", l.name, d.PhysicalType(), d.LogicalType(), c.typ)
	}
	return l, nil
}

func (l *leaf) connect(from file.ColumnChunkReader, into array.Builder) bool {
	d := from.Descriptor()
	switch b := into.(type) {
	case *array.StringBuilder:
		return pour(l, from, b.AppendNull, func(v parquet.ByteArray) bool { b.BinaryBuilder.Append(v); return true })
	case *array.BinaryBuilder:
		return pour(l, from, b.AppendNull, func(v parquet.ByteArray) bool { b.Append(v); return true }) ||
			pour(l, from, b.AppendNull, func(v parquet.FixedLenByteArray) bool { b.Append(v); return true })
	case *array.BooleanBuilder:
		return pour(l, from, b.AppendNull, func(v bool) bool { b.Append(v); return true })
	case *array.Float64Builder:
		return pour(l, from, b.AppendNull, func(v float64) bool { b.Append(v); return true }) ||
			pour(l, from, b.AppendNull, func(v float32) bool { b.Append(float64(v)); return true }) ||
			plain(d) && pour(l, from, b.AppendNull, func(v int32) bool { b.Append(float64(v)); return true })
	case *array.Float32Builder:
		return pour(l, from, b.AppendNull, func(v float32) bool { b.Append(v); return true })
	case *array.TimestampBuilder:
		return l.timestamps(from, b)
	case *array.Date32Builder:
		return pour(l, from, b.AppendNull, func(v int32) bool { b.Append(arrow.Date32(v)); return true })
	case *array.Int64Builder:
		return plain(d) && (pour(l, from, b.AppendNull, func(v int64) bool { b.Append(v); return true }) ||
			pour(l, from, b.AppendNull, func(v int32) bool { b.Append(int64(v)); return true }))
	case *array.Int32Builder:
		return plain(d) && pour(l, from, b.AppendNull, func(v int32) bool { b.Append(v); return true })
	case *array.Int16Builder:
		return plain(d) && pour(l, from, b.AppendNull, func(v int32) bool {
			b.Append(int16(v)) //nolint:gosec // checked by the caller
			return v >= math.MinInt16 && v <= math.MaxInt16
		})
	case *array.Int8Builder:
		return plain(d) && pour(l, from, b.AppendNull, func(v int32) bool {
			b.Append(int8(v)) //nolint:gosec // checked by the caller
			return v >= math.MinInt8 && v <= math.MaxInt8
		})
	}
	return false
}

// plain reports whether the numbers of a column are plain numbers, not dates, times or decimals.
func plain(d *pq.Column) bool {
	switch t := d.LogicalType().(type) {
	case nil, pq.NoLogicalType, *pq.NoLogicalType, pq.UnknownLogicalType, *pq.UnknownLogicalType:
		return true
	case pq.IntLogicalType:
		return t.IsSigned()
	case *pq.IntLogicalType:
		return t.IsSigned()
	}
	return false
}

// timestamps makes l read timestamps of any unit, with or without a zone: in a Delta table all of them are in UTC. It
// returns false if the column has no such type.
func (l *leaf) timestamps(from file.ColumnChunkReader, b *array.TimestampBuilder) bool {
	if pour(l, from, b.AppendNull, func(v parquet.Int96) bool {
		at, ok := int96Micros(v)
		b.Append(arrow.Timestamp(at))
		return ok
	}) {
		return true
	}
	unit, ok := unitOf(from.Descriptor())
	return ok && pour(l, from, b.AppendNull, func(v int64) bool {
		at, ok := unit.micros(v)
		b.Append(arrow.Timestamp(at))
		return ok
	})
}

// int96Micros converts a timestamp of Spark's older form to microseconds. The form is eight bytes with the nanoseconds
// of the day, then the Julian day. It returns false if the day is so far away that the result may overflow.
func int96Micros(v parquet.Int96) (int64, bool) {
	const epoch = 2440588 // the Julian day of 1970-01-01
	const day = int64(24 * time.Hour / time.Microsecond)
	inDay := floorDiv(int64(binary.LittleEndian.Uint64(v[:8])), 1000) //nolint:gosec // writers store a signed number there
	days := int64(int32(binary.LittleEndian.Uint32(v[8:]))) - epoch   //nolint:gosec // the same
	return days*day + inDay, days > -1e8 && days < 1e8
}
