package schema

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ParsePath parses the path of a column, or of a field of a struct: names with a dot between them. A name that has a
// dot, a comma or a backtick needs backticks around it; a backtick in it is doubled.
func ParsePath(text string) ([]string, error) {
	paths, err := ParsePaths(text)
	if err == nil && len(paths) != 1 {
		err = fmt.Errorf("%q is not one column: write a column such as order_id, or a field such as shipping.city", text)
	}
	if err != nil {
		return nil, err
	}
	return paths[0], nil
}

// ParsePaths parses a list of paths with commas between them, as in the table property
// delta.dataSkippingStatsColumns. A blank text is an empty list.
func ParsePaths(text string) (paths [][]string, err error) {
	if strings.TrimSpace(text) == "" {
		return nil, nil
	}
	var path []string
	for rest, end := text, byte(','); end != 0; {
		var name string
		if name, rest, err = nextName(rest); err != nil {
			return nil, fmt.Errorf("%q is not a list of columns: %w", text, err)
		}
		path = append(path, name)
		if end = 0; rest != "" {
			end, rest = rest[0], rest[1:]
		}
		if end != '.' {
			paths, path = append(paths, path), nil
		}
	}
	return paths, nil
}

// nextName parses the name at the start of a path. rest is empty, or begins with the dot or comma after the name.
func nextName(text string) (name, rest string, err error) {
	text = strings.TrimLeft(text, " \t\r\n")
	if !strings.HasPrefix(text, "`") {
		n := strings.IndexAny(text, ".,")
		if n < 0 {
			n = len(text)
		}
		name = strings.TrimRight(text[:n], " \t\r\n")
		switch {
		case name == "":
			return "", "", errors.New("a name is missing")
		case strings.Contains(name, "`"):
			return "", "", fmt.Errorf("write backticks around the whole name %s, and double a backtick in it", name)
		}
		return name, text[n:], nil
	}
	var b strings.Builder
	for text = text[1:]; ; {
		n := strings.IndexByte(text, '`')
		if n < 0 {
			return "", "", errors.New("a backtick is not closed")
		}
		b.WriteString(text[:n])
		if text = text[n+1:]; !strings.HasPrefix(text, "`") {
			break
		}
		b.WriteByte('`')
		text = text[1:]
	}
	if b.Len() == 0 {
		return "", "", errors.New("a name is missing")
	}
	rest = strings.TrimLeft(text, " \t\r\n")
	if rest != "" && rest[0] != '.' && rest[0] != ',' {
		return "", "", fmt.Errorf("expected a dot or a comma after the name %q", b.String())
	}
	return b.String(), rest, nil
}

// JoinPath returns a path as [ParsePath] reads it.
func JoinPath(path []string) string {
	names := make([]string, len(path))
	for i, name := range path {
		names[i] = quoteName(name)
	}
	return strings.Join(names, ".")
}

// Find returns the column or field at a path, which leads from a column down through structs; false if there is none.
func (s *Schema) Find(path []string) (f Field, ok bool) {
	fields := s.fields
	for _, name := range path {
		i := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		if i < 0 {
			return Field{}, false
		}
		f = fields[i]
		fields = f.Type.Fields
	}
	return f, len(path) > 0
}
