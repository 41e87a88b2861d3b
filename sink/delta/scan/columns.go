package scan

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
)

// column is a column of the query, resolved in the table's schema.
type column struct {
	path []string
	typ  arrow.DataType
	// partitioned is true for a partition column: data files lack it, and the log has its value for each file.
	partitioned bool
}

func (c column) name() string { return strings.Join(c.path, ".") }

// newColumns finds the columns of a query in the schema of the table.
func newColumns(m deltalog.Metadata, paths [][]string) ([]column, error) {
	if len(paths) == 0 {
		return nil, errors.New("scan: no columns are asked for")
	}
	table, err := schema.FromDelta([]byte(m.SchemaString))
	if err != nil {
		return nil, unsupported("its schema cannot be read: %v", err)
	}
	columns := make([]column, len(paths))
	for i, path := range paths {
		c := column{path: path, partitioned: len(path) == 1 && slices.Contains(m.PartitionColumns, path[0])}
		t, err := typeOf(table.Fields(), path)
		if err != nil {
			return nil, err
		}
		if c.typ, err = arrowType(t); err != nil {
			return nil, unsupported("column %s is %s: %v", c.name(), t, err)
		}
		columns[i] = c
	}
	return columns, nil
}

// typeOf returns the type of the column at path, which leads from fields down through structs. The error names the part
// of the path that does not exist.
func typeOf(fields []schema.Field, path []string) (schema.Type, error) {
	for depth, name := range path {
		i := slices.IndexFunc(fields, func(f schema.Field) bool { return f.Name == name })
		if i < 0 {
			return schema.Type{}, unsupported("it has no column %s", strings.Join(path[:depth+1], "."))
		}
		if depth == len(path)-1 {
			return fields[i].Type, nil
		}
		fields = fields[i].Type.Fields
	}
	return schema.Type{}, errors.New("scan: a column without a name is asked for")
}

// arrowType returns the Arrow type in which [Run] returns a column, or an error for a type that a query cannot read.
func arrowType(t schema.Type) (arrow.DataType, error) {
	switch t.Kind {
	case schema.String:
		return arrow.BinaryTypes.String, nil
	case schema.Long:
		return arrow.PrimitiveTypes.Int64, nil
	case schema.Integer:
		return arrow.PrimitiveTypes.Int32, nil
	case schema.Short:
		return arrow.PrimitiveTypes.Int16, nil
	case schema.Byte:
		return arrow.PrimitiveTypes.Int8, nil
	case schema.Double:
		return arrow.PrimitiveTypes.Float64, nil
	case schema.Float:
		return arrow.PrimitiveTypes.Float32, nil
	case schema.Boolean:
		return arrow.FixedWidthTypes.Boolean, nil
	case schema.Date:
		return arrow.FixedWidthTypes.Date32, nil
	case schema.Timestamp:
		return arrow.FixedWidthTypes.Timestamp_us, nil
	case schema.Binary:
		return arrow.BinaryTypes.Binary, nil
	case schema.Other:
		if t.String() == "timestamp_ntz" {
			return &arrow.TimestampType{Unit: arrow.Microsecond}, nil
		}
	case schema.Decimal, schema.Struct, schema.Array, schema.Map:
	}
	return nil, errors.New("this version does not read columns of this type one by one")
}

// appendConstant appends the value of a partition column n times. The protocol stores values as text ("Partition
// Value Serialization"); "" and null are null.
func appendConstant(b array.Builder, value *string, n int) error {
	if value == nil || *value == "" {
		b.AppendNulls(n)
		return nil
	}
	text := *value
	var err error
	var number int64
	var double float64
	var at time.Time
	switch b := b.(type) {
	case *array.StringBuilder:
		times(n, func() { b.Append(text) })
	case *array.BinaryBuilder:
		times(n, func() { b.AppendString(text) })
	case *array.Int64Builder:
		number, err = strconv.ParseInt(text, 10, 64)
		times(n, func() { b.Append(number) })
	case *array.Int32Builder:
		number, err = strconv.ParseInt(text, 10, 32)
		times(n, func() { b.Append(int32(number)) }) //nolint:gosec // parsed as 32 bits
	case *array.Int16Builder:
		number, err = strconv.ParseInt(text, 10, 16)
		times(n, func() { b.Append(int16(number)) }) //nolint:gosec // parsed as 16 bits
	case *array.Int8Builder:
		number, err = strconv.ParseInt(text, 10, 8)
		times(n, func() { b.Append(int8(number)) }) //nolint:gosec // parsed as 8 bits
	case *array.Float64Builder:
		double, err = strconv.ParseFloat(text, 64)
		times(n, func() { b.Append(double) })
	case *array.Float32Builder:
		double, err = strconv.ParseFloat(text, 32)
		times(n, func() { b.Append(float32(double)) })
	case *array.BooleanBuilder:
		var yes bool
		yes, err = strconv.ParseBool(strings.ToLower(text))
		times(n, func() { b.Append(yes) })
	case *array.Date32Builder:
		at, err = time.Parse(time.DateOnly, text)
		times(n, func() { b.Append(arrow.Date32FromTime(at)) })
	case *array.TimestampBuilder:
		var ok bool
		if at, ok = parseTime(text); !ok {
			err = errors.New("not a timestamp")
		}
		times(n, func() { b.Append(arrow.Timestamp(at.UnixMicro())) })
	default:
		err = fmt.Errorf("no column of %s is partitioned by", b.Type())
	}
	return err
}

func times(n int, do func()) {
	for range n {
		do()
	}
}

// timeLayouts are the forms in which engines write timestamps into logs, as statistics and as partition values.
var timeLayouts = []string{
	"2006-01-02T15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999",
	"2006-01-02 15:04:05.999999999Z07:00", "2006-01-02 15:04:05.999999999 -0700 MST",
}

// parseTime parses a timestamp of a log; one without a zone is in UTC. It returns false if the text has none of
// timeLayouts.
func parseTime(text string) (time.Time, bool) {
	for _, layout := range timeLayouts {
		if at, err := time.Parse(layout, text); err == nil {
			return at.UTC(), true
		}
	}
	return time.Time{}, false
}

// parseNumber parses an integer of the statistics in a log. It returns false for any other JSON.
func parseNumber(raw json.RawMessage) (int64, bool) {
	n, err := strconv.ParseInt(string(raw), 10, 64)
	return n, err == nil
}

// builders are the columns of the batch that is being filled.
type builders struct {
	schema *arrow.Schema
	of     []array.Builder
}

func newBuilders(mem memory.Allocator, columns []column) *builders {
	fields := make([]arrow.Field, len(columns))
	of := make([]array.Builder, len(columns))
	for i, c := range columns {
		fields[i] = arrow.Field{Name: c.name(), Type: c.typ, Nullable: true}
		of[i] = array.NewBuilder(mem, c.typ)
	}
	return &builders{arrow.NewSchema(fields, nil), of}
}

// batch returns the appended rows and resets the builders.
func (b *builders) batch(rows int64) arrow.RecordBatch {
	arrays := make([]arrow.Array, len(b.of))
	for i, builder := range b.of {
		arrays[i] = builder.NewArray()
		defer arrays[i].Release()
	}
	return array.NewRecordBatch(b.schema, arrays, rows)
}

func (b *builders) release() {
	for _, builder := range b.of {
		builder.Release()
	}
}
