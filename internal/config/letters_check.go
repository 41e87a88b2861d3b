package config

import (
	"strings"

	"sluice/connector/decode"
)

// checkLetterFormat reports problems with keys that have no effect in an entry with format: dead_letter, and sets the
// settings that such an entry always has.
func (l *loader) checkLetterFormat(name string, t *Topic) {
	if !t.IsLetters() {
		return
	}
	for _, k := range t.keys() {
		at := "topics." + name + "." + k.path
		if !l.has(at) || l.failed(at) || ofLetters(k.path) || k.path == "bad_records" {
			continue
		}
		why := "letters are taken as they are"
		if k.path == "schema" {
			why = "a letter table has columns of its own"
		}
		l.report(l.at(at), "does not go with format: %s: %s: remove it", decode.FormatDeadLetters, why)
	}
	if at := "topics." + name + ".bad_records"; t.WritesLetters() && l.has(at) {
		l.report(l.at(at), "does not go with format: %s: there is no letter of a letter: write hold, or remove it", decode.FormatDeadLetters)
	}
	t.readsLetters()
}

// checkArchive checks the letter table of an entry.
func (l *loader) checkArchive(name string, t *Topic) {
	at := l.set(name, "dead_letters.archive")
	if !t.WritesLetters() || l.failed(at) {
		return
	}
	if t.DeadLetters.Archive == archiveNone {
		if d := t.DeadLetters; d.Class != "financial" && d.Create {
			l.warning(l.at(at), "Kafka deletes the dead letters %s after they were written, and no table keeps them: write a table, such as {topic}_letters, or class: financial",
				FormatDays(d.Retention))
		}
		return
	}
	if _, err := tablePath(t.DeadLetters.Archive, "t"); err != nil {
		l.report(l.at(at), "%v", err)
	}
}

// checkLetterTopics checks that entries which share a dead-letter topic agree on its letter table.
func (l *loader) checkLetterTopics() {
	for _, name := range l.config.letterTopics() {
		var first *LetterSource
		var table string
		for _, s := range l.config.Sources(name) {
			if !s.Archives() {
				continue
			}
			other, err := s.archiveIn(name)
			if err != nil {
				continue // checkArchive reports this problem
			}
			if first == nil {
				first, table = &s, other
				continue
			}
			if at := l.set(s.entry, "dead_letters.archive"); other != table && !l.failed(at) {
				l.report(l.at(at), "the letters of topics.%s and topics.%s go to the topic %s, which feeds one table, not %q and %q: "+
					"write the same for both, or another dead_letters.topic", first.entry, s.entry, name, table, other)
			}
		}
	}
}

// letterFeeders returns one feeder for each letter table. Its name is the entry whose dead letters the table gets, and
// its topic has the settings of the dead-letter topic.
func (l *loader) letterFeeders() (all []feeder) {
	c := l.config
	for _, name := range c.letterTopics() {
		t, archived, _, err := c.letters(name)
		if from := c.Sources(name); archived && err == nil {
			all = append(all, feeder{name: from[0].entry, key: "dead_letters.archive", topic: &t, letters: true})
		}
	}
	for _, p := range c.Patterns {
		if p.Archives() && strings.Contains(p.DeadLetters.Topic, TopicPlaceholder) {
			t := Topic{Table: p.DeadLetters.Archive, Start: "earliest", Commit: c.Defaults.Commit}
			t.readsLetters()
			all = append(all, feeder{name: p.Name, key: "dead_letters.archive", topic: &t, pattern: p, letters: true})
		}
	}
	return all
}
