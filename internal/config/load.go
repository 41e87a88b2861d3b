package config

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// maxConfigSize bounds config.yaml and the files that it names, in bytes.
const maxConfigSize = 1 << 20

// Problem is a mistake in the configuration: its place, and what to write instead.
type Problem struct {
	File    string `json:"file"`           // the file; "environment" for a variable
	Line    int    `json:"line,omitempty"` // 0 if it has none
	Key     string `json:"key,omitempty"`  // the key with dots, or the name of the variable
	Text    string `json:"text"`
	Warning bool   `json:"warning,omitempty"`
}

// String formats the problem as a line: config.yaml:7: kafka.session: what is wrong: what to write.
func (p Problem) String() string {
	s := p.File
	if p.Line > 0 {
		s += ":" + strconv.Itoa(p.Line)
	}
	if p.Warning {
		s += ": warning"
	}
	if p.Key != "" {
		s += ": " + p.Key
	}
	return s + ": " + p.Text
}

// Place returns the file of the problem, and the line if it has one.
func (p Problem) Place() string {
	place, _, _ := strings.Cut(Problem{File: p.File, Line: p.Line}.String(), ": ")
	return place
}

// What returns the problem without its place.
func (p Problem) What() string {
	if p.Key == "" {
		return p.Text
	}
	return p.Key + ": " + p.Text
}

// Origin is the source of a configuration value.
type Origin struct {
	File      string   // "" for a default
	Line      int      // in File
	Variables []string // the environment variables whose values are the value or a part of it
	Note      string   // for a computed value, how it was computed
}

// String formats the origin: default, config.yaml:7, env NAME.
func (o Origin) String() string {
	var parts []string
	switch {
	case o.File != "":
		parts = append(parts, o.File+":"+strconv.Itoa(o.Line))
		if o.Note != "" {
			parts = append(parts, o.Note)
		}
	case o.Note != "":
		parts = append(parts, "default, "+o.Note)
	case len(o.Variables) == 0:
		parts = append(parts, "default")
	}
	for _, v := range o.Variables {
		parts = append(parts, "env "+v)
	}
	return strings.Join(parts, ", ")
}

// Load reads the file at path, fills in the variables of env, and checks the result. It returns all problems at once,
// in the order of the file. The Config is nil unless all problems are warnings.
func Load(path string, env func(string) (string, bool)) (*Config, []Problem) {
	return (&loader{file: path, env: env, config: Default()}).loadFile()
}

// CheckWithoutSecrets checks the file at path on a host without the secrets, such as in CI. It accepts unset variables
// without a default, and missing files of secrets and certificates, and returns them as unchecked. The Config serves
// only for reports: it cannot open connections.
func CheckWithoutSecrets(path string, env func(string) (string, bool)) (config *Config, problems, unchecked []Problem) {
	l := &loader{file: path, env: env, config: Default(), withoutSecrets: true}
	config, problems = l.loadFile()
	slices.SortStableFunc(l.unchecked, func(a, b Problem) int { return a.Line - b.Line })
	return config, problems, l.unchecked
}

func (l *loader) loadFile() (*Config, []Problem) {
	l.config.file = l.file
	data, err := readFile(l.file)
	if err != nil {
		l.problem(0, "", "%v: name the file with --config", err)
		return nil, l.problems
	}
	return l.load(data)
}

// readFile reads a file. It returns an error if the file has more than maxConfigSize bytes.
func readFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		if pe, ok := errors.AsType[*fs.PathError](err); ok {
			return nil, fmt.Errorf("cannot be opened: %w", pe.Err)
		}
		return nil, err
	}
	defer func() { _ = f.Close() }() // read only
	data, err := io.ReadAll(io.LimitReader(f, maxConfigSize+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("cannot be read: %w", err)
	case len(data) > maxConfigSize:
		return nil, fmt.Errorf("is larger than %s", FormatSize(maxConfigSize))
	}
	return data, nil
}

// loader reads one file into one Config and collects the problems.
type loader struct {
	file     string
	env      func(string) (string, bool)
	config   *Config
	problems []Problem
	topics   map[string]*yaml.Node
	// places has the lines of sections and topics, for problems with missing keys.
	places map[string]int
	// filled has the values of variables and the credentials that the texts of problems must not show.
	filled []filled

	withoutTopics  bool // true if the file has no topics yet, so that none is missing
	withoutSecrets bool
	unchecked      []Problem // missing variables and files; only used with withoutSecrets
	// valueless has the keys whose values are missing: checks that need them are skipped.
	valueless []string
}

func (l *loader) problem(line int, key, format string, args ...any) {
	l.problems = append(l.problems, Problem{File: l.file, Line: line, Key: key, Text: l.describe(format, args)})
}

func (l *loader) warning(p Problem, format string, args ...any) {
	p.Text, p.Warning = l.describe(format, args), true
	l.problems = append(l.problems, p)
}

// scope is a part of the file with one set of keys: the top, defaults, or one topic.
type scope struct {
	prefix string // prefix of the keys in problems: "", "defaults.", "topics.orders."
	keys   []key
	later  []string // keys of a later version
	extra  []string // names at the top of the scope that the caller reads itself
}

func (l *loader) load(data []byte) (*Config, []Problem) {
	l.topics, l.places = map[string]*yaml.Node{}, map[string]int{}
	root, err := parseYAML(data)
	var se *syntaxError
	switch {
	case errors.As(err, &se):
		l.problem(se.line, "", "%s", se.text)
		l.mask()
		return nil, l.problems
	case root != nil:
		l.top(root)
	}
	l.seedVariables()
	l.check()
	l.mask()
	slices.SortStableFunc(l.problems, func(a, b Problem) int { return a.Line - b.Line })
	if slices.ContainsFunc(l.problems, func(p Problem) bool { return !p.Warning }) {
		return nil, l.problems
	}
	return l.config, l.problems
}

// syntaxError means that the text is not valid YAML.
type syntaxError struct {
	line int
	text string
}

func (e *syntaxError) Error() string { return e.text }

var yamlErrorLine = regexp.MustCompile(`^(?:yaml: )?(?:line (\d+): )?`)

// parseYAML returns the top mapping of a file with one document, nil if the file is empty.
func parseYAML(data []byte) (*yaml.Node, error) {
	var doc, next yaml.Node
	dec := yaml.NewDecoder(bytes.NewReader(data))
	switch err := dec.Decode(&doc); {
	case errors.Is(err, io.EOF):
		return nil, nil
	case err != nil:
		m := yamlErrorLine.FindStringSubmatch(err.Error())
		line, _ := strconv.Atoi(m[1])                   // 0 if the message has no number
		if strings.Contains(err.Error(), " anchor '") { // the error quotes the text of the file, which can be a password
			return nil, &syntaxError{line, "not YAML: a value begins with * and no quotes, which makes it an alias of an anchor that does not exist: write the value in quotes"}
		}
		if at := tabNear(data, line); at > 0 && (strings.Contains(err.Error(), "cannot start any token") || strings.Contains(err.Error(), "tab character")) {
			return nil, &syntaxError{at, "not YAML: there is a tab where YAML allows only spaces: replace the tab by spaces"}
		}
		return nil, &syntaxError{line, "not YAML: " + strings.TrimPrefix(err.Error(), m[0])}
	}
	if err := dec.Decode(&next); !errors.Is(err, io.EOF) {
		return nil, &syntaxError{next.Line, "a second document begins: remove it and all that follows"}
	}
	if doc.Kind != yaml.DocumentNode || len(doc.Content) != 1 || isNull(doc.Content[0]) {
		return nil, nil
	}
	if doc.Content[0].Kind != yaml.MappingNode {
		return nil, &syntaxError{doc.Content[0].Line, "not a mapping: write the sections as in the shipped config.yaml, such as pipeline: orders"}
	}
	return doc.Content[0], nil
}

// tabNear returns the number of a line that has a tab: line, the one after it, or the one before it. It returns 0 if
// none of them has one. The parser reports some errors one line too early.
func tabNear(data []byte, line int) int {
	lines := bytes.Split(data, []byte("\n"))
	for _, n := range []int{line, line + 1, line - 1} {
		if n > 0 && n <= len(lines) && bytes.IndexByte(lines[n-1], '\t') >= 0 {
			return n
		}
	}
	return 0
}

func isNull(n *yaml.Node) bool { return n.Kind == yaml.ScalarNode && n.ShortTag() == "!!null" }

// follow returns the node that an alias refers to, or n itself if it is no alias.
func follow(n *yaml.Node) *yaml.Node {
	if n.Kind == yaml.AliasNode && n.Alias != nil {
		return n.Alias
	}
	return n
}

func (l *loader) top(root *yaml.Node) {
	var defaults, topics *yaml.Node
	l.mapping(scope{keys: l.config.keys(), later: laterKeys[:], extra: []string{"defaults", "topics"}}, "", root)
	for i := 0; i+1 < len(root.Content); i += 2 {
		switch root.Content[i].Value {
		case "defaults":
			defaults = follow(root.Content[i+1])
			l.places["defaults"] = root.Content[i].Line
		case "topics":
			topics = follow(root.Content[i+1])
			l.places["topics"] = root.Content[i].Line
		}
	}
	if defaults != nil {
		l.topicKeys("defaults", &l.config.Defaults, defaults)
	}
	if topics == nil || isNull(topics) {
		return
	}
	if topics.Kind != yaml.MappingNode {
		l.problem(topics.Line, "topics", "not a mapping: write topics: {orders: {}}")
		return
	}
	for i := 0; i+1 < len(topics.Content); i += 2 {
		k, n := topics.Content[i], follow(topics.Content[i+1])
		path := "topics." + k.Value
		if first, twice := l.places[path]; twice {
			l.problem(k.Line, path, "is given twice, first in line %d: remove one", first)
			continue
		}
		l.places[path] = k.Line
		if isPattern(n) {
			l.patternEntry(k.Value, n)
			continue
		}
		if err := topicName(k.Value); err != nil || k.Kind != yaml.ScalarNode {
			l.problem(k.Line, path, "%v", err)
			continue
		}
		l.topics[k.Value] = n
		t := l.config.Defaults
		l.config.Topics[k.Value] = t
		l.topicKeys(path, &t, n)
		l.config.Topics[k.Value] = t
	}
}

func (l *loader) topicKeys(path string, t *Topic, n *yaml.Node) {
	if isNull(n) {
		return
	}
	if n.Kind != yaml.MappingNode {
		l.problem(n.Line, path, "not a mapping: write {} for the defaults, or keys such as table")
		return
	}
	l.mapping(scope{prefix: path + ".", keys: t.keys()}, "", n)
}

// mapping reads a mapping with the keys of s below the dotted path at.
func (l *loader) mapping(s scope, at string, n *yaml.Node) {
	seen := map[string]int{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], follow(n.Content[i+1])
		path := at + k.Value
		shown := s.prefix + path
		if k.Kind != yaml.ScalarNode {
			l.problem(k.Line, strings.TrimSuffix(s.prefix+at, "."), "a key is not a word: write name: value")
			continue
		}
		if first, twice := seen[k.Value]; twice {
			l.problem(k.Line, shown, "is given twice, first in line %d: remove one", first)
			continue
		}
		seen[k.Value] = k.Line
		field := slices.IndexFunc(s.keys, func(f key) bool { return f.path == path })
		switch {
		case at == "" && slices.Contains(s.extra, k.Value):
		case field >= 0:
			l.field(s.keys[field], shown, k.Line, v)
		case slices.Contains(s.later, path):
			l.problem(k.Line, shown, "comes in a later version: remove it")
		case slices.ContainsFunc(s.keys, func(f key) bool { return strings.HasPrefix(f.path, path+".") }):
			l.places[shown] = k.Line
			switch {
			case v.Kind == yaml.MappingNode:
				l.mapping(s, path+".", v)
			case !isNull(v):
				l.problem(v.Line, shown, "is a section: write its keys (%s) below it", strings.Join(below(s, path+"."), ", "))
			}
		default:
			l.unknown(s, at, k)
		}
	}
}

// below returns the names that may occur in s directly below the dotted path at.
func below(s scope, at string) []string {
	var names []string
	for _, f := range s.keys {
		rest, ok := strings.CutPrefix(f.path, at)
		if name, _, _ := strings.Cut(rest, "."); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	if at == "" {
		names = append(names, s.extra...)
	}
	return names
}

func (l *loader) unknown(s scope, at string, k *yaml.Node) {
	names := below(s, at)
	shown := s.prefix + at + k.Value
	if k.Value == "<<" {
		l.problem(k.Line, shown, "merge keys are not supported: write the keys out")
		return
	}
	if meant := nearest(k.Value, names, l.allKeys()); meant != "" {
		l.problem(k.Line, shown, "unknown key: did you mean %s?", meant)
		return
	}
	l.problem(k.Line, shown, "unknown key: write one of %s", strings.Join(names, ", "))
}

// allKeys returns the paths of all keys, in the form that problems show.
func (l *loader) allKeys() []string {
	var all []string
	for _, f := range l.config.keys() {
		all = append(all, f.path)
	}
	for _, f := range l.config.Defaults.keys() {
		all = append(all, "defaults."+f.path)
	}
	return all
}

// field reads the value of one key. A key without a value, which YAML reads as null, keeps its default.
func (l *loader) field(f key, shown string, line int, n *yaml.Node) {
	if isNull(n) {
		return
	}
	origin := Origin{File: l.file, Line: line}
	var texts []string
	switch {
	case n.Kind == yaml.ScalarNode:
		t, ok := l.scalar(f, shown, n, &origin)
		if !ok {
			return
		}
		texts = []string{t}
		if f.list { // a list may come from one variable
			texts = splitList(t)
		}
	case n.Kind == yaml.SequenceNode && f.list:
		for _, e := range n.Content {
			e = follow(e)
			if e.Kind != yaml.ScalarNode || isNull(e) {
				l.problem(e.Line, shown, "an element is not a text: write a %s", f.allowed)
				return
			}
			t, ok := l.scalar(f, shown, e, &origin)
			if !ok {
				return
			}
			texts = append(texts, t)
		}
	case n.Kind == yaml.MappingNode && f.pairs:
		var ok bool
		if texts, ok = l.pairs(f, shown, n, &origin); !ok {
			l.config.origins[shown] = origin // the key then counts as set, so that no check reports it as missing
			return
		}
	case n.Kind == yaml.MappingNode && strings.HasSuffix(shown, ".start"):
		l.problem(n.Line, shown, "is a word: write start: timestamp or start: explicit, and the rest below start_at")
		return
	case f.list:
		l.problem(n.Line, shown, "not a list: write a %s", f.allowed)
		return
	default:
		l.problem(n.Line, shown, "not a single value: write one (%s)", f.allowed)
		return
	}
	if err := f.set(texts); err != nil {
		l.problem(n.Line, shown, "%v", err)
		l.config.origins[shown] = origin // the key then counts as set, so that no check reports it as missing
		return
	}
	if f.secret && texts[0] != "" && len(origin.Variables) == 0 {
		l.warning(Problem{File: l.file, Line: n.Line, Key: shown},
			"the file contains a secret: write ${VARIABLE}, or use %s_file", f.path[strings.LastIndexByte(f.path, '.')+1:])
	}
	l.config.origins[shown] = origin
}

// pairs returns the entries of a mapping, each as the text "key: value". If a key or a value is not a single text, it
// reports a problem and returns false.
func (l *loader) pairs(f key, shown string, n *yaml.Node, origin *Origin) (texts []string, ok bool) {
	seen := map[string]bool{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		k, v := n.Content[i], follow(n.Content[i+1])
		if k.Kind != yaml.ScalarNode || v.Kind != yaml.ScalarNode || isNull(v) {
			l.problem(k.Line, shown, "not a mapping of single values: write key: value")
			return nil, false
		}
		if seen[k.Value] {
			l.problem(k.Line, shown, "%s is given twice: remove one", k.Value)
			return nil, false
		}
		seen[k.Value] = true
		t, ok := l.scalar(f, shown, v, origin)
		if !ok {
			return nil, false
		}
		texts = append(texts, k.Value+": "+t)
	}
	return texts, true
}

func splitList(t string) []string {
	var texts []string
	depth := 0 // commas in parentheses do not end an element
	for e := range strings.FieldsFuncSeq(t, func(r rune) bool {
		switch r {
		case '(':
			depth++
		case ')':
			depth--
		}
		return r == ',' && depth <= 0
	}) {
		if e = strings.TrimSpace(e); e != "" {
			texts = append(texts, e)
		}
	}
	return texts
}

// scalar returns the text of a scalar with its variables filled in, and adds the variables to origin. It returns false
// if there is no usable text; it has then reported why.
func (l *loader) scalar(f key, shown string, n *yaml.Node, origin *Origin) (string, bool) {
	switch tag := n.ShortTag(); {
	case tag == "!!binary":
		l.problem(n.Line, shown, "the tag !!binary is not supported: remove it")
		return "", false
	case strings.HasPrefix(tag, "!") && !strings.HasPrefix(tag, "!!"): // not quoted, because the tag can be a password
		l.problem(n.Line, shown, "begins with ! and no quotes, which makes it a YAML tag, and tags are not supported: write the value in quotes")
		return "", false
	}
	t, variables, err := interpolate(n.Value, l.env)
	if unset, ok := errors.AsType[*unsetError](err); ok && l.withoutSecrets {
		return l.withoutValue(f, shown, n, origin, unset)
	}
	if err != nil {
		l.problem(n.Line, shown, "%v", err)
		return "", false
	}
	for _, v := range variables {
		origin.Variables = append(origin.Variables, v.variable)
	}
	l.remember(shown, f.allowed, t, variables)
	return t, true
}

// withoutValue records that a key has no value because a variable is not set. It returns false, so that the key keeps
// its default. For a secret it returns a placeholder and true instead.
func (l *loader) withoutValue(f key, shown string, n *yaml.Node, origin *Origin, unset *unsetError) (string, bool) {
	origin.Variables = append(origin.Variables, unset.variable)
	l.notChecked(Problem{File: l.file, Line: n.Line, Key: shown}, "the variable %s is not set", unset.variable)
	if f.secret {
		return "unchecked", true
	}
	l.config.origins[shown] = *origin // the key then counts as set, so that no check reports it as missing
	l.valueless = append(l.valueless, shown)
	switch shown { // reports show the values of these keys
	case "pipeline":
		l.config.Pipeline = n.Value
	case "storage.url":
		l.config.Storage.URL = n.Value
	}
	return "", false
}

// notChecked records a check that is not possible without secrets.
func (l *loader) notChecked(p Problem, format string, args ...any) {
	p.Text = "not checked: " + l.describe(format, args)
	if !slices.Contains(l.unchecked, p) { // a key in defaults is checked once for each topic, but recorded once
		l.unchecked = append(l.unchecked, p)
	}
}

// missingFile reports whether err can be ignored: it means that a file does not exist, and with --no-secrets secret
// files may be missing. In that case it records that the file was not checked.
func (l *loader) missingFile(at string, err error) bool {
	if !l.withoutSecrets || !errors.Is(err, fs.ErrNotExist) {
		return false
	}
	l.notChecked(l.at(at), "the file does not exist")
	return true
}

// unsetError means that a variable is not set and has no default.
type unsetError struct{ variable string }

func (e *unsetError) Error() string {
	return fmt.Sprintf("the variable %s is not set: set it, or write ${%s:-text}", e.variable, e.variable)
}

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// interpolate replaces ${NAME} and ${NAME:-text} by the values of env, and $${ by ${. The text after :- is used if the
// variable is unset or empty. The value of a variable is not interpolated again.
func interpolate(s string, env func(string) (string, bool)) (text string, variables []filled, err error) {
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(s, "${")
		if !found {
			b.WriteString(s)
			return b.String(), variables, nil
		}
		if strings.HasSuffix(before, "$") {
			b.WriteString(before)
			b.WriteString("{")
			s = rest
			continue
		}
		b.WriteString(before)
		inside, after, closed := strings.Cut(rest, "}")
		if !closed {
			return "", nil, errors.New("${ has no }: close it, or write $${ for the characters themselves")
		}
		name, otherwise, hasDefault := strings.Cut(inside, ":-")
		if !variableName.MatchString(name) {
			return "", nil, errors.New("there is no variable name between ${ and }: write ${NAME} or ${NAME:-text}, or $${ for the characters themselves")
		}
		v, set := env(name)
		switch {
		case hasDefault && v == "":
			v = otherwise
		case !set:
			return "", nil, &unsetError{name}
		}
		variables = append(variables, filled{variable: name, value: v})
		b.WriteString(v)
		s = after
	}
}
