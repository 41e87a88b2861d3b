package config

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"sluice/connector/decode"
	"sluice/reliability/deadletter"
)

// Dead letters become rows of a letter table. A dead-letter topic needs no entry in the configuration for that.

const (
	badHold       = "hold"
	badDeadLetter = "dead_letter"
	archiveNone   = "none"
	// TopicPlaceholder is the placeholder for a topic's name in templates.
	TopicPlaceholder = "{topic}"
)

// Archives reports whether the dead letters of the topic become rows of a letter table.
func (t *Topic) Archives() bool {
	return t.WritesLetters() && t.DeadLetters.Archive != archiveNone
}

// IsLetters reports whether the topic is a dead-letter topic.
func (t *Topic) IsLetters() bool { return t.Format == decode.FormatDeadLetters }

// readsLetters replaces all settings of t, except table, start and commit, by those of a topic whose records are dead
// letters. A bad record of such a topic holds its partition, because a dead letter cannot become another dead letter.
func (t *Topic) readsLetters() {
	d := Default().Defaults
	d.Table, d.Start, d.StartAt, d.Commit = t.Table, t.Start, t.StartAt, t.Commit
	d.Format, d.Schema, d.BadRecords = decode.FormatDeadLetters, decode.DeadLetterDDL, badHold
	d.HealthRecords = HealthRecords{} // a dead letter has the headers of its record, also that of a health check
	*t = d
}

// ofLetters reports whether a key is allowed in an entry with format: dead_letter.
func ofLetters(key string) bool {
	switch section, _, _ := strings.Cut(key, "."); section {
	case "pattern", "deny", "table", "format", "start", "start_at", "commit":
		return true
	}
	return false
}

// LetterSource is an entry of topics whose dead letters go to a given dead-letter topic.
type LetterSource struct {
	entry string
	Name  string // the topic whose dead letters these are; "" if all topics of a pattern share the dead-letter topic
	*Topic
}

// Sources returns the entries whose dead letters go to a topic: topics in the order of their names, then patterns.
func (c *Config) Sources(deadLetters string) (all []LetterSource) {
	for _, name := range c.TopicNames() {
		t := c.Topics[name]
		if t.WritesLetters() && fills(t.DeadLetters.Topic, name, deadLetters) {
			all = append(all, LetterSource{name, name, &t})
		}
	}
	for _, p := range c.Patterns {
		if !p.WritesLetters() {
			continue
		}
		template := p.DeadLetters.Topic
		if !strings.Contains(template, TopicPlaceholder) {
			if template == deadLetters {
				all = append(all, LetterSource{p.Name, "", &p.Topic})
			}
			continue
		}
		if topic := unfill(template, deadLetters); topic != "" && c.patternOf(topic) == p {
			all = append(all, LetterSource{p.Name, topic, &p.Topic})
		}
	}
	return all
}

// patternOf returns the pattern that covers a topic, nil if there is none or the topic has its own entry.
func (c *Config) patternOf(topic string) *Pattern {
	if _, own := c.Topics[topic]; own {
		return nil
	}
	for _, p := range c.Patterns {
		if p.standsFor(topic) {
			return p
		}
	}
	return nil
}

// fills reports whether text is the template with topic in place of {topic}.
func fills(template, topic, text string) bool {
	before, after, once := strings.Cut(template, TopicPlaceholder)
	if !once || strings.Contains(after, TopicPlaceholder) {
		return strings.ReplaceAll(template, TopicPlaceholder, topic) == text
	}
	return len(text) == len(before)+len(topic)+len(after) && strings.HasPrefix(text, before) && strings.HasSuffix(text, after) &&
		text[len(before):len(before)+len(topic)] == topic
}

// unfill is the reverse of filling a template: it returns the topic with which the template becomes text, "" if there
// is none. The template must contain {topic}.
func unfill(template, text string) string {
	n := strings.Count(template, TopicPlaceholder)
	before := strings.Index(template, TopicPlaceholder)
	size := (len(text) - len(template) + n*len(TopicPlaceholder)) / n
	if size <= 0 || before+size > len(text) {
		return ""
	}
	topic := text[before : before+size]
	if !fills(template, topic, text) {
		return ""
	}
	return topic
}

// letters returns the settings by which members read a dead-letter topic that has no entry in topics. dead reports
// whether name is such a topic. archived reports whether its dead letters become rows; if not, t has no settings. err
// says why the path of the letter table is not valid.
func (c *Config) letters(name string) (t Topic, archived, dead bool, err error) {
	for _, s := range c.Sources(name) {
		dead = true
		if !s.Archives() {
			continue
		}
		t.Table, err = s.archiveIn(name)
		t.Start, t.Commit = "earliest", c.Defaults.Commit
		t.readsLetters()
		return t, true, true, err
	}
	return t, false, dead, nil
}

// archiveIn returns the path of the letter table of a dead-letter topic. It replaces {topic} in the template by the
// topic of the records or, if several topics share the dead-letter topic, by the dead-letter topic.
func (s *LetterSource) archiveIn(deadLetters string) (string, error) {
	topic := s.Name
	if !strings.Contains(s.DeadLetters.Topic, TopicPlaceholder) {
		topic = deadLetters
	}
	return tablePath(s.DeadLetters.Archive, topic)
}

// letterTopics returns, sorted, the dead-letter topics without an entry that feed a letter table. It leaves out those
// of patterns with {topic}: their names are known only once the topics exist.
func (c *Config) letterTopics() []string {
	names := map[string]bool{}
	note := func(t *Topic, topic string) {
		if !t.Archives() {
			return
		}
		name, err := deadletter.TopicName(t.DeadLetters.Topic, topic)
		if _, own := c.Topics[name]; err == nil && !own {
			names[name] = true
		}
	}
	for topic, t := range c.Topics {
		note(&t, topic)
	}
	for _, p := range c.Patterns {
		if !strings.Contains(p.DeadLetters.Topic, TopicPlaceholder) {
			note(&p.Topic, "")
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// lettersHave returns an error if the table at a path would be a letter table, or if one of the two would be inside
// the other. It returns nil if the path is free.
func (c *Config) lettersHave(table string) error {
	taken := func(topic, letters string) error {
		if !strings.HasPrefix(table+"/", letters+"/") && !strings.HasPrefix(letters+"/", table+"/") {
			return nil
		}
		return fmt.Errorf("its table %s meets %s, which has the dead letters of topic %s: deny the topic in its pattern, or write another dead_letters.archive",
			table, letters, topic)
	}
	for _, name := range c.letterTopics() {
		t, _, _, err := c.letters(name)
		if from := c.Sources(name); err == nil {
			if err := taken(from[0].entry, t.Table); err != nil {
				return err
			}
		}
	}
	for _, p := range c.Patterns {
		if !p.Archives() || !strings.Contains(p.DeadLetters.Topic, TopicPlaceholder) || !strings.Contains(p.DeadLetters.Archive, TopicPlaceholder) {
			continue
		}
		if topic := unfill(p.DeadLetters.Archive, table); topic != "" && c.patternOf(topic) == p {
			return taken(topic, table)
		}
	}
	return nil
}

// ComesLater reports whether a topic may be missing in Kafka, because its first dead letter or canary record creates
// it.
func (c *Config) ComesLater(topic string) bool {
	if _, own := c.Topics[topic]; own {
		return false
	}
	_, canary := c.Canary(topic)
	_, archived, _, _ := c.letters(topic)
	return archived || canary
}

// archiveNote returns the note of config print on an entry's dead_letters.archive: which dead-letter topic feeds which
// letter table; "" if the dead letters feed none.
func (c *Config) archiveNote(name string, t *Topic) string {
	if !t.Archives() {
		return ""
	}
	topic := strings.ReplaceAll(t.DeadLetters.Topic, TopicPlaceholder, name)
	if _, own := c.Topics[topic]; own {
		return ", " + topic + " has an entry of its own"
	}
	s := LetterSource{Name: name, Topic: t}
	if _, one := c.Topics[name]; !one {
		topic, s.Name = t.DeadLetters.Topic, TopicPlaceholder
	}
	table := s.DeadLetters.Archive
	if !strings.Contains(s.Name, TopicPlaceholder) {
		table, _ = s.archiveIn(topic) // no error is possible, because the configuration was checked
	}
	return ": topic " + topic + " feeds table " + table
}

// LettersOf returns the dead-letter topic to which a topic writes, or the topic itself if it is a dead-letter topic.
// The result has one name; it is nil if the topic writes no dead letters or the configuration does not cover it.
func (c *Config) LettersOf(topic string) []string {
	t, meant, err := c.Route(topic)
	switch {
	case !meant || err != nil:
		return nil
	case t.IsLetters():
		return []string{topic}
	case t.WritesLetters():
		if name, err := deadletter.TopicName(t.DeadLetters.Topic, topic); err == nil {
			return []string{name}
		}
	}
	return nil
}
