package schema

import (
	"encoding/json"
	"fmt"
	"strings"

	"sluice/connector"
	"sluice/reliability/hold"
)

var _ connector.Schema = (*Schema)(nil)

// Fits returns nil if rows built for another schema can be committed under this newer one. They can if the newer one
// only adds nullable columns, relaxes nullability, changes comments, or changes nullable columns of types that are not
// written. Otherwise the error is a hold.Error with hold.SchemaConflict that names the column and the change.
func (s *Schema) Fits(built connector.Schema) error {
	rows, ok := built.(*Schema)
	if !ok {
		return conflict("rows were built for a schema of another kind (%T)", built)
	}
	if s == rows {
		return nil
	}
	if err := s.partitionsFit(rows); err != nil {
		return err
	}
	return fieldsFit(s.fields, writtenFields(rows.fields), "")
}

// fieldsFit returns nil if rows with these fields can be committed to a table with those fields, else a conflict. above
// is the path of the struct that the fields are in, "" for columns.
func fieldsFit(table, rows []Field, above string) error {
	byName := make(map[string]Field, len(table))
	for _, f := range table {
		byName[f.Name] = f
	}
	for _, r := range rows {
		path := above + r.Name
		f, ok := byName[r.Name]
		switch {
		case !ok:
			return conflict("column %s is not in the table any more, and the rows have it", path)
		}
		delete(byName, r.Name)
		if r.Nullable && !f.Nullable {
			return conflict("column %s is NOT NULL in the table, and the rows may have null", path)
		}
		if err := typeFits(f.Type, r.Type, path); err != nil {
			return err
		}
	}
	for _, f := range table { // in the order of the table, so that equal schemas give equal errors
		if _, added := byName[f.Name]; added && !f.Nullable {
			return missing(above + f.Name)
		}
	}
	return nil
}

func typeFits(table, rows Type, path string) error {
	switch {
	case table.Kind != rows.Kind, table.Precision != rows.Precision, table.Scale != rows.Scale:
		return retyped(path, table, rows)
	case rows.Kind == Struct:
		return fieldsFit(table.Fields, rows.Fields, path+".")
	case rows.Element == nil:
		return nil
	case rows.ElementNullable && !table.ElementNullable:
		return conflict("%s of column %s are NOT NULL in the table, and the rows may have null", elements(rows.Kind), path)
	}
	return typeFits(*table.Element, *rows.Element, path+inside(rows.Kind))
}

// elements returns what the elements of an array or map are called.
func elements(k Kind) string {
	if k == Map {
		return "values"
	}
	return "elements"
}

// inside returns what follows the path of an array or map in the path of its elements.
func inside(k Kind) string {
	if k == Map {
		return "{}"
	}
	return "[]"
}

// Unsupported returns nil if this version may write a table with this schema. Otherwise it returns a hold.Error with
// hold.TableUnsupported that names the column and the reason. The reasons are: a NOT NULL column of a type that this
// version does not write, value constraints that it does not enforce, column mapping, and a partition column whose
// values it cannot compute.
func (s *Schema) Unsupported() error {
	if err := fieldsUnsupported(s.fields, ""); err != nil {
		return err
	}
	_, err := s.Expressions()
	return err
}

func fieldsUnsupported(fields []Field, above string) error {
	for _, f := range fields {
		path := above + f.Name
		_, written := f.Type.written()
		if !written && !f.Nullable {
			return unsupported("column %s is NOT NULL and of type %s", path, f.Type)
		}
		if feature := f.feature(written); feature != "" {
			return unsupported("column %s has %s", path, feature)
		}
		if err := typeUnsupported(f.Type, path); err != nil {
			return err
		}
	}
	return nil
}

func typeUnsupported(t Type, path string) error {
	if t.Element != nil {
		return typeUnsupported(*t.Element, path+inside(t.Kind))
	}
	return fieldsUnsupported(t.Fields, path+".") // types other than structs have no fields
}

// feature returns the name of a feature that the field's metadata require and that this version does not have, "" if
// there is none. written is true if this version writes the field.
func (f Field) feature(written bool) string {
	var metadata map[string]json.RawMessage
	if f.Metadata == nil || json.Unmarshal(f.Metadata, &metadata) != nil {
		return "" // cannot happen: FromDelta has validated the object
	}
	for key := range metadata {
		switch {
		case key == "delta.invariants":
			return "an invariant (delta.invariants)"
		case key == "delta.generationExpression":
			return "a generation expression (delta.generationExpression)"
		case strings.HasPrefix(key, "delta.identity."):
			return "generated identities (delta.identity)"
		case strings.HasPrefix(key, "delta.columnMapping."):
			return "column mapping (delta.columnMapping)"
		case key == "__CHAR_VARCHAR_TYPE_STRING":
			return "a bounded length (char or varchar)"
		case key == "CURRENT_DEFAULT" && !written:
			return fmt.Sprintf("a default and is of type %s", f.Type)
		}
	}
	return ""
}

func unsupported(format string, args ...any) error {
	return hold.New(hold.TableUnsupported, fmt.Sprintf(format, args...)+", which is not written by this version", nil)
}
