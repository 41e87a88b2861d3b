package admin

import (
	"cmp"
	"context"
	"iter"
	"maps"
	"math"
	"slices"
	"time"

	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/scan"
	"sluice/sink/opslog"
)

// WindowReport is the content of the fingerprint windows of a table.
type WindowReport struct {
	URL        string            `json:"url"`
	Identity   string            `json:"identity"`
	Partitions []PartitionWindow `json:"partitions"`
	Bytes      int64             `json:"bytes"`           // memory that a member would need for all windows
	Limit      int64             `json:"limit"`           // the memory of a member for the windows of all tables; 0 if Postgres stores them
	Forgotten  int64             `json:"beyond_limit"`    // entries that a member would drop because the memory is full
	Seconds    float64           `json:"rebuild_seconds"` // time that this read of the table took
}

// PartitionWindow is the fingerprint window of a partition.
type PartitionWindow struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Entries   int64      `json:"entries"`
	None      int64      `json:"rows_without_identity"`
	From      *time.Time `json:"from"` // null if the window has no record yet
	Newest    *time.Time `json:"newest"`
	Reset     int64      `json:"reset_below"`
}

// Fingerprints reads the rows of a table and fills the windows as a member would. operations holds the resets of
// operators. The error is [deltalog.ErrNoTable] if the table does not exist.
func Fingerprints(ctx context.Context, o *Table, operations *opslog.State) (*WindowReport, error) {
	began, id := time.Now(), o.table.ProducerIdentity()
	w := &WindowReport{URL: o.URL, Identity: id.String(), Partitions: []PartitionWindow{}, Limit: o.config.Budget.Fingerprints}
	if id.By == idempotency.ByNone {
		return w, nil
	}
	if o.store == nil {
		return nil, deltalog.ErrNoTable
	}
	info, err := delta.Inspect(ctx, o.store)
	if err != nil {
		return nil, err
	}
	if info.Schema == nil {
		return nil, info.Refusal
	}
	columns := info.Schema
	if id.Stored() {
		columns = columns.WithFingerprint() // the next commit adds it, if the table does not have it yet
	}
	identifier, err := columns.Identifier(id)
	if err != nil {
		return nil, err
	}
	all := windowsOf(o, &info, operations)
	memory := idempotency.NewMemory(cmp.Or(w.Limit, math.MaxInt64), nil)
	if info.Schema.Has(identifier.Path()) {
		if err := all.fill(ctx, o, identifier, info.Schema.HasTopicID(), memory); err != nil {
			return nil, err
		}
	}
	w.Partitions = append(w.Partitions, all.sorted(memory)...)
	s := memory.Stats()
	w.Bytes, w.Forgotten, w.Seconds = s.Bytes, s.Lost, time.Since(began).Seconds()
	return w, nil
}

// window is the fingerprint window of a partition, as the txns of its table describe it.
type window struct {
	PartitionWindow
	scope  idempotency.Scope
	next   int64 // the position; rows at this offset or after it are not in the window
	dated  bool  // true if the table has the newest timestamp of the partition, from which the bounds follow
	from   int64 // the bounds of the timestamps, in milliseconds
	newest int64
}

type windows map[source]*window

// windowsOf returns the empty windows of the partitions for which a table has a position. If a topic was created again,
// the table has positions for both topic ids; the window is that of the id with the newer record.
func windowsOf(o *Table, info *delta.Info, operations *opslog.State) windows {
	versions := map[string]int64{}
	for _, t := range info.Txns {
		versions[t.AppID] = t.Version
	}
	all := windows{}
	for _, t := range info.Txns {
		app, err := idempotency.ParseAppID(t.AppID)
		if err != nil || app.TableID != "" || app.Pipeline != o.config.Pipeline || !slices.Contains(o.topics, app.Partition.Topic) {
			continue
		}
		p := app.Partition
		w := &window{
			PartitionWindow: PartitionWindow{
				Topic: p.Topic, Partition: p.ID, Reset: operations.Forgotten(p.Topic, p.TopicID.String(), p.ID),
			},
			scope: idempotency.Scope{Pipeline: app.Pipeline, TableID: info.ID, Partition: p}, next: t.Version,
		}
		if newest, ok := versions[p.NewestAppID(app.Pipeline)]; ok {
			w.dated, w.newest = true, newest
			w.from = max(newest-o.table.Identity.Window.Milliseconds(), 0)
			first, last := time.UnixMilli(w.from).UTC(), time.UnixMilli(newest).UTC()
			w.From, w.Newest = &first, &last
		}
		at := source{p.Topic, p.ID}
		if other := all[at]; other == nil || w.dated && (!other.dated || w.newest > other.newest) {
			all[at] = w
		}
	}
	return all
}

// fill adds to memory the fingerprints of the rows that belong to the windows. It reads the rows of all windows in one
// scan. topicIDs says that the table has a column for topic ids.
func (all windows) fill(ctx context.Context, o *Table, identifier *schema.Identifier, topicIDs bool, memory *idempotency.Memory) error {
	q := scan.Query{Columns: append([][]string{identifier.Path()}, kafkaPaths...)}
	if topicIDs {
		q.Columns = append(q.Columns, []string{schema.KafkaTopicID})
	}
	oldest := int64(math.MaxInt64)
	for _, w := range all {
		if w.dated {
			q.Where = append(q.Where, scan.Where{Topic: w.Topic, Partition: w.Partition, From: w.Reset, Next: w.next})
			oldest = min(oldest, w.from)
		}
	}
	if len(q.Where) == 0 { // without a condition, the query would return all rows
		return nil
	}
	q.Since = time.UnixMilli(oldest)
	return delta.Scan(ctx, o.store, q, func(rows scan.Rows) error {
		return delta.EntriesOf(identifier, rows, func(of scan.Place, entries []idempotency.Entry) error {
			w := all[source{of.Topic, of.Partition}]
			if w == nil || !w.dated || of.TopicID != "" && of.TopicID != w.scope.Partition.TopicID.String() {
				return nil
			}
			return memory.Remember(ctx, w.scope, 0, 0, w.inBounds(entries, rows.Written))
		})
	})
}

// inBounds returns those entries that belong to the window, with the timestamps that a member would give them, and
// counts the rows without an identity in w.None. written is when the rows were written, in milliseconds.
func (w *window) inBounds(entries []idempotency.Entry, written int64) iter.Seq[idempotency.Entry] {
	return func(yield func(idempotency.Entry) bool) {
		for _, e := range entries {
			at, dated := idempotency.Effective(e.At, written)
			if at = min(at, w.newest); !dated || at < w.from || e.Offset < w.Reset || e.Offset >= w.next {
				continue
			}
			if e.Fingerprint.IsZero() {
				w.None++
			} else if e.At = at; !yield(e) {
				return
			}
		}
	}
}

// sorted returns the windows in the order of topics and partitions, with the number of entries that memory has of each.
func (all windows) sorted(memory *idempotency.Memory) (shown []PartitionWindow) {
	for _, at := range slices.SortedFunc(maps.Keys(all), compareSources) {
		w := all[at]
		w.Entries = memory.Entries(w.scope)
		shown = append(shown, w.PartitionWindow)
	}
	return shown
}

// kafkaPaths are the columns that [delta.EntriesOf] needs in addition to the identity, in the order that it needs.
var kafkaPaths = [][]string{{schema.KafkaTopic}, {schema.KafkaPartition}, {schema.KafkaOffset}, {schema.KafkaTimestamp}}
