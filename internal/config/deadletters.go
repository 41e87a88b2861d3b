package config

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	"sluice/connector"
	"sluice/connector/kafka"
	"sluice/reliability/deadletter"
)

// DeadLetters is the section dead_letters of a topic: the destination of its bad records.
type DeadLetters struct {
	Topic     string // template of the dead-letter topic; {topic} is the topic
	Create    bool
	Envelope  string // headers or json
	Class     string // standard or financial
	Retention time.Duration
	HoldAbove float64 // share of records: 0.5 is 50%
	Archive   string  // template of the letter table, or "none"; {topic} is the topic
}

// defaultDeadLetters returns the defaults of the section.
func defaultDeadLetters() DeadLetters {
	return DeadLetters{
		Topic: "{topic}-dlq", Create: true, Envelope: string(deadletter.EnvelopeHeaders), Class: "standard", Retention: 30 * day, HoldAbove: 0.5,
		Archive: "{topic}_letters",
	}
}

func (d *DeadLetters) keys() []key {
	return []key{
		{"dead_letters.topic", text(&d.Topic, letterTemplate), ""},
		{"dead_letters.create", boolean(&d.Create), ""},
		{"dead_letters.envelope", choice(&d.Envelope, nil, string(deadletter.EnvelopeHeaders), string(deadletter.EnvelopeJSON)), ""},
		{"dead_letters.class", choice(&d.Class, nil, "standard", "financial"), ""},
		{"dead_letters.retention", days(&d.Retention, time.Hour, 3650*day), ""},
		{"dead_letters.hold_above", percent(&d.HoldAbove, 0, 1), ""},
		{"dead_letters.archive", text(&d.Archive, nil), ""},
	}
}

// letterTemplate returns an error unless a template for dead-letter topics makes a valid name that differs from the
// name of the topic.
func letterTemplate(s string) error {
	if _, err := deadletter.TopicName(s, "t"); err != nil {
		return fmt.Errorf("%q makes no name of another topic: write one of letters, digits, '.', '_', '-' and {topic}, such as {topic}-dlq", s)
	}
	return nil
}

// WritesLetters reports whether bad records of the topic become dead letters.
func (t *Topic) WritesLetters() bool { return t.BadRecords == "dead_letter" }

// Rules returns the rules by which bad records become dead letters, nil if a bad record holds its partition.
func (t *Topic) Rules() *connector.LetterRules {
	if !t.WritesLetters() {
		return nil
	}
	return &connector.LetterRules{HoldAbove: t.DeadLetters.HoldAbove}
}

// LetterTopic returns the dead-letter topic of a topic. Kafka keeps dead letters of the class financial for ever.
func (t *Topic) LetterTopic(topic string) (kafka.LetterTopic, error) {
	d := t.DeadLetters
	name, err := deadletter.TopicName(d.Topic, topic)
	to := kafka.LetterTopic{Name: name, Create: d.Create, Retention: d.Retention, Envelope: deadletter.Envelope(d.Envelope)}
	if d.Class == "financial" {
		to.Retention = -1
	}
	return to, err
}

// LetterTopic returns the dead-letter topic of a topic that the configuration covers.
func (c *Config) LetterTopic(topic string) (kafka.LetterTopic, error) {
	t, _, err := c.Route(topic)
	if err != nil {
		return kafka.LetterTopic{}, err
	}
	return t.LetterTopic(topic)
}

// checkLetters checks the dead-letter topics. Records of such a topic must not become rows of an ordinary table, so its
// entry, if it has one, needs format: dead_letter. Topics that share a dead-letter topic must agree on its settings.
func (l *loader) checkLetters() {
	type use struct {
		entry string
		to    kafka.LetterTopic
	}
	uses := map[string]use{}
	for _, name := range l.config.TopicNames() {
		t := l.config.Topics[name]
		l.checkRetention(name, &t)
		at := l.set(name, "dead_letters.topic")
		if !t.WritesLetters() || l.failed(at) {
			continue
		}
		to, err := t.LetterTopic(name)
		if err != nil {
			l.report(l.at(at), "%v", err)
			continue
		}
		if source, read := l.config.Topics[to.Name]; read && !source.IsLetters() {
			l.report(l.at(at), "the dead letters of %s would go to %s, whose records become rows: write another dead_letters.topic", name, to.Name)
			continue
		}
		first, shared := uses[to.Name]
		if !shared {
			uses[to.Name] = use{name, to}
		} else if first.to != to {
			l.report(l.at(at), "topics %s and %s share the dead-letter topic %s and must agree on create, envelope, class and retention: "+
				"write the same for both, or another dead_letters.topic", first.entry, name, to.Name)
		}
	}
	for _, p := range l.config.Patterns {
		l.checkRetention(p.Name, &p.Topic)
		name := p.DeadLetters.Topic
		if source, read := l.config.Topics[name]; read && p.WritesLetters() && !source.IsLetters() {
			l.report(l.at(l.set(p.Name, "dead_letters.topic")), "the dead letters of %s would go to %s, whose records become rows: write another dead_letters.topic",
				p.Name, name)
		}
	}
}

// checkRetention warns if an entry with class: financial sets dead_letters.retention, which has no effect.
func (l *loader) checkRetention(name string, t *Topic) {
	if at := l.set(name, "dead_letters.retention"); t.DeadLetters.Class == "financial" && l.has(at) {
		l.warning(l.at(at), "has no effect with class: financial, whose dead letters are kept for ever: remove it")
	}
}

const day = 24 * time.Hour

// days returns the [value] of a key that takes a duration from low to high. The unit d for days is allowed.
func days(p *time.Duration, low, high time.Duration) value {
	allowed := "duration from " + FormatDays(low) + " to " + FormatDays(high)
	return one(p, allowed, "!!str", func(s string) (time.Duration, error) {
		d, err := parseDays(s, *p)
		if err == nil && (d < low || d > high) {
			err = outOfRange(s, allowed)
		}
		return d, err
	}, FormatDays)
}

func parseDays(s string, example time.Duration) (time.Duration, error) {
	if number, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseInt(number, 10, 16); err == nil {
			return time.Duration(n) * day, nil
		}
		return 0, fmt.Errorf("%q is not a number of days: write a whole number and d, such as %s", s, FormatDays(example))
	}
	if _, err := strconv.ParseFloat(s, 64); err == nil {
		return 0, fmt.Errorf("%q has no unit: write %sd, or another unit (ms, s, m, h)", s, s)
	}
	return parseDuration(s, example)
}

// FormatDays formats a duration: in days if it is a whole number of days, otherwise as [FormatDuration] does.
func FormatDays(d time.Duration) string {
	if d > 0 && d%day == 0 {
		return strconv.FormatInt(int64(d/day), 10) + "d"
	}
	return FormatDuration(d)
}
