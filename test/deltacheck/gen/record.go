package main

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"

	"sluice/connector"
)

// extra is what a record has beside its value.
type extra struct {
	key       []byte // nil for none
	headers   []connector.Header
	setBy     connector.TimestampType
	tombstone bool // the record has no value, and the row only nulls
}

// recordWriter writes the value of a record as JSON.
type recordWriter struct {
	// chance decides where fields without a column stand. It is nil if there are none.
	chance *rand.Rand
	// rescued are the members of the object that the column _rescued must have.
	rescued []string
}

// object writes the fields of the columns. Every second null is left out. values may have more than there are columns yet.
func (w *recordWriter) object(columns []column, row []any, path string) string {
	var members []string
	for i, c := range columns {
		if w.chance != nil && w.chance.IntN(4) == 0 {
			members = w.unknown(members, i, path)
		}
		if row[i] == nil && (i+len(members))%2 == 0 {
			continue
		}
		name, _ := text(c.name)
		members = append(members, name+":"+w.value(c.typ, row[i], joined(path, c.name)))
	}
	return "{" + strings.Join(members, ",") + "}"
}

// unknown adds a field that has no column, and what is kept of it.
func (w *recordWriter) unknown(members []string, i int, path string) []string {
	names := []string{"new", "x.y", "back`tick", "q[0]", "üñ", "say \"no\"", ""}
	texts := []string{"1.50", `{"p": [1]}`, `"té"`, "true", "null", "[1, null]", "12345678901234567890", `"\u00e9\n"`}
	field, value := names[w.chance.IntN(len(names))], texts[w.chance.IntN(len(texts))]
	if field != "" {
		field += strconv.Itoa(i)
	} else if i > 0 {
		return members // a name may come only once
	}
	name, _ := text(field)
	if value != "null" {
		w.rescued = append(w.rescued, quoted(joined(path, field))+":"+value)
	}
	return append(members, name+":"+value)
}

// quoted is a name in the object of the column _rescued.
func quoted(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		switch {
		case c == '"' || c == '\\':
			b.WriteString("\\" + string(c))
		case c < ' ':
			fmt.Fprintf(&b, "\\u%04x", c)
		default:
			b.WriteByte(c)
		}
	}
	return `"` + b.String() + `"`
}

// joined is the path of a field below a path.
func joined(path, name string) string {
	if name == "" || strings.ContainsAny(name, ".[]`") {
		name = "`" + strings.ReplaceAll(name, "`", "``") + "`"
	}
	if path == "" {
		return name
	}
	return path + "." + name
}

func (w *recordWriter) value(t typ, v any, path string) string {
	if v == nil {
		return "null"
	}
	if t.kind != nil {
		s, ok := t.kind.text(v)
		if !ok {
			panic("a value that JSON cannot express at " + path)
		}
		return s
	}
	if t.fields != nil {
		return w.object(t.fields, v.([]any), path)
	}
	var list []string
	if m, ok := v.(pairs); ok {
		for _, p := range m {
			name, _ := text(p[0])
			list = append(list, name+":"+w.value(*t.element, p[1], joined(path, p[0].(string))))
		}
		return "{" + strings.Join(list, ",") + "}"
	}
	for i, e := range v.([]any) {
		list = append(list, w.value(*t.element, e, path+"["+strconv.Itoa(i)+"]"))
	}
	return "[" + strings.Join(list, ",") + "]"
}
