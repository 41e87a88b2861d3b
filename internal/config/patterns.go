package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Pattern is an entry of topics that stands for all topics whose names match, those of later included.
type Pattern struct {
	Name      string   // of the entry
	Pattern   string   // RE2, of the whole name
	Deny      []string // names and patterns that the entry does not stand for
	MaxTopics int      // that the entry stands for at most
	Topic              // {topic} in Table is not filled in

	matches *regexp.Regexp
	denies  []*regexp.Regexp
}

// defaultMaxTopics bounds what a pattern that matches more than was meant costs: each topic is a table with some 70 series.
const defaultMaxTopics = 1000

// keys are the keys of a topic, and those that make it a pattern.
func (p *Pattern) keys() []key {
	check := func(s string) error { _, err := wholeName(s); return err }
	deny := list(&p.Deny, "names and patterns", check)
	some := deny.set
	deny.set = func(texts []string) error {
		if len(texts) == 0 { // set, to no topic
			p.Deny = []string{}
			return nil
		}
		return some(texts)
	}
	return append([]key{
		{"pattern", text(&p.Pattern, check), "write the pattern that names of topics match, such as sales\\..+"},
		{"deny", deny, "write the topics that match and are not meant, such as [sales.test], or []"},
		{"max_topics", count(&p.MaxTopics, 1, 100_000), ""},
	}, p.Topic.keys()...)
}

// wholeName compiles a pattern that names match as a whole. A text that can be a name stands for itself alone.
func wholeName(s string) (*regexp.Regexp, error) {
	if s == "" {
		return nil, errors.New("is empty: write a name or a pattern of RE2")
	}
	if legalName(s, 249) {
		return regexp.Compile(`\A` + regexp.QuoteMeta(s) + `\z`)
	}
	if _, err := regexp.Compile(s); err != nil { // so that the text shown is the one that was written
		return nil, fmt.Errorf("is no pattern of RE2: %w", err)
	}
	return regexp.Compile(`\A(?:` + s + `)\z`)
}

// compile makes the entry ready to be asked. Its texts were checked when they were read.
func (p *Pattern) compile() {
	p.matches, _ = wholeName(p.Pattern)
	p.denies = nil
	for _, d := range p.Deny {
		if re, err := wholeName(d); err == nil {
			p.denies = append(p.denies, re)
		}
	}
}

// standsFor reports whether a topic is one of the entry's.
func (p *Pattern) standsFor(topic string) bool {
	return p.matches != nil && p.matches.MatchString(topic) && !neverMatches(topic) &&
		!slices.ContainsFunc(p.denies, func(d *regexp.Regexp) bool { return d.MatchString(topic) })
}

// neverMatches reports whether a pattern must not stand for a topic: internal ones of Kafka and its tools, dead letters, which
// would feed themselves, and canaries.
func neverMatches(topic string) bool {
	return strings.HasPrefix(topic, "__") || strings.HasSuffix(topic, "-dlq") || strings.HasSuffix(topic, ".dlq") || isCanary(topic)
}

// Route returns what holds for a topic: its own entry, or else what follows from the entry whose dead letters it takes, or
// else that of the first pattern in the file that stands for it.
// false if the topic is not meant. The error says why a topic that is meant can have no table.
func (c *Config) Route(topic string) (t Topic, meant bool, err error) {
	if t, ok := c.Topics[topic]; ok {
		return t, true, nil
	}
	if t, ok := c.Canary(topic); ok {
		return t, true, nil
	}
	if t, archived, dead, err := c.letters(topic); dead {
		return t, archived, err // patterns do not match a dead-letter topic
	}
	p := c.patternOf(topic)
	if p == nil {
		return t, false, nil
	}
	t = p.Topic
	if t.Table, err = tablePath(p.Table, topic); err == nil {
		err = c.lettersHave(t.Table)
	}
	return t, true, err
}

// Beyond returns those of the topics that are more than their pattern may stand for, and why. The first ones in names stay.
func (c *Config) Beyond(names []string) map[string]string {
	matching := map[*Pattern][]string{}
	for _, name := range names {
		_, _, dead, _ := c.letters(name) // these and canaries feed tables of their own, even if a pattern matches
		if p := c.patternOf(name); p != nil && !dead && !isCanary(name) {
			matching[p] = append(matching[p], name)
		}
	}
	found := map[string]string{}
	for p, names := range matching {
		for _, name := range names[min(len(names), p.MaxTopics):] {
			found[name] = fmt.Sprintf("the pattern of topics.%s matches %d topics and may stand for %d (max_topics)", p.Name, len(names), p.MaxTopics)
		}
	}
	return found
}

// Meant are the topics and patterns of the configuration, to say what could have been written.
func (c *Config) Meant() []string {
	all := c.TopicNames()
	for _, p := range c.Patterns {
		all = append(all, p.Pattern)
	}
	return all
}

// patternEntry reads an entry that has a pattern.
func (l *loader) patternEntry(name string, n *yaml.Node) {
	p := &Pattern{Name: name, MaxTopics: defaultMaxTopics, Topic: l.config.Defaults}
	path := "topics." + name
	if !legalName(name, 249) {
		l.problem(l.places[path], path, "is no name for a pattern: write letters, digits, dot, underscore and dash; the pattern itself stands behind pattern:")
		return
	}
	keys := p.keys()
	l.mapping(scope{prefix: path + ".", keys: keys, later: laterTopicKeys[:]}, "", n)
	for _, k := range keys {
		if at := path + "." + k.path; k.missing != "" && !l.has(at) && !l.failed(at) {
			l.problem(l.places[path], at, "is missing: %s", k.missing)
		}
	}
	p.compile()
	l.config.Patterns = append(l.config.Patterns, p)
}

// isPattern reports whether an entry of topics has a key that only patterns have.
func isPattern(n *yaml.Node) bool {
	if n.Kind != yaml.MappingNode {
		return false
	}
	for i := 0; i < len(n.Content); i += 2 {
		if k := n.Content[i].Value; k == "pattern" || k == "deny" || k == "max_topics" {
			return true
		}
	}
	return false
}

// checkPattern checks where the topics of a pattern go.
func (l *loader) checkPattern(p *Pattern) {
	at := l.set(p.Name, "table")
	if l.failed(at) {
		return
	}
	if _, err := tablePath(p.Table, "t"); err != nil {
		l.report(l.at(at), "%v", err)
		return
	}
	if !strings.Contains(p.Table, "{topic}") && strings.HasPrefix(at, "defaults.") {
		l.report(l.at(at), "all topics that match %s would feed the table %q: write {topic} into it, or the table into topics.%s if they are meant to share it",
			p.Pattern, p.Table, p.Name)
	}
}
