package decode

import (
	"slices"
	"strconv"
	"strings"

	"sluice/connector/schema"
)

// rescuer collects the undeclared fields of a record as the text of one JSON object, for the column [schema.Rescued].
// The names in the object are the paths of the fields, their values are the record's own text.
type rescuer struct {
	column *column // nil if undeclared fields are not kept
	extra  bool    // true if the table lacks the column: chunks have it only if they need it
	prefix []byte  // the path, as the inside of a JSON string, of the column for which steps are; empty for the record
	text   []byte  // the object of the current record, without its closing brace
	fields []kept  // the fields in text
}

// kept is a rescued field: where its value begins in the record, and where its entry begins in the text.
type kept struct{ value, text int }

// drop forgets the fields of the current record.
func (r *rescuer) drop() { r.text, r.fields = r.text[:0], r.fields[:0] }

// dropFrom forgets the fields whose values begin at or after a position of the record.
func (r *rescuer) dropFrom(p int) {
	for n := len(r.fields); n > 0 && r.fields[n-1].value >= p; n-- {
		r.text, r.fields = r.text[:r.fields[n-1].text], r.fields[:n-1]
	}
}

// keeps reports whether undeclared fields are kept.
func (j JSON) keeps() bool { return j.Rescue || j.NewColumns != nil }

// lenient reports whether a value that does not fit the column of a field, which is not declared, is kept.
func (d *jsonDecoder) lenient(f schema.Field) bool {
	return d.limits.NewColumns != nil || d.limits.Rescue && f.Inferred()
}

// rescueValue keeps the value of a member of o that does not fit its column, whose name is at p. It returns the end of
// the value, or -1 if the record is refused.
func (d *jsonDecoder) rescueValue(o *object, m *member, b []byte, p, row int) int {
	if !m.lenient || !m.nullable {
		return -1
	}
	switch d.reason {
	case TypeMismatch, OutOfRange, NotIntegral, BadTimestamp, TooPrecise, BadBinary, RequiredMissing:
	default: // no column would take such a record
		return -1
	}
	d.reason, d.path, d.failedIn = 0, d.path[:0], nil
	m.truncate(row)
	name, value := d.name(b, p)
	d.rescue.dropFrom(value)
	return d.keep(o, b, value, name)
}

// step is a part of the path of an object: the name of a struct column, or a list or map column whose current element the
// path continues in.
type step struct {
	name          string
	list, mapping *column
}

// locate notes the path of an object, and of all objects below it.
func (o *object) locate(path []step) {
	o.steps = path
	for i := range o.members {
		c := o.members[i].column
		c.locate(append(slices.Clip(path), step{name: c.source}))
	}
}

// locate notes the paths of the objects in a column. path is that of the column.
func (c *column) locate(path []step) {
	for ; c.elem != nil; c = c.elem {
		if c.key != nil {
			path = append(path, step{mapping: c})
		} else {
			path = append(path, step{list: c})
		}
	}
	if c.object != nil {
		c.object.locate(path)
	}
}

// keep checks the undeclared field of o whose value is at p, like [jsonDecoder.skip], and adds it to the object unless
// its value is null.
func (d *jsonDecoder) keep(o *object, b []byte, p int, name []byte) int {
	r := &d.rescue
	before := len(r.text)
	r.begin(p)
	r.text = append(appendPath(append(append(r.text, '"'), r.prefix...), len(r.prefix) > 0, o.steps, name), `":`...) // before skip, which may overwrite the name
	end := d.skip(b, p, o.depth+1)
	switch {
	case end < 0:
		return end
	case b[p] == 'n':
		r.text, r.fields = r.text[:before], r.fields[:len(r.fields)-1]
		return end
	}
	r.text = append(r.text, b[p:end]...)
	if len(r.text) > d.limits.MaxBytes { // each field repeats the path of its object, which may be long
		return d.fail(TooLarge, p)
	}
	return end
}

// begin begins the entry of a field whose value is at a position of the record.
func (r *rescuer) begin(value int) {
	r.fields = append(r.fields, kept{value, len(r.text)})
	if len(r.text) == 0 {
		r.text = append(r.text, '{')
	} else {
		r.text = append(r.text, ',')
	}
}

// keepEntry adds a field whose entry is the text of one, with its path. Its value is at a position of the record.
func (r *rescuer) keepEntry(entry []byte, value int) {
	r.begin(value)
	r.text = append(r.text, entry...)
}

// put writes the object of the current record into a row, if there is one. It returns the number of bytes.
func (r *rescuer) put(row int) int {
	if len(r.text) == 0 {
		return 0
	}
	r.text = append(r.text, '}')
	n := len(r.text)
	r.column.fillMissed(row)
	r.text = append(r.text, zeroPadding[:]...)
	r.column.putText(r.text, 0, n)
	r.drop()
	return n
}

// appendPath appends the path of a field as the inside of a JSON string. Names are joined by dots, and elements are
// [0], [1] and so on; entries of maps have their names. A name that has one of the characters . [ ] ` or is empty stands between backticks, and a
// backtick in it is doubled. So different fields have different paths.
//
// inside is true if b has the beginning of the path already.
func appendPath(b []byte, inside bool, steps []step, name []byte) []byte {
	for _, s := range steps {
		if s.list != nil {
			b = append(strconv.AppendInt(append(b, '['), int64(s.list.elems-s.list.first), 10), ']')
			continue
		}
		if inside {
			b = append(b, '.')
		}
		inside = true
		if s.mapping != nil {
			s.name = string(s.mapping.entry)
		}
		b = appendName(b, s.name)
	}
	if inside {
		b = append(b, '.')
	}
	return appendName(b, string(name))
}

func appendName(b []byte, name string) []byte {
	if name == "" || strings.ContainsAny(name, ".[]`") {
		name = "`" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	const hex = "0123456789abcdef"
	for i := range len(name) {
		switch c := name[i]; {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c < ' ':
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			b = append(b, c)
		}
	}
	return b
}

// rescues reports whether a column of the table is filled with undeclared fields.
func (d *jsonDecoder) rescues(name string) bool { return d.limits.keeps() && name == schema.Rescued }
