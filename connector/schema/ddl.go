package schema

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// ParseDDL parses columns in Spark's DDL:
//
//	order_id string not null, qty int comment 'pieces', shipping struct<city: string, zip: string not null>, tags array<string>
//
// Type names and keywords are read in any case. A name with other characters than letters, digits and underscores
// needs backticks; a backtick in it is doubled. A comment stands in single or double quotes, with a backslash before
// a quote or backslash in it. Columns, struct fields, list elements and map values are nullable unless they are "not
// null". Types are nested at most MaxDepth deep, and there are at most MaxColumns columns.
// Text between /* and */ is ignored.
//
// An error quotes the place in the text, names its line if the text has several, and says what to write instead.
func ParseDDL(text string) (*Schema, error) {
	p := &parser{text: text}
	fields, err := p.fields(1)
	if err == nil && !p.end() {
		err = p.fail("expected a comma or the end, found %s", p.found())
	}
	if err != nil {
		return nil, err
	}
	if n := countColumns(Type{Kind: Struct, Fields: fields}); n > MaxColumns {
		return nil, fmt.Errorf("schema: it has %d columns, counting those within structs, arrays and maps; at most %d are written: "+
			"leave some out, or keep an object as text (string with raw in column_options)", n, MaxColumns)
	}
	return &Schema{fields: fields}, nil
}

// Bounds of a declared schema.
const (
	MaxDepth   = 20    // the nesting of types; the columns themselves are at depth 1
	MaxColumns = 1_000 // the columns of the Parquet file, except the keys of maps
)

// countColumns returns the number of types within t that are no struct, array or map.
func countColumns(t Type) (n int) {
	if t.Element != nil {
		return countColumns(*t.Element)
	}
	if t.Kind != Struct {
		return 1
	}
	for _, f := range t.Fields {
		n += countColumns(f.Type)
	}
	return n
}

// ddlTypes are the names of the types without parameters, and of decimals.
var ddlTypes = map[string]Kind{
	"string": String, "bigint": Long, "long": Long, "int": Integer, "integer": Integer, "smallint": Short, "short": Short,
	"tinyint": Byte, "byte": Byte, "double": Double, "float": Float, "real": Float, "boolean": Boolean, "bool": Boolean,
	"date": Date, "timestamp": Timestamp, "binary": Binary, "decimal": Decimal, "dec": Decimal, "numeric": Decimal,
}

const (
	insteadOfLocal = "timestamp; for values without a zone that are in UTC add utc in column_options; else string"
	insteadOfJSON  = "string, with raw in column_options to keep the text of any JSON value"
)

// instead has types that ParseDDL does not know, because they are of other systems or too new. The value is the text
// about what to write instead.
var instead = map[string]string{
	"timestamp_ntz": insteadOfLocal, "timestamp_ltz": "timestamp", "datetime": insteadOfLocal, "timestamptz": "timestamp",
	"time": "string", "interval": "string", "variant": insteadOfJSON, "void": "string",
	"char": "string", "varchar": "string", "text": "string", "uuid": "string", "json": insteadOfJSON, "number": "decimal(p,s) or double",
	"object": "struct<…> or map<string,…>", "record": "struct<…>", "list": "array<…>", "bytes": "binary", "bytea": "binary",
	"blob": "binary", "varbinary": "binary", "int8": "tinyint", "int16": "smallint",
	"int32": "int", "int64": "bigint", "float32": "float", "float64": "double", "utf8": "string",
}

type parser struct {
	text string
	at   int // position of the token that peek found
}

// fail returns an error that quotes the text at the current position.
func (p *parser) fail(format string, args ...any) error { return p.failAt(p.at, format, args...) }

func (p *parser) failAt(at int, format string, args ...any) error {
	where := ""
	if words := around(p.text, at); words != "" {
		where = fmt.Sprintf(" near %q", words)
	}
	if strings.Contains(strings.TrimSpace(p.text), "\n") {
		where = fmt.Sprintf(" in line %d%s", strings.Count(p.text[:at], "\n")+1, where)
	}
	return fmt.Errorf("schema%s: %s", where, fmt.Sprintf(format, args...))
}

// notDDL reports whether a character has no place in DDL outside of names and comments.
func notDDL(r rune) bool {
	return r == utf8.RuneError || !unicode.IsLetter(r) && !unicode.IsDigit(r) && !unicode.IsSpace(r) && !strings.ContainsRune("_,<>():`", r)
}

// around returns the few words before and after a position in a text, to show the place in an error. The number of a
// column would not help, because YAML joins the lines of a schema.
func around(text string, at int) string {
	const before, behind = 30, 24
	from, to := 0, len(text)
	if at > before {
		from = at
		if space := strings.IndexFunc(text[at-before:at], unicode.IsSpace); space >= 0 {
			from += space - before
		}
	}
	if at+behind < len(text) {
		to = at + max(0, strings.LastIndexFunc(text[at:at+behind], unicode.IsSpace))
	}
	// A word with characters that DDL does not have is not quoted in an error: it may be a URL with a password, or a
	// comment.
	if odd := strings.LastIndexFunc(text[from:at], notDDL); odd >= 0 {
		from += odd
		_, n := utf8.DecodeRuneInString(text[from:])
		from += n
	}
	if odd := strings.IndexFunc(text[at:to], notDDL); odd >= 0 {
		to = at + odd
	}
	words := strings.Join(strings.Fields(text[from:to]), " ")
	if words == "" {
		return ""
	}
	if from > 0 {
		words = "…" + words
	}
	if to < len(text) {
		words += "…"
	}
	return words
}

// end skips white space and ignored text, and reports whether the text is at its end.
func (p *parser) end() bool {
	p.peek()
	return p.at == len(p.text)
}

// peek skips white space and ignored text, and returns the next byte, 0 at the end.
func (p *parser) peek() byte {
	for p.at < len(p.text) {
		if ignored, opened := strings.CutPrefix(p.text[p.at:], "/*"); opened {
			if _, rest, closed := strings.Cut(ignored, "*/"); closed {
				p.at = len(p.text) - len(rest)
				continue
			}
		}
		r, n := utf8.DecodeRuneInString(p.text[p.at:])
		if !unicode.IsSpace(r) {
			return p.text[p.at]
		}
		p.at += n
	}
	return 0
}

// take skips the byte c and returns true if c comes next. Otherwise it skips nothing and returns false.
func (p *parser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.at++
	return true
}

// word returns the letters, digits and underscores that come next, and the position after them. It skips only white
// space. If none come next, the word is "".
func (p *parser) word() (string, int) {
	p.peek()
	end := p.at
	for end < len(p.text) {
		r, n := utf8.DecodeRuneInString(p.text[end:])
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) || r == utf8.RuneError {
			break
		}
		end += n
	}
	return p.text[p.at:end], end
}

// keyword skips a word and returns true if the word comes next, in any case. Otherwise it returns false.
func (p *parser) keyword(word string) bool {
	w, end := p.word()
	if !strings.EqualFold(w, word) {
		return false
	}
	p.at = end
	return true
}

// found returns the word or character that comes next, in quotes, for errors.
func (p *parser) found() string {
	if p.end() {
		return "the end"
	}
	if w, _ := p.word(); w != "" {
		return fmt.Sprintf("%q", w)
	}
	r, _ := utf8.DecodeRuneInString(p.text[p.at:])
	return fmt.Sprintf("%q", string(r))
}

func (p *parser) fields(depth int) ([]Field, error) {
	if depth > MaxDepth {
		return nil, p.fail(tooDeep, MaxDepth)
	}
	var fields []Field
	seen := map[string]bool{}
	for more := true; more; more = p.take(',') {
		p.peek()
		at := p.at
		f, err := p.field(depth)
		if err != nil {
			return nil, err
		}
		key := strings.ToLower(f.Name)
		if seen[key] {
			return nil, p.failAt(at, "column %q is there already (names must differ in more than case); choose another name", f.Name)
		}
		seen[key] = true
		fields = append(fields, f)
	}
	return fields, nil
}

func (p *parser) field(depth int) (Field, error) {
	f := Field{Nullable: true}
	var err error
	if f.Name, err = p.name(depth); err != nil {
		return f, err
	}
	p.take(':') // Spark requires the colon in structs and allows it elsewhere
	if f.Type, err = p.typ(f.Name, depth); err != nil {
		return f, err
	}
	for {
		p.peek()
		at := p.at
		switch {
		case f.Nullable && p.keyword("not"):
			if !p.keyword("null") {
				return f, p.fail("expected \"null\" after \"not\", found %s", p.found())
			}
			f.Nullable = false
		case f.Metadata == nil && p.keyword("comment"):
			text, err := p.quoted()
			if err != nil {
				return f, err
			}
			f.Metadata = append(appendText(json.RawMessage(`{"comment":`), text), '}')
		case p.keyword("null"):
			return f, p.failAt(at, "leave \"null\" out: column %q is nullable unless it is \"not null\"", f.Name)
		case p.keyword("default"), p.keyword("generated"), p.keyword("primary"), p.keyword("check"):
			return f, p.failAt(at, "column %q: only a type, \"not null\" and \"comment '…'\" can be given", f.Name)
		default:
			return f, nil
		}
	}
}

// name parses the name of a column and refuses names that Delta or Sluice cannot have.
func (p *parser) name(depth int) (string, error) {
	c := p.peek()
	at := p.at
	name, end := p.word()
	if c == '`' {
		var err error
		if name, end, err = p.backticked(); err != nil {
			return "", err
		}
	}
	switch bad := strings.IndexFunc(name, forbidden); {
	case name == "" && c == '`':
		return "", p.fail("a column needs a name between its backticks")
	case name == "":
		return "", p.fail("expected the name of a column, found %s; names with other characters than letters, digits and _ go between backticks", p.found())
	case bad >= 0:
		return "", p.failAt(at, "column %q: Delta has no %q in names without column mapping, which this version does not write; use letters, digits and _",
			name, name[bad:bad+1])
	case !utf8.ValidString(name):
		return "", p.failAt(at, "column %q is not UTF-8", name)
	case depth == 1 && len(name) >= len(kafkaPrefix) && strings.EqualFold(name[:len(kafkaPrefix)], kafkaPrefix):
		return "", p.failAt(at, "column %q: names that start with %s are reserved for the coordinates of the record, which are added by themselves; choose another name",
			name, kafkaPrefix)
	}
	p.at = end
	return name, nil
}

// forbidden reports whether a name must not have a character: Spark refuses it, or it is a control character.
func forbidden(r rune) bool { return strings.ContainsRune(" ,;{}()\n\t=", r) || unicode.IsControl(r) }

// backticked reads a name between backticks. It returns the name and the position after it.
func (p *parser) backticked() (string, int, error) {
	var name strings.Builder
	for i := p.at + 1; i < len(p.text); i++ {
		if p.text[i] != '`' {
			name.WriteByte(p.text[i])
		} else if i+1 < len(p.text) && p.text[i+1] == '`' {
			name.WriteByte('`')
			i++
		} else {
			return name.String(), i + 1, nil
		}
	}
	return "", 0, p.fail("the backtick of this name is not closed")
}

func (p *parser) typ(column string, depth int) (Type, error) {
	p.peek()
	at := p.at
	word, end := p.word()
	name := strings.ToLower(word)
	if k, ok := ddlTypes[name]; ok {
		p.at = end
		if k == Decimal {
			return p.decimal(column)
		}
		if p.peek() == '(' {
			return Type{}, p.fail("column %q: type %s has no parameter; leave it out", column, name)
		}
		return Type{Kind: k}, nil
	}
	if name != "struct" && name != "array" && name != "map" {
		return Type{}, p.failAt(at, "%s", p.noType(column, word))
	}
	p.at = end
	if depth >= MaxDepth {
		return Type{}, p.failAt(at, tooDeep, MaxDepth)
	}
	if !p.take('<') {
		return Type{}, p.fail("expected %q after %s, found %s", "<", name, p.found())
	}
	t := Type{Kind: Array}
	var err error
	switch name {
	case "struct":
		t.Kind = Struct
		t.Fields, err = p.fields(depth + 1)
	case "map":
		t.Kind = Map
		if err = p.mapKey(column); err != nil {
			return t, err
		}
	}
	if t.Kind != Struct {
		t.Element, t.ElementNullable = &Type{}, true
		*t.Element, err = p.typ(column, depth+1)
	}
	if err == nil && !p.take('>') {
		err = p.fail("expected %q at the end of the %s, found %s", ">", name, p.found())
	}
	return t, err
}

const tooDeep = "types are nested deeper than %d, which is not written; keep the inner value as text (string with raw in column_options)"

// mapKey reads the key type of a map and the comma after it. Names in JSON are strings, so no other type is accepted.
func (p *parser) mapKey(column string) error {
	if !p.keyword("string") {
		return p.fail("column %q: the keys of a map are the names in a JSON object, which are strings; write map<string,…>, found %s", column, p.found())
	}
	if !p.take(',') {
		return p.fail("column %q: expected \",\" after the key type of the map, found %s", column, p.found())
	}
	return nil
}

// decimal reads the parameters of a decimal. As in Spark, a decimal without them is decimal(10,0), and one without a
// scale has none.
func (p *parser) decimal(column string) (Type, error) {
	t := Type{Kind: Decimal, Precision: 10}
	if !p.take('(') {
		return t, nil
	}
	at := p.at
	number := func(n *int) bool {
		word, end := p.word()
		v, err := strconv.Atoi(word)
		*n, p.at = v, end
		return err == nil
	}
	ok := number(&t.Precision)
	if ok && p.take(',') {
		ok = number(&t.Scale)
	}
	if !ok || !p.take(')') || t.Precision < 1 || t.Precision > MaxPrecision || t.Scale > t.Precision {
		return t, p.failAt(at, "column %q: write decimal(p,s): p digits, at most %d, of which s are after the point, at most p", column, MaxPrecision)
	}
	return t, nil
}

// noType returns the text of the error for a word that is no type, with what to write instead.
func (p *parser) noType(column, word string) string {
	if word == "" {
		return fmt.Sprintf("expected the type of column %q, found %s", column, p.found())
	}
	if other, ok := instead[strings.ToLower(word)]; ok {
		return fmt.Sprintf("column %q: type %s is not written by this version; use %s", column, word, other)
	}
	names := make([]string, 0, len(ddlTypes))
	for n := range ddlTypes {
		names = append(names, n)
	}
	slices.Sort(names)
	return fmt.Sprintf("column %q: %q is no type; use one of %s, struct<…>, array<…>, map<string,…>", column, word, strings.Join(names, ", "))
}

// quoted reads text between single or double quotes.
func (p *parser) quoted() (string, error) {
	quote := p.peek()
	if quote != '\'' && quote != '"' {
		return "", p.fail("expected text between quotes after \"comment\", found %s", p.found())
	}
	var text strings.Builder
	for i := p.at + 1; i < len(p.text); i++ {
		switch c := p.text[i]; {
		case c == quote:
			if !utf8.ValidString(text.String()) {
				return "", p.fail("this comment is not UTF-8")
			}
			p.at = i + 1
			return text.String(), nil
		case c == '\\' && i+1 < len(p.text):
			i++
			text.WriteByte(p.text[i])
		default:
			text.WriteByte(c)
		}
	}
	return "", p.fail("the quote of this comment is not closed")
}

// quoteName returns a name in backticks if ParseDDL requires them, else unchanged.
func quoteName(name string) string {
	p := parser{text: name}
	if w, _ := p.word(); w == name && name != "" {
		return name
	}
	return "`" + strings.ReplaceAll(name, "`", "``") + "`"
}

func quoteText(text string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(text) + "'"
}
