package commit

import (
	"context"
	"log/slog"
	"time"

	"sluice/connector"
)

// ignoredInterval is the interval at which the log repeats the name of an ignored field.
const ignoredInterval = time.Hour

// ignoredLog logs the name of each ignored field once per topic and hour. The writer of the table owns it. The keys are
// topics.
type ignoredLog map[string]*ignoredSince

// ignoredSince has the names of a topic that were logged since began.
type ignoredSince struct {
	began time.Time
	names map[string]bool
	more  bool
}

// log logs those names of ignored fields that it has not logged within the hour.
func (l ignoredLog) log(ctx context.Context, logger *slog.Logger, fields []connector.IgnoredFields) {
	for _, f := range fields {
		since := l[f.Topic]
		if since == nil || time.Since(since.began) >= ignoredInterval {
			since = &ignoredSince{began: time.Now(), names: map[string]bool{}}
			l[f.Topic] = since
		}
		var names []string
		more := f.More && !since.more
		for _, name := range f.Names {
			if since.names[name] {
				continue
			}
			if len(since.names) == connector.MaxIgnoredNames {
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
