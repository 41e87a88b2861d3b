package config

import (
	"strings"
	"time"

	"sluice/health"
)

// Lag is the section health.lag: which lag makes a member unhealthy.
type Lag struct {
	Max    int64 // the largest lag of one partition, in records
	Every  time.Duration
	Window int // the number of polls
	Rises  int
}

// DefaultLag returns the defaults of the section.
func DefaultLag() Lag {
	return Lag{Max: 10_000, Every: 10 * time.Second, Window: 5, Rises: 3}
}

const maxLag = 1_000_000_000_000

func (c *Lag) keys() []key {
	return []key{
		{"health.lag.max", count(&c.Max, 1, maxLag), ""},
		{"health.lag.every", duration(&c.Every, time.Second, time.Hour), ""},
		{"health.lag.window", count(&c.Window, 2, 1_000), ""},
		{"health.lag.rises", count(&c.Rises, 1, 999), ""},
	}
}

// LagRules returns the rules of the lag monitor. Their field Topic is set only if the configuration has exactly one
// topic and no pattern.
func (c *Config) LagRules() health.LagRules {
	lag := c.Health.Lag
	rules := health.LagRules{Max: lag.Max, Every: lag.Every, Window: lag.Window, Rises: lag.Rises}
	if names := c.TopicNames(); len(names) == 1 && len(c.Patterns) == 0 {
		rules.Topic = names[0]
	}
	return rules
}

// thresholdKeys returns the keys of a topic's section lag.
func thresholdKeys(t *health.LagThresholds) []key {
	return []key{
		{"lag.warning", count(&t.Warning, 0, maxLag), ""},
		{"lag.critical", count(&t.Critical, 0, maxLag), ""},
	}
}

// checkThresholds reports a problem if lag.warning is greater than lag.critical.
func (l *loader) checkThresholds(name string, t *Topic) {
	warning, critical := l.set(name, "lag.warning"), l.set(name, "lag.critical")
	if t.Lag.Critical == 0 || t.Lag.Warning <= t.Lag.Critical || l.failed(warning) || l.failed(critical) {
		return
	}
	at := critical
	if own := "topics." + name + "."; strings.HasPrefix(warning, own) || !strings.HasPrefix(critical, own) && l.has(warning) {
		at = warning
	}
	l.report(l.at(at), "of topic %s, lag.warning %d must not be above lag.critical %d: change one of them", name, t.Lag.Warning, t.Lag.Critical)
}
