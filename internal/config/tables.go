package config

import (
	"cmp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"sluice/connector/schema"
)

// This file checks entries of topics that feed the same table.

// feeder is an entry of topics that feeds a table.
type feeder struct {
	name    string
	topic   *Topic
	pattern *Pattern // nil if the entry is of a single topic
	key     string   // the key that has the path of the table
	letters bool     // true if the table is the letter table of the entry
}

// feeders returns the entries in the order of the file, without those whose table has a problem.
func (l *loader) feeders() (all []feeder) {
	add := func(f feeder) {
		if f.key == "" {
			f.key = "table"
		}
		if !l.failed(l.set(f.name, f.key)) {
			all = append(all, f)
		}
	}
	for _, name := range l.config.TopicNames() {
		t := l.config.Topics[name]
		add(feeder{name: name, topic: &t})
	}
	for _, p := range l.config.Patterns {
		add(feeder{name: p.Name, topic: &p.Topic, pattern: p})
	}
	for _, f := range l.letterFeeders() {
		add(f)
	}
	slices.SortStableFunc(all, func(a, b feeder) int { return cmp.Compare(l.places["topics."+a.name], l.places["topics."+b.name]) })
	return all
}

// checkTables compares each entry with all earlier ones. Entries that may feed the same table must agree on the
// settings of the table, and no table may be inside another one. A pattern may share tables with two entries that have
// no table in common, so a comparison with one of them is not enough.
func (l *loader) checkTables() {
	all := l.feeders()
	differs := make([]bool, len(all))
	for i, b := range all {
		for j, a := range all[:i] {
			if differs[i] = !differs[j] && !perhaps(a, b) && l.config.meet(a, b, false) && !l.agree(a, b); differs[i] {
				break
			}
		}
		if j := slices.IndexFunc(all[:i], func(a feeder) bool { return !perhaps(a, b) && l.config.meet(a, b, true) }); j >= 0 {
			l.report(l.at(l.set(b.name, b.key)), "the tables %q of topics.%s and %q of topics.%s lie one inside the other: give each its own folder",
				b.topic.Table, b.name, all[j].topic.Table, all[j].name)
		}
	}
}

// perhaps reports whether a and b are a letter table and the tables of a pattern which are equal only if a topic has
// the name of the letter table. Such a pair is no problem: the dead letters get the table, and [Config.Route] refuses
// the topic if it ever exists.
func perhaps(a, b feeder) bool {
	if b.letters {
		a, b = b, a
	}
	within := strings.HasPrefix(a.topic.Table+"/", b.topic.Table+"/")
	return a.letters && !b.letters && b.pattern != nil && (a.pattern != b.pattern || !within)
}

// meet reports whether the tables of two entries can be equal or, with inside set, whether one can be inside the other.
// For two patterns it returns true unless the templates alone exclude it.
func (c *Config) meet(a, b feeder, inside bool) bool {
	x, y := strings.Split(a.topic.Table, "/"), strings.Split(b.topic.Table, "/")
	switch {
	case (len(x) == len(y)) == inside:
		return false
	case a.topic.Table == b.topic.Table:
		return !strings.Contains(a.topic.Table, "{topic}") || a.letters != b.letters // two topics fill the same template with different texts, so the paths differ
	}
	for i := range min(len(x), len(y)) {
		if !c.alike(a, b, x[i], y[i]) {
			return false
		}
	}
	return true
}

// alike reports whether two parts of table paths can be equal, each for some topic of its entry.
func (c *Config) alike(a, b feeder, x, y string) bool {
	varies := func(part string) bool { return strings.Contains(part, "{topic}") }
	switch {
	case varies(x) && varies(y):
		return unify(x, y)
	case varies(x):
		return c.canName(a.pattern, x, y)
	case varies(y):
		return c.canName(b.pattern, y, x)
	}
	return x == y
}

// canName reports whether a template can become text: there is a topic that makes text of it, and the pattern covers
// this topic. The template must contain {topic}.
func (c *Config) canName(p *Pattern, template, text string) bool {
	n := strings.Count(template, "{topic}")
	before := strings.Index(template, "{topic}")
	size := (len(text) - len(template) + n*len("{topic}")) / n
	if size <= 0 || before+size > len(text) {
		return false
	}
	topic := text[before : before+size]
	_, own := c.Topics[topic]
	return strings.ReplaceAll(template, "{topic}", topic) == text && !own && p.standsFor(topic)
}

// unify reports whether two parts of table paths, both with {topic}, can become equal for some two topics.
func unify(a, b string) bool {
	ends := func(s string) (before, after string) {
		return s[:strings.Index(s, "{topic}")], s[strings.LastIndex(s, "{topic}")+len("{topic}"):]
	}
	b1, a1 := ends(a)
	b2, a2 := ends(b)
	return (strings.HasPrefix(b1, b2) || strings.HasPrefix(b2, b1)) && (strings.HasSuffix(a1, a2) || strings.HasSuffix(a2, a1))
}

// agree reports a problem with each key on which two entries of one table differ. It returns false if there is one.
func (l *loader) agree(a, b feeder) bool {
	if a.letters != b.letters && a.topic.IsLetters() != b.topic.IsLetters() {
		letters, other := a, b
		if b.letters {
			letters, other = b, a
		}
		l.report(l.at(l.set(letters.name, letters.key)), "the letter table %q of topics.%s may be that of topics.%s, too: write another dead_letters.archive, or another table",
			letters.topic.Table, letters.name, other.name)
		return false
	}
	same := true
	ka, kb := a.topic.keys(), b.topic.keys()
	for _, path := range tableScoped {
		i := slices.IndexFunc(ka, func(k key) bool { return k.path == path })
		if sameValue(ka[i], kb[i]) || path == "unknown_fields" && a.topic.Unknown() == b.topic.Unknown() {
			continue
		}
		same = false
		at, other := l.set(b.name, path), l.set(a.name, path)
		if l.failed(at) || l.failed(other) {
			continue
		}
		if !l.has("topics." + b.name + "." + path) {
			at, other = other, at
		}
		tables := "the table " + quoted(b.topic.Table)
		if a.topic.Table != b.topic.Table {
			tables = "a table that both " + quoted(a.topic.Table) + " and " + quoted(b.topic.Table) + " can name"
		}
		l.report(l.at(at), "topics %s and %s feed %s and must agree on %s, the other one is from %s: write the same for both, or another table",
			a.name, b.name, tables, path, l.config.origins[other])
	}
	return same
}

func quoted(s string) string { return `"` + s + `"` }

// sameValue reports whether two keys have the same value. It compares schemas by their columns, not by their text.
func sameValue(a, b key) bool {
	if a.path == "schema" {
		return ddlOf(a) == ddlOf(b)
	}
	return slices.EqualFunc(leaves(a.node()), leaves(b.node()), func(x, y *yaml.Node) bool { return x.Value == y.Value })
}

func leaves(n *yaml.Node) []*yaml.Node {
	if n.Kind == yaml.SequenceNode || n.Kind == yaml.MappingNode {
		return n.Content
	}
	return []*yaml.Node{n}
}

func ddlOf(k key) string {
	text := k.node().Value
	if text == "" {
		text = inferred
	}
	if columns, err := schema.ParseDDL(text); err == nil {
		return columns.DeltaJSON() // unlike DDL, it has the fields that fill renamed columns
	}
	return text
}
