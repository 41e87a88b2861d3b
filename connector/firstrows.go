package connector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/idempotency"
)

// rowsStay is how long the finding that a topic has rows and no position stands before the table is searched again: that
// may take a while, and rows seldom go.
const rowsStay = time.Hour

// rowsFound is such a finding.
type rowsFound struct {
	table string // its id
	at    time.Time
}

// withoutRows takes the plans of initial commits away whose topics have rows in the table already, and says why in
// failures. No txn and no committed offset are no proof of a first start: a table drops txns if it is told to, and Kafka
// drops the offsets of a group that is gone for a week. From the rows it shows then.
func (w *writer) withoutRows(ctx context.Context, plans map[string]*Plan, failures map[string]error) {
	var topics []string
	for _, name := range slices.Sorted(maps.Keys(plans)) {
		switch f, found := w.rows[name]; {
		case plans[name] == nil || plans[name].start == "": // of partitions that were added, whose topic has positions
		case found && f.table == w.snapshot.TableID && time.Since(f.at) < rowsStay:
			plans[name], failures[name] = nil, heldForRows(name)
		default:
			topics = append(topics, name)
		}
	}
	if len(topics) == 0 {
		return
	}
	rows, err := w.table.HasRows(ctx, w.snapshot, topics, !Follows(w.snapshot, w.pipeline))
	for _, name := range topics {
		delete(w.rows, name)
		switch {
		case err != nil:
			plans[name], failures[name] = nil, err
		case rows[name]:
			plans[name], failures[name] = nil, heldForRows(name)
			w.rows[name] = rowsFound{w.snapshot.TableID, time.Now()}
		}
	}
}

func heldForRows(topic string) error {
	return Held(ReasonUnknownHistory, rowsDetail(topic), nil)
}

func rowsDetail(topic string) string {
	return fmt.Sprintf("the table has rows of topic %q and no position for it, so its records would become rows twice: take the "+
		"positions over with offsets adopt, or pause the topic, begin it with offsets start, correct it with offsets set, and resume it", topic)
}

// Follows reports whether the table has a position of the pipeline, for whichever topic: then the pipeline's txns were
// not dropped, unless the table drops single ones.
func Follows(s *Snapshot, pipeline string) bool {
	for appID := range s.Positions {
		if id, err := idempotency.ParseAppID(appID); err == nil && id.Pipeline == pipeline && id.TableID == "" {
			return true
		}
	}
	return false
}
