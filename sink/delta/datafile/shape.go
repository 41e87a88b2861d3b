package datafile

import (
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// shape converts an array to the form that the Parquet writer needs for column c. On the way it fills the stats and
// the encodings of all leaves below it. above marks the rows whose enclosing struct has a value. The caller owns a
// reference to the result.
//
// Nested arrays are rebuilt around the values of their children, because of three faults of the Parquet writer. It
// takes the nullability of struct fields and elements from the array instead of the schema, it refuses null lists
// that have elements, and it crashes on dictionaries below lists without elements.
func (e *encoder) shape(c *column, a arrow.Array, above valid) (arrow.Array, error) {
	if !c.takes(a.DataType()) {
		return nil, fmt.Errorf("column %s is %s, the rows have %s", c.path, c.typ, a.DataType())
	}
	if d, ok := a.(*array.Dictionary); ok && !usable(d) {
		plain, err := withoutDictionary(d, above.and(d))
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.path, err)
		}
		defer plain.Release()
		a = plain
	}
	own := above.and(a)
	nulls := a.Len() - own.count(a.Len())
	if !c.nullable {
		if n := nulls - (a.Len() - above.count(a.Len())); n > 0 {
			return nil, fmt.Errorf("column %s must not be null, %d rows are", c.path, n)
		}
	}
	// A leaf below lists and maps has no entry in e.stats: its statistics are discarded.
	s := &stat{}
	if c.stat >= 0 {
		s = &e.stats[c.stat]
	}
	s.nulls = int64(nulls)
	switch c.kind {
	case kindStruct:
		return e.shapeStruct(c, a.(*array.Struct), own, nulls)
	case kindList:
		return e.shapeList(c, a.(*array.List), own, nulls)
	case kindMap:
		return e.shapeList(c, a.(*array.Map).List, own, nulls)
	case kindString, kindBinary:
		return e.shapeText(c, a, own, s)
	case kindFloat:
		e.choices[c.leaf] = e.chooseFloat(a, own)
	case kindBool, kindInt, kindDate, kindTimestamp, kindDecimal:
		e.choices[c.leaf] = choiceOf(c.kind)
	}
	if c.stat >= 0 || c.kind == kindDecimal { // decimals are also checked for their number of digits
		if err := s.values(a, own); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.path, err)
		}
	}
	if d, ok := a.(*array.Decimal128); ok && own != nil {
		// The Parquet writer writes a long decimal below a null struct as a value, unless the decimal itself is null.
		// So all rows that are not in own become null.
		values := memory.NewBufferBytes(arrow.Decimal128Traits.CastToBytes(d.Values()))
		return fromData(a.DataType(), a.Len(), []*memory.Buffer{own.buffer(), values}, nil, nulls), nil
	}
	a.Retain()
	return a, nil
}

func (e *encoder) shapeStruct(c *column, a *array.Struct, own valid, nulls int) (arrow.Array, error) {
	t := a.DataType().(*arrow.StructType)
	fields := make([]arrow.Field, len(c.children))
	data := make([]arrow.ArrayData, len(c.children))
	found := 0
	for i, child := range c.children {
		var values arrow.Array
		if at, ok := position(t.Fields(), i, child.name); ok {
			values = a.Field(at)
			values.Retain()
			found++
		} else {
			values = array.MakeArrayOfNull(memory.DefaultAllocator, child.typ, a.Len())
		}
		shaped, err := e.shape(child, values, own)
		values.Release()
		if err != nil {
			return nil, err
		}
		defer shaped.Release()
		fields[i] = arrow.Field{Name: child.name, Type: shaped.DataType(), Nullable: child.nullable}
		data[i] = shaped.Data()
	}
	if found < t.NumFields() {
		extra := unknown(t.Fields(), c.children)
		return nil, fmt.Errorf("column %s: the rows have a field that the table does not have: %s", c.path, extra)
	}
	return fromData(arrow.StructOf(fields...), a.Len(), []*memory.Buffer{own.buffer()}, data, nulls), nil
}

// position returns the index of the field with the given name, and false if there is none. at is the index where the
// field usually is; it is checked first.
func position(fields []arrow.Field, at int, name string) (int, bool) {
	if at < len(fields) && fields[at].Name == name {
		return at, true
	}
	for i, f := range fields {
		if f.Name == name {
			return i, true
		}
	}
	return 0, false
}

func unknown(fields []arrow.Field, known []*column) string {
	names := map[string]bool{}
	for _, c := range known {
		names[c.name] = true
	}
	for _, f := range fields {
		if !names[f.Name] {
			return f.Name
		}
		names[f.Name] = false // a second field with this name makes it ambiguous
	}
	return ""
}

// shapeList shapes a list, or a map, which Arrow stores as a list of structs of key and value.
func (e *encoder) shapeList(c *column, a *array.List, own valid, nulls int) (arrow.Array, error) {
	elements, offsets, err := presentElements(a, own)
	if err != nil {
		return nil, err
	}
	defer elements.Release()
	shaped, err := e.shape(c.children[0], elements, nil)
	if err != nil {
		return nil, err
	}
	defer shaped.Release()
	var t arrow.DataType
	if c.kind == kindMap {
		kv := shaped.DataType().(*arrow.StructType)
		t = arrow.MapOfFields(kv.Field(0), kv.Field(1))
	} else {
		t = arrow.ListOfField(arrow.Field{Name: "element", Type: shaped.DataType(), Nullable: c.children[0].nullable})
	}
	starts := memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets))
	return fromData(t, a.Len(), []*memory.Buffer{own.buffer(), starts}, []arrow.ArrayData{shaped.Data()}, nulls), nil
}

// presentElements returns the elements of the lists that are valid by own. It also returns the offsets of all lists in
// these elements; a list that is not valid is empty.
func presentElements(a *array.List, own valid) (arrow.Array, []int32, error) {
	n := a.Len()
	offsets := make([]int32, n+1)
	if n == 0 {
		return array.NewSlice(a.ListValues(), 0, 0), offsets, nil
	}
	old := a.Offsets()[a.Data().Offset():][:n+1]
	hidden := false // true if there are elements of a null list, or of a list below a null struct
	for i := range n {
		length := old[i+1] - old[i]
		if !own.has(i) && length != 0 {
			hidden, length = true, 0
		}
		offsets[i+1] = offsets[i] + length
	}
	if !hidden {
		return array.NewSlice(a.ListValues(), int64(old[0]), int64(old[n])), offsets, nil
	}
	var parts []arrow.Array
	own.runs(n, func(from, to int) {
		parts = append(parts, array.NewSlice(a.ListValues(), int64(old[from]), int64(old[to])))
	})
	if len(parts) == 0 {
		return array.NewSlice(a.ListValues(), 0, 0), offsets, nil
	}
	elements, err := concatenate(parts)
	return elements, offsets, err
}

// concatenate joins arrays into one and releases the given ones.
func concatenate(parts []arrow.Array) (arrow.Array, error) {
	defer func() {
		for _, p := range parts {
			p.Release()
		}
	}()
	if len(parts) == 1 {
		parts[0].Retain()
		return parts[0], nil
	}
	return array.Concatenate(parts, memory.DefaultAllocator)
}

// shapeText prefers dictionary arrays: the Parquet writer copies their indices, while it hashes every value of a
// plain array. Text that repeats too little keeps its plain form and gets another encoding.
func (e *encoder) shapeText(c *column, a arrow.Array, own valid, s *stat) (arrow.Array, error) {
	if d, ok := a.(*array.Dictionary); ok {
		used, err := usedEntries(d, own)
		if err == nil {
			err = s.values(d.Dictionary(), used)
		}
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.path, err)
		}
		e.choices[c.leaf] = choiceDictionary
		d.Retain()
		return d, nil
	}
	if d := e.share.dictionaries.encode(a, own); d != nil {
		if err := s.values(d.Dictionary(), nil); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.path, err)
		}
		e.choices[c.leaf] = choiceDictionary
		return d, nil
	}
	e.choices[c.leaf] = choiceOf(c.kind)
	if c.stat >= 0 {
		if err := s.values(a, own); err != nil {
			return nil, fmt.Errorf("column %s: %w", c.path, err)
		}
	}
	a.Retain()
	return a, nil
}

func (v valid) buffer() *memory.Buffer {
	if v == nil {
		return nil
	}
	return memory.NewBufferBytes(v)
}

func fromData(t arrow.DataType, n int, buffers []*memory.Buffer, children []arrow.ArrayData, nulls int) arrow.Array {
	data := array.NewData(t, n, buffers, children, nulls, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
