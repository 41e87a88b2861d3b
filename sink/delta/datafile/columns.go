package datafile

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// kind is how the values of a column are compared and encoded.
type kind uint8

const (
	kindBool      kind = iota
	kindInt            // integers of 8 to 64 bits, signed
	kindDate           // dates: days since 1970
	kindTimestamp      // timestamps: microseconds since 1970
	kindFloat          // floats of 32 or 64 bits
	kindDecimal
	kindString
	kindBinary
	kindStruct
	kindList
	kindMap
)

// columns is the schema of the written files, as a tree of columns. It is immutable.
type columns struct {
	sc     *arrow.Schema
	root   []*column
	leaves []leaf // the columns of the Parquet file, in its order
	bounds int    // number of columns with a stat
	// absent are the names of columns that rows may have and files do not: partition columns.
	absent []string
	// indexed is true if Delta's statistics in the log include any column.
	indexed bool
}

// leaf is a Parquet column.
type leaf struct {
	path string
	kind kind
	// column is the column with the bounds of this leaf. It is nil below lists and maps, which have no bounds.
	column *column
	// unique is false if another leaf has the same dotted path, such as a column `a.b` beside a struct a with a field
	// b. The Parquet writer finds its options by that path.
	unique bool
}

// column is a column, a field of a struct, or the element of a list. A map has one child, a struct of key and value,
// as in Arrow and Parquet.
type column struct {
	name     string
	path     string // dotted path, for error texts
	key      []byte // name as a JSON string
	typ      arrow.DataType
	kind     kind
	nullable bool
	children []*column
	leaf     int // index in leaves; -1 for structs, lists and maps
	stat     int // index of the column's stat; -1 for structs and for columns below lists and maps
	// statistics are those of a leaf, an array or a map.
	statistics Statistics
}

func newColumns(sc *arrow.Schema, statistics func(path []string) Statistics) (*columns, error) {
	if sc.NumFields() == 0 {
		return nil, errors.New("data file: a schema without columns")
	}
	c := &columns{sc: sc}
	var err error
	if c.root, err = c.fields(sc.Fields(), "", false); err != nil {
		return nil, err
	}
	pq, err := pqarrow.ToParquet(sc, writerProperties(nil, nil), pqarrow.DefaultWriterProps())
	if err != nil {
		return nil, fmt.Errorf("data file: %w", err)
	}
	c.namePaths(pq)
	c.selectStatistics(c.root, nil, statistics)
	return c, nil
}

func (c *columns) namePaths(pq *schema.Schema) {
	seen := map[string]int{}
	for i := range c.leaves {
		l := &c.leaves[i]
		l.path = pq.Column(i).Path()
		first, again := seen[l.path]
		l.unique = !again
		if again {
			c.leaves[first].unique = false
		}
		seen[l.path] = i
	}
}

// selectStatistics sets the statistics of the leaves among the columns of one level; above is the path of that level.
func (c *columns) selectStatistics(list []*column, above []string, of func(path []string) Statistics) {
	for _, col := range list {
		path := append(slices.Clip(above), col.name)
		if col.kind == kindStruct {
			c.selectStatistics(col.children, path, of)
			continue
		}
		col.statistics = of(path)
		c.indexed = c.indexed || col.statistics == InLogAndFooter
	}
}

func (c *columns) fields(list []arrow.Field, above string, repeated bool) ([]*column, error) {
	var out []*column
	seen := map[string]bool{}
	for _, f := range list {
		if seen[f.Name] {
			return nil, fmt.Errorf("data file: two columns %s%s", above, f.Name)
		}
		seen[f.Name] = true
		col, err := c.column(f, above+f.Name, repeated)
		if err != nil {
			return nil, err
		}
		out = append(out, col)
	}
	return out, nil
}

func (c *columns) column(f arrow.Field, path string, repeated bool) (*column, error) {
	k, ok := kindOf(f.Type)
	if !ok {
		return nil, fmt.Errorf("data file: column %s has type %s, which is not written", path, f.Type)
	}
	col := &column{
		name: f.Name, path: path, key: jsonString(nil, []byte(f.Name)),
		typ: f.Type, kind: k, nullable: f.Nullable, leaf: -1, stat: -1,
	}
	if k != kindStruct && !repeated {
		col.stat = c.bounds
		c.bounds++
	}
	var err error
	switch t := f.Type.(type) {
	case *arrow.StructType:
		if t.NumFields() == 0 {
			return nil, fmt.Errorf("data file: column %s is a struct without fields, which Parquet has not", path)
		}
		col.children, err = c.fields(t.Fields(), path+".", repeated)
	case *arrow.ListType:
		var element *column
		element, err = c.column(t.ElemField(), path+"[]", true)
		col.children = []*column{element}
	case *arrow.MapType:
		entries := arrow.Field{Name: "key_value", Type: arrow.StructOf(t.KeyField(), t.ItemField())}
		var element *column
		element, err = c.column(entries, path+"{}", true)
		col.children = []*column{element}
	default:
		col.leaf = len(c.leaves)
		l := leaf{kind: k}
		if !repeated {
			l.column = col
		}
		c.leaves = append(c.leaves, l)
	}
	return col, err
}

// kindOf returns the kind of a type that can be written: Delta has it, and the Parquet writer stores its values
// exactly. It returns false for any other type.
func kindOf(t arrow.DataType) (kind, bool) {
	switch t := t.(type) {
	case *arrow.BooleanType:
		return kindBool, true
	case *arrow.Int8Type, *arrow.Int16Type, *arrow.Int32Type, *arrow.Int64Type:
		return kindInt, true
	case *arrow.Date32Type:
		return kindDate, true
	case *arrow.TimestampType:
		return kindTimestamp, t.Unit == arrow.Microsecond
	case *arrow.Float32Type, *arrow.Float64Type:
		return kindFloat, true
	case *arrow.Decimal128Type:
		return kindDecimal, t.Scale >= 0 && t.Scale <= t.Precision && t.Precision > 0
	case *arrow.StringType:
		return kindString, true
	case *arrow.BinaryType:
		return kindBinary, true
	case *arrow.StructType:
		return kindStruct, true
	case *arrow.ListType:
		return kindList, true
	case *arrow.MapType:
		return kindMap, true
	}
	return 0, false
}

// takes reports whether arrays of type t fit the column: the same type, or a dictionary of it. Struct fields and
// nullability are checked elsewhere.
func (c *column) takes(t arrow.DataType) bool {
	if d, ok := t.(*arrow.DictionaryType); ok {
		return (c.kind == kindString || c.kind == kindBinary) && d.ValueType.ID() == c.typ.ID()
	}
	if t.ID() != c.typ.ID() {
		return false
	}
	switch t := t.(type) {
	case *arrow.TimestampType:
		want := c.typ.(*arrow.TimestampType)
		return t.Unit == want.Unit && (t.TimeZone == "") == (want.TimeZone == "")
	case *arrow.Decimal128Type:
		want := c.typ.(*arrow.Decimal128Type)
		return t.Precision == want.Precision && t.Scale == want.Scale
	}
	return true
}

// jsonString appends s as a JSON string. The caller must pass valid UTF-8.
func jsonString(b, s []byte) []byte {
	var buf bytes.Buffer
	enc := json.NewEncoder(&buf)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(string(s)); err != nil {
		panic("datafile: a string as JSON: " + err.Error()) // cannot happen: strings can always be encoded
	}
	return append(b, bytes.TrimRight(buf.Bytes(), "\n")...)
}
