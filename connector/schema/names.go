package schema

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Fields of records can have names that columns cannot have. Such a field gets a column of another name, and the
// column's metadata keep the name of the field under sourceKey.

const (
	// sourceKey is the key of the field's name in the metadata of a column.
	sourceKey = "sluice.field"
	// maxName is the length, in bytes, of the longest name of a column. Some engines have this limit.
	maxName = 255
	// suffixDigits is the number of hexadecimal digits that make a name unique.
	suffixDigits = 8
)

// ColumnNames returns a column name for each field of one struct level, in the same order. taken are the names of the
// columns that the level has already. top is true for the columns of a table, where names that begin with _kafka_ are
// reserved.
//
// A name that a column can have stays. In any other, these characters become underscores: space , ; { } ( ) = and
// control characters. Bytes that are not UTF-8 become one, too, and so does an empty name. A reserved name gets another
// underscore in front. A name of more than 255 bytes is cut. If the result is no longer unique, it gets a suffix:
// an underscore and the first 8 hexadecimal digits of the SHA-256 of the field's name. Names are unique only if they
// differ in more than case, because Delta does not distinguish A and a. Cut names always get the suffix.
//
// So different fields always get different columns. A name that stays has precedence over one that was changed. Between
// two others with the same claim, the first of fields wins; apart from that, the order has no influence.
func ColumnNames(taken, fields []string, top bool) []string {
	used := make(map[string]bool, len(taken)+len(fields))
	for _, name := range taken {
		used[caseless(name)] = true
	}
	names := make([]string, len(fields))
	for i, field := range fields {
		if key := caseless(field); columnName(field, top) == field && !used[key] {
			names[i], used[key] = field, true
		}
	}
	for i, field := range fields {
		if names[i] != "" {
			continue
		}
		name := columnName(field, top)
		for try := 0; name == "" || used[caseless(name)]; try++ {
			name = suffixed(clean(field, top), field, try)
		}
		names[i], used[caseless(name)] = name, true
	}
	return names
}

// columnName returns the name of a field's column, as if there were no other fields. It is "" if the name is too long,
// so that it needs a suffix.
func columnName(field string, top bool) string {
	name := clean(field, top)
	if len(name) > maxName {
		return ""
	}
	return name
}

func clean(field string, top bool) string {
	name := strings.Map(func(r rune) rune {
		if forbidden(r) {
			return '_'
		}
		return r
	}, strings.ToValidUTF8(field, "_"))
	if name == "" || top && reserved(name) {
		name = "_" + name
	}
	return name
}

// reserved reports whether a column name is reserved for the columns that Sluice fills from coordinates.
func reserved(name string) bool {
	return len(name) >= len(kafkaPrefix) && strings.EqualFold(name[:len(kafkaPrefix)], kafkaPrefix)
}

// suffixed returns the clean name of a field with a suffix. Each try gives another suffix.
func suffixed(name, field string, try int) string {
	if try > 0 {
		field += "\x00" + strconv.Itoa(try)
	}
	sum := sha256.Sum256([]byte(field))
	suffix := "_" + hex.EncodeToString(sum[:])[:suffixDigits]
	end := min(len(name), maxName-len(suffix))
	for end > 0 && end < len(name) && !utf8.RuneStart(name[end]) {
		end--
	}
	return name[:end] + suffix
}

// caseless returns a key that two names share if any reader may take them for the same name. Readers ignore case in
// different ways, so all letters that any of them takes for the same become one, and the dot is dropped that some of
// them make of a capital I with a dot.
func caseless(name string) string {
	const combiningDot = '\u0307'
	return strings.Map(func(r rune) rune {
		if r == combiningDot {
			return -1
		}
		lower := unicode.ToLower(unicode.ToUpper(r))
		least := lower
		for next := unicode.SimpleFold(lower); next != lower; next = unicode.SimpleFold(next) {
			least = min(least, next)
		}
		return least
	}, name)
}

// Source returns the name of the record's field that fills the column: the column's own name, unless its metadata name
// another field.
func (f Field) Source() string {
	var m struct {
		Field *string `json:"sluice.field"`
	}
	if !bytes.Contains(f.Metadata, []byte(sourceKey)) || json.Unmarshal(f.Metadata, &m) != nil || m.Field == nil {
		return f.Name
	}
	return *m.Field
}

// Declared returns the field as the configuration declares it: with the names of the record's fields, at all depths. It
// leaves out fields of structs whose names are empty, which DDL cannot write.
func (f Field) Declared() Field {
	f.Name, f.Type = f.Source(), declared(f.Type)
	return f
}

func declared(t Type) Type {
	if t.Element != nil {
		element := declared(*t.Element)
		t.Element = &element
	}
	t.Fields = slices.DeleteFunc(slices.Clone(t.Fields), func(f Field) bool { return f.Source() == "" })
	for i := range t.Fields {
		t.Fields[i] = t.Fields[i].Declared()
	}
	return t
}

// named returns the field with the name of a column. Its metadata keep the old name if that is another one.
func (f Field) named(column string) Field {
	if column == f.Name {
		return f
	}
	source := appendText([]byte(`"`+sourceKey+`":`), f.Name)
	rest := bytes.TrimPrefix(bytes.TrimSpace(f.Metadata), []byte("{"))
	if rest = bytes.TrimSpace(rest); len(rest) > 1 { // more than the closing brace
		source = append(source, ',')
	} else {
		rest = []byte("}")
	}
	f.Metadata, f.Name = slices.Concat([]byte("{"), source, rest), column
	return f
}

// renameFields gives the fields of one level names that columns can have.
func renameFields(fields []Field, top bool) {
	names := make([]string, len(fields))
	for i, f := range fields {
		names[i] = f.Name
	}
	for i, name := range ColumnNames(nil, names, top) {
		fields[i] = fields[i].named(name)
	}
}

// Renamed is a column, or a field of a struct, that another field of the record fills than its name says.
type Renamed struct {
	Column string `json:"column"` // path of the column
	Field  string `json:"field"`  // name of the record's field
}

// Renamed returns the columns and struct fields whose names are not those of the record's fields, in the order of the
// schema.
func (s *Schema) Renamed() []Renamed { return renamed(s.fields, "", nil) }

func renamed(fields []Field, above string, all []Renamed) []Renamed {
	for _, f := range fields {
		if source := f.Source(); source != f.Name {
			all = append(all, Renamed{above + f.Name, source})
		}
		t, path := f.Type, above+f.Name
		for t.Element != nil {
			t, path = *t.Element, path+"[]"
		}
		all = renamed(t.Fields, path+".", all)
	}
	return all
}

// sourcesAgree returns a conflict if a column of the configured schema is filled from another field than the same column
// of the table. The table's metadata decide, so that column would stay null.
func sourcesAgree(table, configured []Field, above string) error {
	byName, bySource := make(map[string]Field, len(table)), make(map[string]string, len(table))
	for _, f := range table {
		byName[f.Name], bySource[f.Source()] = f, f.Name
	}
	for _, c := range configured {
		path := above + c.Name
		f, ok := byName[c.Name]
		if filled := bySource[c.Source()]; !ok && filled != "" {
			return conflict("the field %q of schema fills column %s%s of the table already, and would fill %s: remove it from schema, see docs/schema.md",
				c.Source(), above, filled, path)
		}
		if !ok {
			continue
		}
		if want, is := c.Source(), f.Source(); want != is {
			return conflict("column %s is filled from the field %q in the table and from %q in schema: set %s in the column's metadata of the table, or write the table's field in schema, see docs/schema.md",
				path, is, want, sourceKey)
		}
		a, b := f.Type, c.Type
		for a.Element != nil && b.Element != nil {
			a, b, path = *a.Element, *b.Element, path+"[]"
		}
		if err := sourcesAgree(a.Fields, b.Fields, path+"."); err != nil {
			return err
		}
	}
	return nil
}
