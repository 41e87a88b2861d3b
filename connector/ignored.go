package connector

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"time"
)

// MaxIgnoredNames bounds the names of ignored fields that are kept per topic: producers choose how many there are.
const MaxIgnoredNames = 100

// Ignored counts the fields that a [Builder] ignored because the schema does not have them.
type Ignored struct {
	Fields int64
	// Names are those of the fields, each once, at most MaxIgnoredNames. Bytes of a record, bounded in length by the builder.
	Names []string
	// More is true if there were other names.
	More bool
}

// IgnoredFields are the names of fields that a commit ignored in the records of a topic. It is part of commitInfo.
type IgnoredFields struct {
	Topic string `json:"topic"`
	// Names are ascending, at most MaxIgnoredNames.
	Names []string `json:"names"`
	// More is true if there were other names.
	More bool `json:"more,omitempty"`
}

// ignoredNames collects names by topic.
type ignoredNames map[string]*ignoredOf

type ignoredOf struct {
	names map[string]bool
	more  bool
}

// add takes names of a topic until there are MaxIgnoredNames.
func (n ignoredNames) add(topic string, names []string, more bool) {
	if len(names) == 0 && !more {
		return
	}
	of := n[topic]
	if of == nil {
		of = &ignoredOf{names: map[string]bool{}}
		n[topic] = of
	}
	of.more = of.more || more
	for _, name := range names {
		if len(of.names) >= MaxIgnoredNames && !of.names[name] {
			of.more = true
			return
		}
		of.names[name] = true
	}
}

// merge takes the names of another lane.
func (n ignoredNames) merge(other ignoredNames) {
	for topic, of := range other {
		n.add(topic, slices.Collect(maps.Keys(of.names)), of.more)
	}
}

// fields returns the names as commitInfo has them, nil without any.
func (n ignoredNames) fields() (all []IgnoredFields) {
	for _, topic := range slices.Sorted(maps.Keys(n)) {
		of := n[topic]
		all = append(all, IgnoredFields{Topic: topic, Names: slices.Sorted(maps.Keys(of.names)), More: of.more})
	}
	return all
}

// ignoredEvery is how often the log repeats the name of an ignored field.
const ignoredEvery = time.Hour

// ignoredLog logs the name of each ignored field once per topic and hour. A writer owns it.
type ignoredLog map[string]*ignoredSince // by topic

type ignoredSince struct {
	ignoredOf

	began time.Time
}

// tell logs the names of a commit that were not logged within the hour.
func (l ignoredLog) tell(ctx context.Context, logger *slog.Logger, fields []IgnoredFields) {
	for _, f := range fields {
		since := l[f.Topic]
		if since == nil || time.Since(since.began) >= ignoredEvery {
			since = &ignoredSince{ignoredOf{names: map[string]bool{}}, time.Now()}
			l[f.Topic] = since
		}
		var names []string
		more := f.More && !since.more
		for _, name := range f.Names {
			if since.names[name] {
				continue
			}
			if len(since.names) == MaxIgnoredNames {
				more = !since.more
				break
			}
			since.names[name] = true
			names = append(names, name)
		}
		since.more = since.more || more
		if len(names) > 0 || more {
			logger.WarnContext(ctx, "fields that the schema does not have are ignored", "topic", f.Topic, "fields", names, "more", more)
		}
	}
}
