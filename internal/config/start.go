package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"

	"sluice/connector"
)

// StartAt is the value of start_at, which start: timestamp and start: explicit need. The zero value means unset.
type StartAt struct {
	Time time.Time
	Back time.Duration // how long before the start of the member
	// Offsets has the first offsets by partition. Others is the start policy of partitions that are not in Offsets.
	Offsets map[int32]int64
	Others  string // earliest or latest, "" is earliest
}

// IsZero reports whether start_at is unset.
func (a *StartAt) IsZero() bool { return a.Time.IsZero() && a.Back == 0 && !a.Explicit() }

// Explicit reports whether a has offsets, as start: explicit needs.
func (a *StartAt) Explicit() bool { return len(a.Offsets) > 0 || a.Others != "" }

const startAtExample = "a time such as 2026-01-31T08:00:00Z, a duration back such as 24h, or partitions with offsets such as {0: 1200, 1: 1180, others: latest}"

// startAt returns a value that accepts a time, a duration, or a mapping of partitions to offsets.
func startAt(p *StartAt) value {
	return value{
		allowed: "time (RFC 3339), duration back, or {partition: offset, others: earliest | latest}",
		pairs:   true,
		set: func(texts []string) error {
			a, err := ParseStartAt(texts)
			if err == nil {
				*p = a
			}
			return err
		},
		node: p.node,
	}
}

// ParseStartAt parses start_at: one text with a time or a duration back, or "partition: offset" texts. Its errors say
// what to write.
func ParseStartAt(texts []string) (StartAt, error) {
	if len(texts) == 1 && !strings.Contains(texts[0], ": ") {
		if texts[0] == "" {
			return StartAt{}, nil
		}
		t, err := time.Parse(time.RFC3339, texts[0])
		if err == nil {
			return StartAt{Time: t}, nil
		}
		if d, durationErr := parseDuration(texts[0], 24*time.Hour); durationErr == nil {
			if d <= 0 {
				return StartAt{}, fmt.Errorf("%s is not in the past: write %s", texts[0], startAtExample)
			}
			return StartAt{Back: d}, nil
		} else if _, after, found := strings.Cut(durationErr.Error(), ": write "); found && !strings.Contains(durationErr.Error(), "is not a duration") {
			return StartAt{}, fmt.Errorf("%q is neither a time nor a duration with its unit: write %s", texts[0], after)
		}
		return StartAt{}, fmt.Errorf("%q is not understood: write %s", texts[0], startAtExample)
	}
	if len(texts) == 0 {
		return StartAt{}, errors.New("is empty: write " + startAtExample)
	}
	a := StartAt{Offsets: map[int32]int64{}}
	for _, pair := range texts {
		name, text, _ := strings.Cut(pair, ": ")
		if name == "others" {
			if text != string(connector.StartEarliest) && text != string(connector.StartLatest) {
				return StartAt{}, fmt.Errorf("others: %s is unknown: write earliest or latest", text)
			}
			a.Others = text
			continue
		}
		id, err := strconv.ParseInt(name, 10, 32)
		if err != nil || id < 0 {
			return StartAt{}, fmt.Errorf("%q is not a partition: write its number, or others", name)
		}
		offset, err := strconv.ParseInt(text, 10, 64)
		if err != nil || offset < 0 {
			return StartAt{}, fmt.Errorf("partition %d: %q is not an offset: write a whole number, the first offset to read", id, text)
		}
		a.Offsets[int32(id)] = offset
	}
	return a, nil
}

func (a *StartAt) node() *yaml.Node {
	switch {
	case !a.Time.IsZero():
		return scalar("!!str", a.Time.Format(time.RFC3339Nano))
	case a.Back != 0:
		return scalar("!!str", FormatDuration(a.Back))
	case !a.Explicit():
		return scalar("!!str", "")
	}
	n := &yaml.Node{Kind: yaml.MappingNode, Style: yaml.FlowStyle}
	for _, id := range slices.Sorted(maps.Keys(a.Offsets)) {
		n.Content = append(n.Content, scalar("!!int", strconv.Itoa(int(id))), scalar("!!int", strconv.FormatInt(a.Offsets[id], 10)))
	}
	if a.Others != "" {
		n.Content = append(n.Content, scalar("!!str", "others"), scalar("!!str", a.Others))
	}
	return n
}

// checkStart reports a problem if start and start_at of a topic contradict each other. A start_at in defaults is no
// contradiction: it applies only to topics whose start needs it.
func (l *loader) checkStart(name string, t *Topic) {
	at, start := l.set(name, "start_at"), l.set(name, "start")
	if l.failed(at) || l.failed(start) {
		return
	}
	switch {
	case t.Start == "timestamp" && (t.StartAt.Explicit() || t.StartAt.IsZero()):
		l.report(l.at(start), "timestamp needs a time: write start_at: 2026-01-31T08:00:00Z, or a duration back such as start_at: 24h")
	case t.Start == "explicit" && !t.StartAt.Explicit():
		l.report(l.at(start), "explicit needs offsets: write start_at: {0: 1200, 1: 1180, others: earliest}")
	case t.Start != "timestamp" && t.Start != "explicit" && !t.StartAt.IsZero():
		if !strings.HasPrefix(at, "defaults.") || strings.HasPrefix(start, "defaults.") {
			l.report(l.at(at), "has no effect with start: %s: write start: timestamp or start: explicit, or remove it", t.Start)
		}
		t.StartAt = StartAt{}
	}
}

// ReadFrom returns the start of the topic as a [connector.Start].
func (t *Topic) ReadFrom() connector.Start {
	return connector.Start{
		Policy: connector.StartPolicy(t.Start), At: t.StartAt.Time, Back: t.StartAt.Back, Offsets: t.StartAt.Offsets,
		Others: connector.StartPolicy(t.StartAt.Others),
	}
}
