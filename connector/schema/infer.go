package schema

import (
	"cmp"
	"encoding/json"
	"math"
	"slices"
	"strings"
	"time"
)

// InferDepth bounds the nesting of inferred columns, in which a column of the table is level 1. An object or array
// below it makes a column with the JSON text.
const InferDepth = 20

// ValueKind is the kind of a JSON value. Numbers have several kinds, because a column that takes all of them must hold
// each exactly.
type ValueKind uint8

// The kinds of JSON values.
const (
	NullValue     ValueKind = iota
	BooleanValue            // true, false
	IntegerValue            // an integer that a long and a double hold exactly; 1.0 and 1e3 are integers
	LongValue               // an integer that a long holds exactly and a double does not
	FractionValue           // a number with a fraction, or an integer with an exponent that no long holds
	HugeValue               // a number that neither a long nor a double holds: 20 digits, 1e309
	StringValue
	ObjectValue
	ArrayValue
	valueKinds
)

var valueKindNames = [valueKinds]string{"null", "boolean", "integer", "large integer", "number", "huge number", "string", "object", "array"}

// ValueKinds returns all kinds.
func ValueKinds() (all []ValueKind) {
	for k := range valueKinds {
		all = append(all, k)
	}
	return all
}

// String returns the name of the kind for people.
func (k ValueKind) String() string { return valueKindNames[k] }

// Shape describes a set of JSON values: how many values of each kind there are, and the shapes of the fields of the
// objects and of the elements of the arrays. The order in which values are observed changes nothing but the order of
// [Shape.Names].
type Shape struct {
	counts  [valueKinds]int64
	names   []string
	fields  map[string]*Shape
	element *Shape
}

// Count returns the number of values of a kind.
func (s *Shape) Count(k ValueKind) int64 { return s.counts[k] }

// Values returns the number of values that are not null.
func (s *Shape) Values() (n int64) {
	for _, c := range s.counts[NullValue+1:] {
		n += c
	}
	return n
}

// Names returns the names of the objects' fields in the order in which they were observed first.
func (s *Shape) Names() []string { return s.names }

// Field returns the shape of a field of the objects, nil if no object has the field.
func (s *Shape) Field(name string) *Shape { return s.fields[name] }

// Element returns the shape of the elements of the arrays, nil if they have none.
func (s *Shape) Element() *Shape { return s.element }

// Mixed reports whether the values are of kinds that no type holds together. Their column has their JSON text.
func (s *Shape) Mixed() bool {
	has := func(kinds ...ValueKind) bool {
		return slices.ContainsFunc(kinds, func(k ValueKind) bool { return s.counts[k] > 0 })
	}
	groups := 0
	for _, kinds := range [][]ValueKind{
		{BooleanValue}, {IntegerValue, LongValue, FractionValue, HugeValue}, {StringValue}, {ObjectValue}, {ArrayValue},
	} {
		if has(kinds...) {
			groups++
		}
	}
	return groups > 1 || has(HugeValue) || has(LongValue) && has(FractionValue)
}

// Column returns the column for the values of a field. It returns false if they need none: there is no value, or each is
// null, an empty object or an empty array. Fields of structs are in the order of their names, so that the same values
// give the same column in any order.
//
//	boolean                            boolean
//	integers                           long
//	numbers, each exact in a double    double
//	string                             string
//	object                             struct of the fields that have a column
//	array                              array, if its elements have a type
//	anything else                      string with the JSON text, see [Field.Raw]
func (s *Shape) Column(name string) (Field, bool) { return s.column(name, 1, unlimited()) }

func (s *Shape) column(name string, depth int, room *Room) (Field, bool) {
	t, raw, ok := s.typ(depth, room)
	if !ok {
		return Field{}, false
	}
	return Field{Name: name, Type: t, Nullable: true, Metadata: room.metadata(raw)}, true
}

// typ returns the type for the values at a depth. raw is true for a string column with JSON text. It takes the columns
// of the type from room.
func (s *Shape) typ(depth int, room *Room) (t Type, raw, ok bool) {
	text := Type{Kind: String}
	switch has := func(k ValueKind) bool { return s.counts[k] > 0 }; {
	case s.Mixed():
		return text, true, room.take()
	case has(BooleanValue):
		return Type{Kind: Boolean}, false, room.take()
	case has(FractionValue):
		return Type{Kind: Double}, false, room.take()
	case has(IntegerValue), has(LongValue):
		return Type{Kind: Long}, false, room.take()
	case has(StringValue):
		return text, false, room.take()
	case has(ObjectValue), has(ArrayValue):
		if depth >= InferDepth {
			return text, true, room.take()
		}
	default:
		return Type{}, false, false
	}
	if s.counts[ObjectValue] > 0 {
		t = Type{Kind: Struct, Fields: s.columns(depth+1, nil, room)}
		return t, false, len(t.Fields) > 0
	}
	if s.element == nil {
		return Type{}, false, false
	}
	element, raw, ok := s.element.typ(depth+1, room)
	if raw { // an element has no metadata that could say that it is JSON text
		return text, true, ok
	}
	return Type{Kind: Array, Element: &element, ElementNullable: true}, false, ok
}

// Columns returns the columns for the fields of records, in the order of the fields' names. A field has none if its
// values need none: see [Shape.Column]. The names are those of [ColumnNames].
func (s *Shape) Columns() []Field { return s.columns(1, nil, unlimited()) }

// columns returns the columns for the fields of objects at a depth, beside those that are taken. If room does not have
// enough of them, the fields with the most values have precedence.
func (s *Shape) columns(depth int, taken []string, room *Room) (all []Field) {
	byValues := slices.SortedFunc(slices.Values(s.names), func(a, b string) int {
		return cmp.Or(cmp.Compare(s.fields[b].Values(), s.fields[a].Values()), cmp.Compare(a, b))
	})
	for _, name := range byValues {
		if f, ok := s.fields[name].column(name, depth, room); ok {
			all = append(all, f)
		}
	}
	slices.SortFunc(all, func(a, b Field) int { return cmp.Compare(a.Name, b.Name) })
	names := make([]string, len(all))
	for i, f := range all {
		names[i] = f.Name
	}
	for i, name := range ColumnNames(taken, names, depth == 1) {
		all[i] = all[i].named(name)
	}
	return all
}

// Room bounds the columns that are made of shapes. Structs do not count, but the fields in them do.
type Room struct {
	left  int
	full  bool
	added string // when the columns are added, for their metadata; "" to leave it out
}

// unlimited returns a room for as many columns as there are fields.
func unlimited() *Room { return &Room{left: math.MaxInt} }

func (r *Room) take() bool {
	if r.left <= 0 {
		r.full = true
		return false
	}
	r.left--
	return true
}

func (r *Room) metadata(raw bool) json.RawMessage {
	text := `{"` + inferredKey + `":true`
	if raw {
		text += `,"` + rawKey + `":true`
	}
	if r.added != "" {
		text += `,"` + addedKey + `":"` + r.added + `"`
	}
	return json.RawMessage(text + "}")
}

// Metadata keys of the fields that are made of shapes.
const (
	inferredKey = "sluice.inferred"
	rawKey      = "sluice.raw"
	addedKey    = "sluice.added_at" // when the column was added, in RFC 3339
)

// Inferred reports whether the type of the field was derived from the first values, so that later ones may not fit it.
func (f Field) Inferred() bool { return f.is(inferredKey) }

// Raw reports whether the field is a string that holds the JSON text of any value.
func (f Field) Raw() bool { return f.Type.Kind == String && f.is(rawKey) }

// addedAt returns when the field was added, the zero time if its metadata do not say it.
func (f Field) addedAt() time.Time {
	var at time.Time
	if !strings.Contains(string(f.Metadata), addedKey) || json.Unmarshal(f.metadataOf(addedKey), &at) != nil {
		return time.Time{}
	}
	return at
}

// is reports whether the metadata have the value true for a key.
func (f Field) is(key string) bool {
	return strings.Contains(string(f.Metadata), key) && string(f.metadataOf(key)) == "true"
}

// Observer collects the shape of values with a bounded number of fields.
type Observer struct {
	root Shape
	left int
	more int64
}

// nameUnit bounds the memory for names: a name counts as one field more for each of these bytes.
const nameUnit = 256

// NewObserver returns an observer that notes at most fields different fields, nested ones included. Long names count as
// several fields.
func NewObserver(fields int) *Observer { return &Observer{left: fields} }

// Shape returns the shape of the values that were observed.
func (o *Observer) Shape() *Shape { return &o.root }

// More returns the number of fields of values that were not noted, because the observer had no room for their names.
func (o *Observer) More() int64 { return o.more }

// Observe adds a JSON value. An invalid one is an error; what precedes the invalid byte may have been added.
func (o *Observer) Observe(value []byte) error {
	s := jsonScanner{text: value}
	if err := o.value(&o.root, &s, 1); err != nil {
		return err
	}
	return s.end()
}

// ObserveField adds the value of a field of objects with the shape of, which are at a depth; a record has depth 1.
func (o *Observer) ObserveField(of *Shape, name string, depth int, value []byte) error {
	s := jsonScanner{text: value}
	if err := o.value(o.field(of, name, depth), &s, depth+1); err != nil {
		return err
	}
	return s.end()
}

// value adds the value at the scanner's position to a shape. depth is that of the value; the record has 1.
func (o *Observer) value(to *Shape, s *jsonScanner, depth int) error {
	switch s.peek() {
	case '{':
		if to != nil {
			to.counts[ObjectValue]++
		}
		return s.fields(depth, func(name string) error {
			return o.value(o.field(to, name, depth), s, depth+1)
		})
	case '[':
		if to != nil {
			to.counts[ArrayValue]++
		}
		return s.elements(depth, func() error {
			var element *Shape
			if to != nil && depth <= InferDepth {
				if to.element == nil {
					to.element = &Shape{}
				}
				element = to.element
			}
			return o.value(element, s, depth+1)
		})
	}
	k, err := s.scalar()
	if to != nil {
		to.counts[k]++
	}
	return err
}

// field returns the shape of a field of an object at a depth, nil if it is not noted.
func (o *Observer) field(of *Shape, name string, depth int) *Shape {
	if of == nil || depth > InferDepth {
		return nil
	}
	f := of.fields[name]
	switch {
	case f != nil:
		return f
	case o.left < 1+len(name)/nameUnit:
		o.more++
		return nil
	case of.fields == nil:
		of.fields = map[string]*Shape{}
	}
	o.left -= 1 + len(name)/nameUnit
	f = &Shape{}
	of.fields[name] = f
	of.names = append(of.names, name)
	return f
}
