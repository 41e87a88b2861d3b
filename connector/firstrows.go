package connector

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"sluice/idempotency"
	"sluice/reliability/hold"
)

// No txn and no committed offset are no proof of a first start: a table drops txns if it is told to, and Kafka drops the
// offsets of a group that is gone for a week. The rows of the table show it then. They are looked at whatever properties
// the table has: one that dropped txns may have been unset since, and no version that is left would tell.

// AnyPartition stands for all partitions of a topic, in [RowsOf].
const AnyPartition int32 = -1

// RowsOf names rows of a table by the place in Kafka that their columns tell.
type RowsOf struct {
	Topic     string
	Partition int32 // or AnyPartition
}

// RowsBefore returns the rows that forbid a START of those of a topic's partitions that have no position: the rows of the
// topic, or the partition's own if other partitions of the topic have positions. The others prove that the topic was
// begun, not that the partition is new: txns expire one by one.
func RowsBefore(s *Snapshot, pipeline, topic string, partitions []Partition) (all []RowsOf) {
	known := history(s, topic)
	for _, p := range partitions {
		if _, positioned := s.Positions[p.AppID(pipeline)]; !positioned {
			all = append(all, rowsBefore(p, added(p, known, pipeline)))
		}
	}
	return slices.Compact(all)
}

func rowsBefore(p Partition, added bool) RowsOf {
	if added {
		return RowsOf{p.Topic, p.ID}
	}
	return RowsOf{p.Topic, AnyPartition}
}

// detail says what to do about such rows.
func (of RowsOf) detail() string {
	if of.Partition != AnyPartition {
		return fmt.Sprintf("the table has rows of partition %d of topic %q and no position for it, so its records would become rows twice: "+
			"set its position with offsets set, to the largest _kafka_offset of these rows plus 1", of.Partition, of.Topic)
	}
	return fmt.Sprintf("the table has rows of topic %q and no position for it, so its records would become rows twice: take the "+
		"positions over with offsets adopt, or pause the topic, begin it with offsets start, correct it with offsets set, and resume it", of.Topic)
}

// rowsStay is how long the finding that there are rows and no position stands before the table is searched again: that
// may take a while, and rows seldom go.
const rowsStay = time.Hour

// rowsFound is such a finding.
type rowsFound struct {
	table string // its id
	at    time.Time
}

// withoutRows takes first positions away whose rows are in the table already: those of a topic as a whole, which failures
// tells then, or those of partitions that were added to it, which are held. One search answers for all. If it fails,
// failures tells so for each topic that it was about.
func (w *writer) withoutRows(ctx context.Context, planned map[string]*initial, failures map[string]error, holdOne func(Partition, hold.Reason, string)) {
	search := map[RowsOf]bool{}
	for _, i := range planned {
		if i == nil {
			continue
		}
		for p := range i.starts {
			of := rowsBefore(p, i.added)
			if f, found := w.rows[of]; !found || f.table != w.snapshot.TableID || time.Since(f.at) >= rowsStay {
				delete(w.rows, of)
				search[of] = true
			}
		}
	}
	var err error
	if len(search) > 0 {
		err = w.searchRows(ctx, slices.SortedFunc(maps.Keys(search), compareRows))
	}
	for name, i := range planned {
		if i == nil {
			continue
		}
		for p := range i.starts {
			of := rowsBefore(p, i.added)
			_, found := w.rows[of]
			switch {
			case err != nil && search[of]:
				failures[name] = err
			case found && i.added:
				holdOne(p, hold.UnknownHistory, of.detail())
				delete(i.starts, p)
			case found:
				failures[name] = hold.New(hold.UnknownHistory, of.detail(), nil)
			}
		}
	}
}

// searchRows looks for rows in the table, and keeps what it found.
func (w *writer) searchRows(ctx context.Context, of []RowsOf) error {
	found, err := w.table.HasRows(ctx, w.snapshot, of, !Follows(w.snapshot, w.pipeline))
	if err != nil {
		return err
	}
	for of, has := range found {
		if has {
			w.rows[of] = rowsFound{w.snapshot.TableID, time.Now()}
		}
	}
	return nil
}

func compareRows(a, b RowsOf) int {
	return Partition{Topic: a.Topic, ID: a.Partition}.Compare(Partition{Topic: b.Topic, ID: b.Partition})
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
