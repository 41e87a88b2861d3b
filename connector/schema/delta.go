package schema

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxDepth bounds the nesting of types in a table that exists; the columns themselves are at depth 1. MaxDepth is the
// bound for DDL.
const maxDepth = 64

// FromDelta parses the schemaString of a table's metaData (Delta protocol, "Schema Serialization Format"). Types that
// this version does not know are kept unchanged.
func FromDelta(schemaString []byte) (*Schema, error) {
	if !utf8.Valid(schemaString) {
		return nil, errors.New("schema of the table is not UTF-8")
	}
	t, err := typeFromJSON(schemaString, 0)
	if err != nil {
		return nil, fmt.Errorf("schema of the table: %w", err)
	}
	if t.Kind != Struct {
		return nil, errors.New("schema of the table is not a struct")
	}
	return &Schema{fields: t.Fields}, nil
}

// jsonType is a type that is a JSON object, jsonField one of its fields. Pointers distinguish absent from false.
type jsonType struct {
	Type         json.RawMessage `json:"type"`
	Fields       []jsonField     `json:"fields"`
	ElementType  json.RawMessage `json:"elementType"`
	ContainsNull *bool           `json:"containsNull"`
	KeyType      json.RawMessage `json:"keyType"`
	ValueType    json.RawMessage `json:"valueType"`
	ValuesNull   *bool           `json:"valueContainsNull"`
}

type jsonField struct {
	Name     *string         `json:"name"`
	Type     json.RawMessage `json:"type"`
	Nullable *bool           `json:"nullable"`
	Metadata json.RawMessage `json:"metadata"`
}

// decimalName is the name of a decimal type in Delta's schema JSON.
var decimalName = regexp.MustCompile(`^decimal\(([0-9]{1,2}),([0-9]{1,2})\)$`)

// parseDecimal parses the name of a decimal type. It returns false for any other name.
func parseDecimal(name string) (Type, bool) {
	m := decimalName.FindStringSubmatch(name)
	if m == nil {
		return Type{}, false
	}
	t := Type{Kind: Decimal}
	t.Precision, _ = strconv.Atoi(m[1]) // at most two digits
	t.Scale, _ = strconv.Atoi(m[2])
	return t, 1 <= t.Precision && t.Precision <= MaxPrecision && t.Scale <= t.Precision
}

func typeFromJSON(raw json.RawMessage, depth int) (Type, error) {
	if depth > maxDepth {
		return Type{}, fmt.Errorf("types are nested deeper than %d", maxDepth)
	}
	var name string
	if json.Unmarshal(raw, &name) == nil && !isNull(raw) {
		for k := String; k < Struct; k++ {
			if name == k.String() && k != Decimal {
				return Type{Kind: k}, nil
			}
		}
		if t, ok := parseDecimal(name); ok {
			return t, nil
		}
		return Type{Kind: Other, raw: slices.Clone(raw)}, nil
	}
	var t jsonType
	if err := json.Unmarshal(raw, &t); err != nil {
		return Type{}, fmt.Errorf("type: %w", err)
	}
	if err := json.Unmarshal(t.Type, &name); err != nil {
		return Type{}, errors.New("a type has no name")
	}
	switch name {
	case "struct":
		fields, err := fieldsFromJSON(t.Fields, depth)
		return Type{Kind: Struct, Fields: fields}, err
	case "array":
		if t.ElementType == nil || t.ContainsNull == nil {
			return Type{}, errors.New("an array has no elementType or no containsNull")
		}
		element, err := typeFromJSON(t.ElementType, depth+1)
		return Type{Kind: Array, Element: &element, ElementNullable: *t.ContainsNull}, err
	case "map":
		if t.KeyType == nil || t.ValueType == nil || t.ValuesNull == nil {
			return Type{}, errors.New("a map has no keyType, no valueType or no valueContainsNull")
		}
		if key, err := typeFromJSON(t.KeyType, depth+1); err != nil || key.Kind != String {
			return Type{Kind: Other, raw: slices.Clone(raw)}, err
		}
		element, err := typeFromJSON(t.ValueType, depth+1)
		return Type{Kind: Map, Element: &element, ElementNullable: *t.ValuesNull}, err
	}
	return Type{Kind: Other, raw: slices.Clone(raw)}, nil
}

func fieldsFromJSON(list []jsonField, depth int) ([]Field, error) {
	var fields []Field
	seen := map[string]bool{}
	for _, j := range list {
		if j.Name == nil || j.Type == nil || j.Nullable == nil {
			return nil, errors.New("a field has no name, no type or no nullable")
		}
		key := strings.ToLower(*j.Name)
		if seen[key] {
			return nil, fmt.Errorf("column %q is there twice (names must differ in more than case)", *j.Name)
		}
		seen[key] = true
		t, err := typeFromJSON(j.Type, depth+1)
		if err != nil {
			return nil, fmt.Errorf("column %q: %w", *j.Name, err)
		}
		f := Field{Name: *j.Name, Type: t, Nullable: *j.Nullable}
		if j.Metadata != nil && !isNull(j.Metadata) {
			if j.Metadata[0] != '{' {
				return nil, fmt.Errorf("column %q: metadata is not an object", *j.Name)
			}
			f.Metadata = slices.Clone(j.Metadata)
		}
		fields = append(fields, f)
	}
	return fields, nil
}

func isNull(raw json.RawMessage) bool { return string(raw) == "null" }

// DeltaJSON returns the schemaString for a table's metaData, in Spark's form. Metadata and types that this version
// does not know are written as they were read.
func (s *Schema) DeltaJSON() string {
	return string(appendType(nil, Type{Kind: Struct, Fields: s.fields}))
}

func appendType(b []byte, t Type) []byte {
	switch t.Kind {
	case Other:
		return append(b, t.raw...)
	case String, Long, Integer, Short, Byte, Double, Float, Boolean, Date, Timestamp, Binary:
		return append(append(append(b, '"'), t.Kind.String()...), '"')
	case Decimal:
		return append(append(append(b, '"'), t.String()...), '"')
	case Struct:
		b = append(b, `{"type":"struct","fields":[`...)
		for i, f := range t.Fields {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(append(b, `{"name":`...), f.Name), `,"type":`...)
			b = fmt.Appendf(appendType(b, f.Type), `,"nullable":%t,"metadata":`, f.Nullable)
			if f.Metadata == nil {
				b = append(b, `{}`...)
			}
			b = append(append(b, f.Metadata...), '}')
		}
		return append(b, `]}`...)
	case Array:
		b = appendType(append(b, `{"type":"array","elementType":`...), *t.Element)
		return fmt.Appendf(b, `,"containsNull":%t}`, t.ElementNullable)
	case Map:
		b = appendType(append(b, `{"type":"map","keyType":"string","valueType":`...), *t.Element)
		return fmt.Appendf(b, `,"valueContainsNull":%t}`, t.ElementNullable)
	}
	panic("schema: type without a kind")
}

// appendText appends s as a JSON string, without the escapes that only HTML needs.
func appendText(b []byte, s string) []byte {
	var text bytes.Buffer
	e := json.NewEncoder(&text)
	e.SetEscapeHTML(false)
	if err := e.Encode(s); err != nil {
		panic(err) // a string can always be encoded
	}
	return append(b, bytes.TrimSuffix(text.Bytes(), []byte("\n"))...)
}
