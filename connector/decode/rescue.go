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
	text   []byte  // the object of the current record, without its closing brace
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
		below := append(slices.Clip(path), step{name: c.name})
		for ; c.elem != nil; c = c.elem {
			if c.key != nil {
				below = append(below, step{mapping: c})
			} else {
				below = append(below, step{list: c})
			}
		}
		if c.object != nil {
			c.object.locate(below)
		}
	}
}

// keep checks the undeclared field of o whose value is at p, like [jsonDecoder.skip], and adds it to the object unless
// its value is null.
func (d *jsonDecoder) keep(o *object, b []byte, p int, name []byte) int {
	r := &d.rescue
	before := len(r.text)
	if before == 0 {
		r.text = append(r.text, '{')
	} else {
		r.text = append(r.text, ',')
	}
	r.text = append(appendPath(append(r.text, '"'), o.steps, name), `":`...) // before skip, which may overwrite the name
	end := d.skip(b, p, o.depth+1)
	switch {
	case end < 0:
		return end
	case b[p] == 'n':
		r.text = r.text[:before]
		return end
	}
	r.text = append(r.text, b[p:end]...)
	if len(r.text) > d.limits.MaxBytes { // each field repeats the path of its object, which may be long
		return d.fail(TooLarge, p)
	}
	return end
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
	r.text = r.text[:0]
	return n
}

// appendPath appends the path of a field as the inside of a JSON string. Names are joined by dots, and elements are
// [0], [1] and so on; entries of maps have their names. A name that has one of the characters . [ ] ` or is empty stands between backticks, and a
// backtick in it is doubled. So different fields have different paths.
func appendPath(b []byte, steps []step, name []byte) []byte {
	for i, s := range steps {
		if s.list != nil {
			b = append(strconv.AppendInt(append(b, '['), int64(s.list.elems-s.list.first), 10), ']')
			continue
		}
		if i > 0 {
			b = append(b, '.')
		}
		if s.mapping != nil {
			s.name = string(s.mapping.entry)
		}
		b = appendName(b, s.name)
	}
	if len(steps) > 0 {
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
func (d *jsonDecoder) rescues(name string) bool { return d.limits.Rescue && name == schema.Rescued }
