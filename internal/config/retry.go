package config

import (
	"fmt"
	"slices"
	"time"

	"go.yaml.in/yaml/v3"

	"sluice/reliability"
)

// curves are the values of record_retry.backoff.
var curves = []string{string(reliability.Exponential), string(reliability.Linear), string(reliability.Scheduled)}

const (
	minPause, longestPause = time.Millisecond, 24 * time.Hour
	maxPauses              = 100
)

// pauses returns the [value] of a key that takes a list of durations. The list may be empty, and durations in it may
// be equal.
func pauses(p *[]time.Duration) value {
	allowed := fmt.Sprintf("list of durations from %s to %s", FormatDuration(minPause), FormatDuration(longestPause))
	return value{
		allowed: allowed,
		list:    true,
		set: func(texts []string) error {
			all := make([]time.Duration, 0, len(texts))
			for _, s := range texts {
				d, err := parseDuration(s, time.Second)
				if err == nil && (d < minPause || d > longestPause) {
					err = outOfRange(s, allowed)
				}
				if err != nil {
					return err
				}
				all = append(all, d)
			}
			if len(all) > maxPauses {
				return fmt.Errorf("has %d pauses: write %d at most", len(all), maxPauses)
			}
			if *p = nil; len(all) > 0 {
				*p = all
			}
			return nil
		},
		node: func() *yaml.Node {
			n := &yaml.Node{Kind: yaml.SequenceNode, Style: yaml.FlowStyle}
			for _, d := range *p {
				n.Content = append(n.Content, scalar("!!str", FormatDuration(d)))
			}
			return n
		},
	}
}

// checkRecordRetry reports a problem if keys of a topic's record_retry contradict each other. A schedule in defaults
// is no contradiction: it applies only to topics with backoff: schedule.
func (l *loader) checkRecordRetry(name string, t *Topic) {
	r := &t.RecordRetry
	key := func(name2 string) string { return l.set(name, "record_retry."+name2) }
	backoff, schedule, wait, most := key("backoff"), key("schedule"), key("wait"), key("max")
	if slices.ContainsFunc([]string{backoff, schedule, wait, most}, l.failed) {
		return
	}
	own := "topics." + name + "."
	switch scheduled := r.Backoff == string(reliability.Scheduled); {
	case scheduled && len(r.Schedule) == 0:
		l.report(l.at(backoff), "schedule needs its pauses: write schedule: [1s, 5s, 30s]")
	case scheduled && l.has(most) && sameScope(own, most, schedule) && r.Max != len(r.Schedule):
		l.report(l.at(most), "is %d beside a schedule of %d pauses, whose number counts: remove it", r.Max, len(r.Schedule))
	case !scheduled && len(r.Schedule) > 0:
		if sameScope(own, schedule, backoff) || l.has(own+"record_retry.schedule") {
			l.report(l.at(schedule), "has no effect with backoff: %s: write backoff: schedule, or remove it", r.Backoff)
		}
		r.Schedule = nil
	case r.Backoff == string(reliability.Exponential) && r.Wait > l.config.Retry.Max && !l.failed("retry.max"):
		l.report(l.at(wait), "%s is above retry.max (%s), the longest pause of backoff: exponential: write a shorter one, or another backoff",
			FormatDuration(r.Wait), FormatDuration(l.config.Retry.Max))
	}
}

// sameScope reports whether two keys are in the same entry: both in the topic's entry, whose prefix is own, or both in
// defaults.
func sameScope(own, a, b string) bool {
	in := func(key string) bool { return len(key) > len(own) && key[:len(own)] == own }
	return in(a) == in(b)
}

// RecordRetry returns the retry policy for single records of a topic.
func (c *Config) RecordRetry(t Topic) reliability.RecordRetry {
	return reliability.RecordRetry{
		Max: t.RecordRetry.Max, Wait: t.RecordRetry.Wait, Curve: reliability.Curve(t.RecordRetry.Backoff), Schedule: t.RecordRetry.Schedule,
		Cap: c.Retry.Max, Jitter: c.Retry.Jitter,
	}
}
