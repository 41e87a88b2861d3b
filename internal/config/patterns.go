package config

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Pattern is an entry of topics that covers all topics whose names match, including future ones.
type Pattern struct {
	Name      string   // the name of the entry
	Pattern   string   // an RE2 expression that matches whole names
	Deny      []string // names and patterns of topics that the entry does not cover
	MaxTopics int      // the largest number of topics that the entry covers
	Topic              // the settings of each covered topic; Table still contains {topic}

	matches *regexp.Regexp
	denies  []*regexp.Regexp
}

// defaultMaxTopics bounds the cost of a pattern that matches too much: each topic is a table with some 70 metric
// series.
const defaultMaxTopics = 1000

// keys returns the keys of a topic, and those of a pattern.
func (p *Pattern) keys() []key {
	check := func(s string) error { _, err := wholeName(s); return err }
	deny := list(&p.Deny, "names and patterns", check)
	some := deny.set
	deny.set = func(texts []string) error {
		if len(texts) == 0 { // an empty list is a value, too: it excludes no topic
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

// wholeName compiles a pattern that must match whole names. A text that is a valid name matches only itself.
func wholeName(s string) (*regexp.Regexp, error) {
	if s == "" {
		return nil, errors.New("is empty: write a name or a pattern of RE2")
	}
	if legalName(s, 249) {
		return regexp.Compile(`\A` + regexp.QuoteMeta(s) + `\z`)
	}
	if _, err := regexp.Compile(s); err != nil { // the text of the operator is compiled alone, so that the error quotes it
		return nil, fmt.Errorf("is not a valid RE2 pattern: %w", err)
	}
	return regexp.Compile(`\A(?:` + s + `)\z`)
}

// compile compiles the patterns of the entry. The loader has already checked their texts.
func (p *Pattern) compile() {
	p.matches, _ = wholeName(p.Pattern)
	p.denies = nil
	for _, d := range p.Deny {
		if re, err := wholeName(d); err == nil {
			p.denies = append(p.denies, re)
		}
	}
}

// standsFor reports whether the entry covers a topic.
func (p *Pattern) standsFor(topic string) bool {
	return p.matches != nil && p.matches.MatchString(topic) && !neverMatches(topic) &&
		!slices.ContainsFunc(p.denies, func(d *regexp.Regexp) bool { return d.MatchString(topic) })
}

// neverMatches reports whether no pattern may cover a topic: internal topics of Kafka and its tools, dead-letter
// topics, which would feed themselves, and canary topics.
func neverMatches(topic string) bool {
	return strings.HasPrefix(topic, "__") || strings.HasSuffix(topic, "-dlq") || strings.HasSuffix(topic, ".dlq") || isCanary(topic)
}

// Route returns the settings of a topic: from its own entry, as the canary topic, from the entry whose dead letters it
// takes, or from the first pattern in the file that covers it, in this order. meant is false if the configuration does
// not cover the topic. The error says why a covered topic cannot have a table.
func (c *Config) Route(topic string) (t Topic, meant bool, err error) {
	if t, ok := c.Topics[topic]; ok {
		return t, true, nil
	}
	if t, ok := c.Canary(topic); ok {
		return t, true, nil
	}
	if t, archived, dead, err := c.letters(topic); dead {
		return t, archived, err // no pattern matches a dead-letter topic
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

// Beyond returns the topics that exceed max_topics of their pattern, each with the reason. The first ones in names stay
// covered.
func (c *Config) Beyond(names []string) map[string]string {
	matching := map[*Pattern][]string{}
	for _, name := range names {
		_, _, dead, _ := c.letters(name) // dead-letter topics and canary topics have tables of their own
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

// Meant returns the topics and patterns of the configuration, for errors that list the alternatives.
func (c *Config) Meant() []string {
	all := c.TopicNames()
	for _, p := range c.Patterns {
		all = append(all, p.Pattern)
	}
	return all
}

// patternEntry reads an entry of topics with a pattern.
func (l *loader) patternEntry(name string, n *yaml.Node) {
	p := &Pattern{Name: name, MaxTopics: defaultMaxTopics, Topic: l.config.Defaults}
	path := "topics." + name
	if !legalName(name, 249) {
		l.problem(l.places[path], path, "is not a valid entry name: write letters, digits, dot, underscore and dash, and the pattern itself after pattern:")
		return
	}
	keys := p.keys()
	l.mapping(scope{prefix: path + ".", keys: keys}, "", n)
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

// checkPattern checks the path of the tables that the topics of a pattern feed.
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
