package datafile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// gather copies a column of the runs into one array of the column's type, without dictionaries. A column that a batch
// lacks is null there. at is the index where the column usually is.
func gather(c *column, at int, runs []rowRun) (arrow.Array, error) {
	b := array.NewBuilder(memory.DefaultAllocator, c.typ)
	defer b.Release()
	var of arrow.RecordBatch
	var values arrow.Array
	for _, run := range runs {
		if run.rows != of {
			of, values = run.rows, nil
			if i, ok := position(of.Schema().Fields(), at, c.name); ok {
				values = of.Column(i)
			}
			if values != nil && !c.takes(values.DataType()) {
				return nil, fmt.Errorf("column %s is %s, the rows have %s", c.path, c.typ, values.DataType())
			}
		}
		if values == nil {
			b.AppendNulls(run.to - run.from)
			continue
		}
		if err := appendRows(b, c, values, run.from, run.to); err != nil {
			return nil, err
		}
	}
	return b.NewArray(), nil
}

// appendRows appends rows of an array that the column takes.
func appendRows(b array.Builder, c *column, a arrow.Array, from, to int) error {
	if d, ok := a.(*array.Dictionary); ok {
		return appendEntries(b, c, d, from, to)
	}
	switch b := b.(type) {
	case *array.BooleanBuilder:
		appendEach(b, a.(*array.Boolean), from, to)
	case *array.Int8Builder:
		appendEach(b, a.(*array.Int8), from, to)
	case *array.Int16Builder:
		appendEach(b, a.(*array.Int16), from, to)
	case *array.Int32Builder:
		appendEach(b, a.(*array.Int32), from, to)
	case *array.Int64Builder:
		appendEach(b, a.(*array.Int64), from, to)
	case *array.Date32Builder:
		appendEach(b, a.(*array.Date32), from, to)
	case *array.TimestampBuilder:
		appendEach(b, a.(*array.Timestamp), from, to)
	case *array.Float32Builder:
		appendEach(b, a.(*array.Float32), from, to)
	case *array.Float64Builder:
		appendEach(b, a.(*array.Float64), from, to)
	case *array.Decimal128Builder:
		appendEach(b, a.(*array.Decimal128), from, to)
	case *array.StringBuilder:
		appendEach(b, a.(*array.String), from, to)
	case *array.BinaryBuilder:
		appendEach(b, a.(*array.Binary), from, to)
	case *array.StructBuilder:
		return appendStructs(b, c, a.(*array.Struct), from, to)
	case *array.ListBuilder:
		return appendLists(b, b.ValueBuilder(), c, a.(*array.List), from, to)
	case *array.MapBuilder:
		return appendMaps(b, c, a.(*array.Map), from, to)
	default:
		return fmt.Errorf("column %s: rows of %s cannot be gathered", c.path, a.DataType())
	}
	return nil
}

// appendEach appends rows one by one.
func appendEach[T any](b interface {
	Append(value T)
	AppendNull()
}, a interface {
	Value(row int) T
	IsNull(row int) bool
}, from, to int,
) {
	for row := from; row < to; row++ {
		if a.IsNull(row) {
			b.AppendNull()
		} else {
			b.Append(a.Value(row))
		}
	}
}

// appendEntries appends the texts of a dictionary array.
func appendEntries(b array.Builder, c *column, d *array.Dictionary, from, to int) error {
	for row := from; row < to; row++ {
		if d.IsNull(row) {
			b.AppendNull()
			continue
		}
		k := d.GetValueIndex(row)
		if k < 0 || k >= d.Dictionary().Len() {
			return fmt.Errorf("column %s: %w", c.path, errIndex)
		}
		if err := appendRows(b, c, d.Dictionary(), k, k+1); err != nil {
			return err
		}
	}
	return nil
}

func appendStructs(b *array.StructBuilder, c *column, a *array.Struct, from, to int) error {
	t := a.DataType().(*arrow.StructType)
	found := 0
	valid := make([]bool, 0, to-from)
	for row := from; row < to; row++ {
		valid = append(valid, a.IsValid(row))
	}
	b.AppendValues(valid) // its Append would also append null to the fields
	for i, child := range c.children {
		at, ok := position(t.Fields(), i, child.name)
		if !ok {
			b.FieldBuilder(i).AppendNulls(to - from)
			continue
		}
		found++
		values := a.Field(at)
		if !child.takes(values.DataType()) {
			return fmt.Errorf("column %s is %s, the rows have %s", child.path, child.typ, values.DataType())
		}
		for start := from; start < to; {
			end := start + 1
			for end < to && valid[end-from] == valid[start-from] {
				end++
			}
			if !valid[start-from] { // the field may have values there, which do not count
				b.FieldBuilder(i).AppendNulls(end - start)
			} else if err := appendRows(b.FieldBuilder(i), child, values, start, end); err != nil {
				return err
			}
			start = end
		}
	}
	if found < t.NumFields() {
		return fmt.Errorf("column %s: the rows have a field that the table does not have: %s", c.path, unknown(t.Fields(), c.children))
	}
	return nil
}

// listBuilder is a builder of lists or maps.
type listBuilder interface {
	Append(valid bool)
	AppendNull()
}

func appendLists(b listBuilder, elements array.Builder, c *column, a *array.List, from, to int) error {
	child := c.children[0]
	if values := a.ListValues(); !child.takes(values.DataType()) {
		return fmt.Errorf("column %s is %s, the rows have %s", child.path, child.typ, values.DataType())
	}
	for row := from; row < to; row++ {
		if a.IsNull(row) {
			b.AppendNull()
			continue
		}
		b.Append(true)
		start, end := a.ValueOffsets(row)
		if err := appendRows(elements, child, a.ListValues(), int(start), int(end)); err != nil {
			return err
		}
	}
	return nil
}

// appendMaps appends maps: lists of structs of key and value.
func appendMaps(b *array.MapBuilder, c *column, a *array.Map, from, to int) error {
	entries := c.children[0]
	pairs, ok := a.ListValues().(*array.Struct)
	if !ok || pairs.NumField() != 2 {
		return fmt.Errorf("column %s: a map without key and value", c.path)
	}
	for i, child := range entries.children {
		if values := pairs.Field(i); !child.takes(values.DataType()) {
			return fmt.Errorf("column %s is %s, the rows have %s", child.path, child.typ, values.DataType())
		}
	}
	for row := from; row < to; row++ {
		if a.IsNull(row) {
			b.AppendNull()
			continue
		}
		b.Append(true)
		start, end := a.ValueOffsets(row)
		if err := appendRows(b.KeyBuilder(), entries.children[0], pairs.Field(0), int(start), int(end)); err != nil {
			return err
		}
		if err := appendRows(b.ItemBuilder(), entries.children[1], pairs.Field(1), int(start), int(end)); err != nil {
			return err
		}
	}
	return nil
}

// rowSizes tells how many bytes the rows of a batch have when they are gathered: each row has its own copy of a text that
// a dictionary has once, and few large rows among many small ones count as large.
type rowSizes struct {
	fixed    int64 // bytes of each row in columns of a fixed width
	variable []func(row int) int64
}

func sizesOf(columns []arrow.Array) (s rowSizes) {
	for _, a := range columns {
		if of := lengthOf(a); of != nil {
			s.variable = append(s.variable, of)
		} else {
			s.fixed += fixedSize
		}
	}
	return s
}

func (s *rowSizes) of(row int) int64 {
	size := s.fixed
	for _, of := range s.variable {
		size += of(row)
	}
	return size
}

// fixedSize stands for the bytes of a number, an offset or a flag.
const fixedSize = 8

// lengthOf returns a function that returns the bytes of a row of an array, nil if all have fixedSize.
func lengthOf(a arrow.Array) func(row int) int64 {
	switch a := a.(type) {
	case *array.String:
		return func(row int) int64 { return fixedSize + int64(a.ValueLen(row)) }
	case *array.Binary:
		return func(row int) int64 { return fixedSize + int64(a.ValueLen(row)) }
	case *array.Dictionary:
		of := lengthOf(a.Dictionary())
		return func(row int) int64 {
			if a.IsNull(row) {
				return fixedSize
			}
			if k := a.GetValueIndex(row); of != nil && k >= 0 && k < a.Dictionary().Len() { // encoding reports other indices
				return of(k)
			}
			return fixedSize
		}
	case *array.Struct:
		fields := make([]arrow.Array, a.NumField())
		for i := range fields {
			fields[i] = a.Field(i)
		}
		s := sizesOf(fields)
		return s.of
	case array.ListLike: // also a map
		s := sizesOf([]arrow.Array{a.ListValues()})
		return func(row int) int64 {
			size := int64(fixedSize)
			for from, to := a.ValueOffsets(row); from < to; from++ {
				size += s.of(int(from))
			}
			return size
		}
	}
	return nil
}
