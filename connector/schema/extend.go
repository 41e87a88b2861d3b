package schema

import (
	"fmt"
	"slices"
	"strings"
)

// Extended returns the schema of a table that has every column of s and takes rows of add as well. It appends the
// columns, struct fields and fields of list elements and map values that s lacks, and makes those nullable that are nullable in add.
// It changes and drops nothing else: types, order and metadata of the columns of s stay. Columns of add whose types are
// not written count for nothing, since no row has them.
//
// The result is s itself if s takes the rows of add already. Otherwise it does not depend, except for the order of the
// added columns, on the order in which a schema is extended by two others.
//
// The error is a hold.Error with hold.SchemaConflict that names the column. The causes are another type, a NOT NULL
// column that only one of the two has, a name that differs from that of a column of s in case only, and other table
// partitions.
func (s *Schema) Extended(add *Schema) (*Schema, error) {
	if s == add {
		return s, nil
	}
	if err := s.partitionsFit(add); err != nil {
		return nil, err
	}
	fields, changed, err := extendFields(s.fields, writtenFields(add.fields), "")
	switch {
	case err != nil:
		return nil, err
	case !changed:
		return s, nil
	}
	return &Schema{fields, s.partitions}, nil
}

// extendFields returns the table's fields, extended by those of add. changed is false if they are the table's fields
// unchanged. above is the path of the struct that the fields are in, "" for columns.
func extendFields(table, add []Field, above string) (fields []Field, changed bool, err error) {
	fields = slices.Clone(table)
	at := make(map[string]int, len(table)) // by the name in lower case, as Delta compares names
	for i, f := range table {
		at[strings.ToLower(f.Name)] = i
	}
	found := slices.Repeat([]bool{false}, len(table))
	for _, a := range add {
		path := above + a.Name
		i, ok := at[strings.ToLower(a.Name)]
		switch {
		case !ok && !a.Nullable:
			return nil, false, conflict("column %s is not null in schema and not in the table, whose rows have no value for it: remove not null, or remove it from schema", path)
		case !ok:
			at[strings.ToLower(a.Name)] = len(fields)
			fields, found, changed = append(fields, a), append(found, true), true
			continue
		case fields[i].Name != a.Name:
			return nil, false, conflict("column %s and the table's column %s%s differ in case only, which Delta does not allow: use the table's name in schema, or another one",
				path, above, fields[i].Name)
		}
		found[i] = true
		f := &fields[i]
		if a.Nullable && !f.Nullable {
			f.Nullable, changed = true, true
		}
		t, inside, err := extendType(f.Type, a.Type, path)
		if err != nil {
			return nil, false, err
		}
		if inside {
			f.Type, changed = t, true
		}
	}
	for i, f := range table { // in the order of the table, so that equal schemas give equal errors
		if !found[i] && !f.Nullable {
			return nil, false, missing(above + f.Name)
		}
	}
	return fields, changed, nil
}

func extendType(table, add Type, path string) (t Type, changed bool, err error) {
	switch {
	case table.Kind != add.Kind, table.Precision != add.Precision, table.Scale != add.Scale:
		return table, false, retyped(path, table, add)
	case table.Kind == Struct:
		table.Fields, changed, err = extendFields(table.Fields, add.Fields, path+".")
		return table, changed, err
	case table.Element == nil:
		return table, false, nil
	}
	element, changed, err := extendType(*table.Element, *add.Element, path+inside(table.Kind))
	if add.ElementNullable && !table.ElementNullable {
		table.ElementNullable, changed = true, true
	}
	table.Element = &element
	return table, changed, err
}

// missing is the conflict of a NOT NULL column of the table for which rows have no value.
func missing(path string) error {
	return conflict("column %s is NOT NULL in the table and not in schema: add it to schema, or drop the NOT NULL in the table", path)
}

// retyped is the conflict of a column that has another type in the table than in the rows.
func retyped(path string, table, rows Type) error {
	why := "a column cannot change its type, see docs/schema.md"
	switch {
	case table.widensTo(rows):
		why = fmt.Sprintf("widening a column needs a Delta feature (typeWidening) that this version does not write; write %s in schema, rewrite the table, or continue in a new one, see docs/schema.md", table)
	case rows.widensTo(table):
		why = fmt.Sprintf("write %s in schema, which takes every value of %s, see docs/schema.md", table, rows)
	}
	return conflict("column %s is %s in the table and %s in schema: %s", path, table, rows, why)
}

// widensTo reports whether a number of type t has the same value in the larger type.
func (t Type) widensTo(larger Type) bool {
	integers := []Kind{Byte, Short, Integer, Long}
	from, to := slices.Index(integers, t.Kind), slices.Index(integers, larger.Kind)
	switch {
	case from >= 0 && to >= 0:
		return from < to
	case larger.Kind == Double:
		return t.Kind == Float || from >= 0 && t.Kind != Long
	}
	return false
}

// Changes are the differences between the schema of a table and what [Schema.Extended] has made of it.
type Changes struct {
	// Added are the columns and fields that only the newer schema has. Their names are paths, such as "s.x" and
	// "l[].x"; a field within an added column is part of it.
	Added []Field
	// Relaxed are the paths of those that were NOT NULL and are nullable now, with "l[]" for the elements of a list.
	Relaxed []string
}

// Equal reports whether two schemas have the same columns, in the same order, with the same metadata.
func (s *Schema) Equal(other *Schema) bool {
	return s == other || slices.Equal(s.partitions, other.partitions) && s.DeltaJSON() == other.DeltaJSON()
}

// None reports whether there is no change.
func (c Changes) None() bool { return len(c.Added)+len(c.Relaxed) == 0 }

// Names returns the paths of the added columns.
func (c Changes) Names() []string {
	names := make([]string, len(c.Added))
	for i, f := range c.Added {
		names[i] = f.Name
	}
	return names
}

// Columns returns the added columns with their types: "channel string", "s.x int".
func (c Changes) Columns() []string {
	columns := make([]string, len(c.Added))
	for i, f := range c.Added {
		columns[i] = f.Name + " " + f.Type.String()
	}
	return columns
}

// List returns the added columns with their types, and those that become nullable as "item null".
func (c Changes) List() []string {
	list := c.Columns()
	for _, path := range c.Relaxed {
		list = append(list, path+" null")
	}
	return list
}

// String returns the list as one text.
func (c Changes) String() string { return strings.Join(c.List(), ", ") }

// ChangesTo returns what was added and relaxed from s to an extended schema, in the order of that schema.
func (s *Schema) ChangesTo(extended *Schema) (c Changes) {
	if s != extended {
		fieldChanges(&c, s.fields, extended.fields, "")
	}
	return c
}

// fieldChanges appends to c what was added and relaxed among fields; above is the path of the struct that they are in.
func fieldChanges(c *Changes, table, extended []Field, above string) {
	before := make(map[string]Field, len(table))
	for _, f := range table {
		before[f.Name] = f
	}
	for _, f := range extended {
		old, ok := before[f.Name]
		f.Name = above + f.Name
		if !ok {
			c.Added = append(c.Added, f)
			continue
		}
		if f.Nullable && !old.Nullable {
			c.Relaxed = append(c.Relaxed, f.Name)
		}
		typeChanges(c, old.Type, f.Type, f.Name)
	}
}

func typeChanges(c *Changes, table, extended Type, path string) {
	switch {
	case table.Kind == Struct && extended.Kind == Struct:
		fieldChanges(c, table.Fields, extended.Fields, path+".")
	case table.Element != nil && extended.Element != nil:
		path += inside(table.Kind)
		if extended.ElementNullable && !table.ElementNullable {
			c.Relaxed = append(c.Relaxed, path)
		}
		typeChanges(c, *table.Element, *extended.Element, path)
	}
}
