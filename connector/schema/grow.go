package schema

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxObserved bounds how many new fields a [Growth] notes, with long names counting as several. Producers choose the
// names, so they must not fill the memory.
const maxObserved = 10_000

// NewColumns bounds the columns that commits make of unknown fields, for one table.
type NewColumns struct {
	PerCommit int // of one commit
	PerHour   int // within an hour, by all members
}

// Growth finds the columns for fields that records have and a table lacks. Feed it the fields with Observe; the result
// does not depend on their order, as long as there are no more than the Growth has room for.
type Growth struct {
	table    *Schema
	root     *level
	observer *Observer
	seen     bool // true if there is a field that the table lacks
}

// level is the record, or the object in a struct column, also within lists. Its fields are those of the table, and
// shape has those that the table lacks.
type level struct {
	depth  int // nesting of the object; the record has 1
	fields []Field
	index  map[string]int // of fields, by the name of the record's field
	below  []*level       // of each field: the object in it, nil if there is none
	lists  []int          // of each field: how many lists are around that object
	shape  Shape
}

// NewGrowth returns a Growth for a table.
func NewGrowth(table *Schema) *Growth {
	return &Growth{table: table, root: newLevel(table.fields, 1, table.computed), observer: NewObserver(maxObserved)}
}

// newLevel returns a level. computed says of its fields whether no field of the record fills them; nil if none is so.
func newLevel(fields []Field, depth int, computed func(Field) bool) *level {
	l := &level{depth: depth, fields: fields, index: make(map[string]int, len(fields)), below: make([]*level, len(fields)), lists: make([]int, len(fields))}
	for i, f := range fields {
		if depth == 1 && (!fromValue(f.Name) || computed(f)) {
			continue
		}
		l.index[f.Source()] = i
		object, inside := f.Type, depth+1
		for object.Kind == Array {
			object = *object.Element
			l.lists[i]++
			inside++
		}
		if object.Kind == Struct {
			l.below[i] = newLevel(object.Fields, inside, nil)
		}
	}
	return l
}

// fromValue reports whether a field of the record of the same name fills a column of the table.
func fromValue(column string) bool { return !IsKafkaColumn(column) && column != Rescued }

// Observe notes a field of a record: its path as the column [Rescued] has it, and its JSON text. known is true if the
// table has a column for the field. With old, the row was built for an older schema, so the new fields in the value of
// such a field are noted, too. A field within the entry of a map is neither noted nor known: it gets no column.
func (g *Growth) Observe(path string, value []byte, old bool) (known bool, err error) {
	steps, err := ParseRescuedPath(path)
	if err != nil {
		return false, err
	}
	l := g.root
	for {
		name := steps[0].Name
		i, ok := l.index[name]
		switch steps = steps[1:]; {
		case len(steps) == 0 && ok && !old:
			return true, nil
		case len(steps) == 0 && ok:
			return true, g.inside(l, i, &jsonScanner{text: value}, l.depth+1)
		case len(steps) == 0:
			g.seen = true
			return false, g.observer.ObserveField(&l.shape, name, l.depth, value)
		case !ok, l.below[i] == nil:
			return false, nil
		}
		lists := l.lists[i]
		if len(steps) <= lists || slices.ContainsFunc(steps[:lists], func(s RescuedStep) bool { return s.Index < 0 }) || steps[lists].Index >= 0 {
			return false, nil
		}
		steps, l = steps[lists:], l.below[i]
	}
}

// inside notes the new fields in a value of the i-th field of a level.
func (g *Growth) inside(l *level, i int, s *jsonScanner, depth int) error {
	if l.below[i] == nil {
		return s.skip(depth)
	}
	return g.objects(l.below[i], l.lists[i], s, depth)
}

func (g *Growth) objects(l *level, lists int, s *jsonScanner, depth int) error {
	switch c := s.peek(); {
	case lists > 0 && c == '[':
		return s.elements(depth, func() error { return g.objects(l, lists-1, s, depth+1) })
	case lists == 0 && c == '{':
		return s.fields(depth, func(name string) error {
			if i, ok := l.index[name]; ok {
				return g.inside(l, i, s, depth+1)
			}
			g.seen = true
			return g.observer.value(g.observer.field(&l.shape, name, l.depth), s, l.depth+1)
		})
	}
	return s.skip(depth)
}

// Schema returns the schema of the table with the columns for the observed fields, which is the table's own if they
// need none. full is true if fields got no column because a bound was reached.
func (g *Growth) Schema(bounds NewColumns, now time.Time) (s *Schema, full bool) {
	if !g.seen {
		return g.table, false
	}
	room := &Room{
		left: min(
			bounds.PerCommit,
			bounds.PerHour-addedSince(g.table.fields, now.Add(-time.Hour)),
			MaxColumns-countColumns(Type{Kind: Struct, Fields: g.table.fields}),
		),
		added: now.UTC().Format(time.RFC3339),
	}
	fields, changed := g.root.grown(room)
	if !changed {
		return g.table, room.full
	}
	return &Schema{fields, g.table.partitions}, room.full || g.observer.More() > 0
}

// addedSince returns how many columns, without structs, say that they were added after a time.
func addedSince(fields []Field, after time.Time) (n int) {
	for _, f := range fields {
		t := f.Type
		for t.Kind == Array {
			t = *t.Element
		}
		switch {
		case t.Kind == Struct:
			n += addedSince(t.Fields, after)
		case f.addedAt().After(after):
			n++
		}
	}
	return n
}

// grown returns the fields of the level with the columns that room allows. The fields of outer objects have precedence.
func (l *level) grown(room *Room) (fields []Field, changed bool) {
	var taken []string
	for _, f := range l.fields {
		taken = append(taken, f.Name)
	}
	if l.depth == 1 {
		taken = append(taken, Rescued)
	}
	added := l.shape.columns(l.depth, taken, room)
	fields, changed = slices.Clone(l.fields), len(added) > 0
	for i, below := range l.below {
		if below == nil {
			continue
		}
		if inner, grown := below.grown(room); grown {
			fields[i].Type, changed = withFields(fields[i].Type, inner), true
		}
	}
	return append(fields, added...), changed
}

// withFields returns a type with other fields in its object.
func withFields(t Type, fields []Field) Type {
	if t.Kind == Array {
		element := withFields(*t.Element, fields)
		t.Element = &element
		return t
	}
	t.Fields = fields
	return t
}

// RescuedStep is a part of the path of a field in the column [Rescued]: a name, or the index of an element.
type RescuedStep struct {
	Name  string
	Index int // -1 for a name
}

var errRescued = errors.New("not the text of the column " + Rescued)

// ParseRescuedPath parses the path of a field in the column [Rescued], such as s.x and l[1].`a.b`. Its first and its last
// step are names.
func ParseRescuedPath(path string) (steps []RescuedStep, err error) {
	for rest := path; ; {
		var name string
		if name, rest, err = rescuedName(rest); err != nil {
			return nil, err
		}
		steps = append(steps, RescuedStep{name, -1})
		if rest == "" {
			return steps, nil
		}
		for strings.HasPrefix(rest, "[") {
			end := strings.IndexByte(rest, ']')
			if end < 0 {
				return nil, errRescued
			}
			i, err := strconv.Atoi(rest[1:end])
			if err != nil || i < 0 {
				return nil, errRescued
			}
			steps, rest = append(steps, RescuedStep{Index: i}), rest[end+1:]
		}
		if !strings.HasPrefix(rest, ".") {
			return nil, errRescued
		}
		rest = rest[1:]
	}
}

func rescuedName(text string) (name, rest string, err error) {
	if !strings.HasPrefix(text, "`") {
		end := strings.IndexAny(text, ".[")
		if end < 0 {
			end = len(text)
		}
		if end == 0 {
			return "", "", errRescued
		}
		return text[:end], text[end:], nil
	}
	for end := 1; end < len(text); end++ {
		switch {
		case text[end] != '`':
		case end+1 < len(text) && text[end+1] == '`':
			end++
		default:
			return strings.ReplaceAll(text[1:end], "``", "`"), text[end+1:], nil
		}
	}
	return "", "", errRescued
}

// RescuedFields calls each for the fields of a text of the column [Rescued], in its order. value is the JSON text of
// the field.
func RescuedFields(text []byte, each func(path string, value []byte) error) error {
	s := jsonScanner{text: text}
	if s.peek() != '{' {
		return errRescued
	}
	err := s.fields(1, func(path string) error {
		s.peek()
		from := s.at
		if err := s.skip(2); err != nil {
			return err
		}
		return each(path, text[from:s.at])
	})
	if err != nil {
		return err
	}
	return s.end()
}

// SameValues returns a conflict if a column that both schemas have means other values in them: it is filled from
// another field, or only one of the two has the JSON text of any value. Two members may have made a column at once.
func (s *Schema) SameValues(rows *Schema) error {
	if s == rows {
		return nil
	}
	return sameValues(s.fields, rows.fields, "")
}

func sameValues(table, rows []Field, above string) error {
	byName := make(map[string]Field, len(table))
	for _, f := range table {
		byName[f.Name] = f
	}
	for _, r := range rows {
		f, ok := byName[r.Name]
		if !ok {
			continue
		}
		path := above + r.Name
		if f.Raw() != r.Raw() || f.Source() != r.Source() {
			return conflict("column %s has values of another kind or of another field in the table than in the rows", path)
		}
		a, b := f.Type, r.Type
		for a.Element != nil && b.Element != nil {
			a, b, path = *a.Element, *b.Element, path+"[]"
		}
		if err := sameValues(a.Fields, b.Fields, path+"."); err != nil {
			return err
		}
	}
	return nil
}
