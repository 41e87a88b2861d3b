package schema

import (
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
)

// Arrow returns the Arrow schema of the written columns: timestamps in microseconds UTC, list elements named
// "element" as in Parquet's three-level lists, keys and values of maps named "key" and "value".
//
// The arrays of a batch may differ in one way: a string column, at any depth, may be an Arrow dictionary with int32
// indices, and a different dictionary in each batch.
func (s *Schema) Arrow() *arrow.Schema {
	return arrow.NewSchema(ArrowFields(s.Written().fields), nil)
}

// FileArrow returns the Arrow schema of data files: that of the rows without the partition columns, whose values are in
// the log.
func (s *Schema) FileArrow() *arrow.Schema {
	fields := slices.DeleteFunc(s.Written().fields, func(f Field) bool { return slices.Contains(s.partitions, f.Name) })
	return arrow.NewSchema(ArrowFields(fields), nil)
}

// ArrowFields returns the Arrow fields of columns that are written.
func ArrowFields(fields []Field) []arrow.Field {
	list := make([]arrow.Field, len(fields))
	for i, f := range fields {
		list[i] = arrow.Field{Name: f.Name, Type: arrowType(f.Type), Nullable: f.Nullable}
	}
	return list
}

func arrowType(t Type) arrow.DataType {
	switch t.Kind {
	case String:
		return arrow.BinaryTypes.String
	case Long:
		return arrow.PrimitiveTypes.Int64
	case Integer:
		return arrow.PrimitiveTypes.Int32
	case Short:
		return arrow.PrimitiveTypes.Int16
	case Byte:
		return arrow.PrimitiveTypes.Int8
	case Double:
		return arrow.PrimitiveTypes.Float64
	case Float:
		return arrow.PrimitiveTypes.Float32
	case Decimal:
		return &arrow.Decimal128Type{Precision: int32(t.Precision), Scale: int32(t.Scale)} //nolint:gosec // at most MaxPrecision
	case Boolean:
		return arrow.FixedWidthTypes.Boolean
	case Date:
		return arrow.FixedWidthTypes.Date32
	case Timestamp:
		return arrow.FixedWidthTypes.Timestamp_us
	case Binary:
		return arrow.BinaryTypes.Binary
	case Struct:
		return arrow.StructOf(ArrowFields(t.Fields)...)
	case Array:
		return arrow.ListOfField(arrow.Field{Name: "element", Type: arrowType(*t.Element), Nullable: t.ElementNullable})
	case Map:
		return arrow.MapOfFields(arrow.Field{Name: "key", Type: arrow.BinaryTypes.String},
			arrow.Field{Name: "value", Type: arrowType(*t.Element), Nullable: t.ElementNullable})
	case Other:
	}
	panic("schema: Arrow type of a column that is not written")
}
