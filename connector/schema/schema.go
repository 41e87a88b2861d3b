// Package schema is the schema of a Delta table: parsed from DDL or from the table's log, compared, and converted to
// Arrow's. It is pure: it does no I/O.
//
// A schema holds every column of its table, even those of types that this version does not write. So reading a table
// never loses a column. [Schema.Written] is the part that rows are built for.
package schema

import (
	"encoding/json"
	"fmt"
	"iter"
	"slices"
	"strings"
)

// Kind is a type without its parameters: a struct without its fields, an array without its element, a decimal without
// its digits.
type Kind uint8

// The kinds of types: those that this version writes, and Other for all other types of Delta (timestamp_ntz, variant,
// maps whose keys are no strings, …).
const (
	Other     Kind = iota
	String         // UTF-8
	Long           // 64 bits, signed
	Integer        // 32 bits, signed
	Short          // 16 bits, signed
	Byte           // 8 bits, signed
	Double         // 64 bits
	Float          // 32 bits
	Decimal        // Precision digits, Scale of them after the point
	Boolean        //
	Date           // days since 1970-01-01
	Timestamp      // microseconds since 1970-01-01T00:00:00Z
	Binary         // bytes
	Struct
	Array
	Map // from strings
)

// deltaNames are the names of the kinds in Delta's schema JSON.
var deltaNames = [...]string{
	String: "string", Long: "long", Integer: "integer", Short: "short", Byte: "byte", Double: "double", Float: "float",
	Decimal: "decimal", Boolean: "boolean", Date: "date", Timestamp: "timestamp", Binary: "binary", Struct: "struct",
	Array: "array", Map: "map",
}

// String returns Delta's name of the kind, "" for Other.
func (k Kind) String() string { return deltaNames[k] }

// Type is the type of a column, a struct field or a list element. Fields that its kind does not use are zero.
type Type struct {
	Kind   Kind
	Fields []Field // the fields of a Struct
	// Element is the type of the elements of an Array or of the values of a Map. ElementNullable is true if they may be
	// null. The keys of a Map are strings.
	Element         *Type
	ElementNullable bool
	// Precision is the number of digits of a Decimal, from 1 to MaxPrecision. Scale is how many of them are after the
	// point.
	Precision, Scale int
	// raw is the unchanged JSON of an Other type.
	raw json.RawMessage
}

// MaxPrecision is the largest number of digits of a decimal.
const MaxPrecision = 38

// Field is a column, or a field of a struct.
type Field struct {
	Name     string
	Type     Type
	Nullable bool
	// Metadata is the field's metadata as read, a JSON object. nil stands for an empty one.
	Metadata json.RawMessage
}

// Schema is the schema of a table. It is immutable: callers must not change what its methods return.
type Schema struct {
	fields     []Field
	partitions []string
}

// Fields returns all columns in order, even those that are not written.
func (s *Schema) Fields() []Field { return s.fields }

// Partitions returns the names of the columns by which the table is partitioned.
func (s *Schema) Partitions() []string { return s.partitions }

// WithPartitions returns the schema with these partition columns in place of the old ones.
func (s *Schema) WithPartitions(columns []string) *Schema {
	return &Schema{s.fields, slices.Clone(columns)}
}

// Has reports whether there is a column or struct field at a path of names, from the column down.
func (s *Schema) Has(path []string) bool {
	fields := s.fields
	for _, name := range path {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			return false
		}
		fields = fields[i].Type.Fields
	}
	return len(path) > 0
}

// Leaf is a column or struct field that is not a struct itself. An array or map is one leaf.
type Leaf struct {
	Path []string // names from the column down to the field
	Type Type
	// Written is false for a type that this version does not write; it leaves such columns null.
	Written bool
}

// Leaves yields the leaves in the order of the schema, which is the order in which Delta counts indexed columns
// (delta.dataSkippingNumIndexedCols).
func (s *Schema) Leaves() iter.Seq[Leaf] {
	return func(yield func(Leaf) bool) { leaves(s.fields, nil, yield) }
}

func leaves(fields []Field, above []string, yield func(Leaf) bool) bool {
	for _, f := range fields {
		path := append(slices.Clip(above), f.Name)
		if f.Type.Kind == Struct {
			if !leaves(f.Type.Fields, path, yield) {
				return false
			}
			continue
		}
		_, written := f.Type.written()
		if !yield(Leaf{path, f.Type, written}) {
			return false
		}
	}
	return true
}

// Written returns the schema of the columns that rows have. It leaves out columns of types that this version does not
// write: they read as null, so they must be nullable, which [Schema.Unsupported] checks. It also leaves out partition
// columns whose values are computed from other columns.
func (s *Schema) Written() *Schema {
	fields := slices.DeleteFunc(writtenFields(s.fields), s.computed)
	return &Schema{fields, slices.Clone(s.partitions)}
}

func writtenFields(fields []Field) []Field {
	var kept []Field
	for _, f := range fields {
		if t, ok := f.Type.written(); ok {
			f.Type = t
			kept = append(kept, f)
		}
	}
	return kept
}

// written returns the written part of a type. A struct without any written field is left out, because Parquet has no
// empty group. An array or map is written only if its element is written completely.
func (t Type) written() (Type, bool) {
	ok := t.Kind != Other
	if t.Kind == Struct {
		t.Fields = writtenFields(t.Fields)
		ok = len(t.Fields) > 0
	}
	if t.Kind == Array || t.Kind == Map {
		var element Type
		element, ok = t.Element.written()
		t.Element = &element
	}
	return t, ok
}

// String returns the type as DDL. Other types are shown as their JSON.
func (t Type) String() string {
	switch t.Kind {
	case String, Double, Float, Boolean, Date, Timestamp, Binary:
		return t.Kind.String()
	case Decimal:
		return fmt.Sprintf("decimal(%d,%d)", t.Precision, t.Scale)
	case Long:
		return "bigint"
	case Integer:
		return "int"
	case Short:
		return "smallint"
	case Byte:
		return "tinyint"
	case Struct:
		return "struct<" + joinDDL(t.Fields, ":") + ">"
	case Array:
		return "array<" + t.Element.String() + ">"
	case Map:
		return "map<string," + t.Element.String() + ">"
	case Other:
	}
	var name string
	if json.Unmarshal(t.raw, &name) == nil {
		return name
	}
	return string(t.raw)
}

// DDL returns the schema as [ParseDDL] reads it. It does not show whether list elements and map values may be null.
func (s *Schema) DDL() string { return joinDDL(s.fields, " ") }

func joinDDL(fields []Field, colon string) string {
	parts := make([]string, len(fields))
	for i, f := range fields {
		parts[i] = f.ddl(colon)
	}
	return strings.Join(parts, ", ")
}

// DDL returns the field as a column in the form that [ParseDDL] reads.
func (f Field) DDL() string { return f.ddl(" ") }

func (f Field) ddl(colon string) string {
	text := quoteName(f.Name) + colon + f.Type.String()
	if !f.Nullable {
		text += " not null"
	}
	if c := f.Comment(); c != "" {
		text += " comment " + quoteText(c)
	}
	return text
}

// Comment returns the field's comment, "" if it has none.
func (f Field) Comment() string {
	var m struct {
		Comment string `json:"comment"`
	}
	if f.Metadata == nil || json.Unmarshal(f.Metadata, &m) != nil {
		return ""
	}
	return m.Comment
}
