package config

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"
)

// Canary is the section health.canary: test records that members produce and look for in a table.
type Canary struct {
	Topic string // "" if there is no canary
	Every time.Duration
}

// canaryDDL is the schema of the canary's table.
const canaryDDL = "id string comment 'of one record', member string comment 'that produced it', sent_at timestamp"

// maxCanaryCommit bounds commit.every of the canary's table.
const maxCanaryCommit = 5 * time.Second

func (c *Canary) keys() []key {
	return []key{
		{"health.canary.topic", text(&c.Topic, canaryName), ""},
		{"health.canary.every", duration(&c.Every, time.Second, time.Hour), ""},
	}
}

// canaryName returns an error unless a name is "" or a valid name of a canary topic. No pattern of any pipeline
// matches such a name.
func canaryName(s string) error {
	if s == "" {
		return nil
	}
	if err := topicName(s); err != nil {
		return err
	}
	if !isCanary(s) {
		return fmt.Errorf("%q does not end in -canary: patterns of all pipelines ignore topics of such names; write %s-canary", s, s)
	}
	return nil
}

// isCanary reports whether a name is that of a canary topic.
func isCanary(topic string) bool {
	return strings.HasSuffix(topic, "-canary") || strings.HasSuffix(topic, ".canary")
}

// Canary returns the settings of a topic if it is the canary topic: its own table at a reserved path, frequent commits,
// no dead letters. It returns false for any other topic.
func (c *Config) Canary(topic string) (t Topic, ok bool) {
	if topic == "" || topic != c.Health.Canary.Topic {
		return t, false
	}
	t = Default().Defaults
	t.Table = path.Join("_sluice", c.Pipeline, "canary")
	t.Schema, t.BadRecords, t.HealthRecords = canaryDDL, badHold, HealthRecords{}
	t.Commit.Every = min(c.Health.Canary.Every/4, maxCanaryCommit)
	return t, true
}

// LaterTopics returns the topics that have no entry but feed a table once they exist: dead-letter topics and the canary
// topic.
func (c *Config) LaterTopics() []string {
	names := c.letterTopics()
	if c.Health.Canary.Topic != "" {
		names = append(names, c.Health.Canary.Topic)
	}
	return slices.Sorted(slices.Values(names))
}

// checkCanary reports a problem if the canary topic also has an entry in topics or is a dead-letter topic.
func (l *loader) checkCanary() {
	const at = "health.canary.topic"
	c := l.config
	name := c.Health.Canary.Topic
	if name == "" || l.failed(at) {
		return
	}
	if _, own := c.Topics[name]; own {
		l.report(l.at(at), "%s has an entry in topics: canaries have a topic of their own, which feeds no table of yours", name)
	} else if from := c.Sources(name); len(from) > 0 {
		l.report(l.at(at), "%s is the dead-letter topic of topics.%s: canaries have a topic of their own", name, from[0].entry)
	}
}
