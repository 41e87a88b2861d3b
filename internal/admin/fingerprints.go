package admin

import (
	"cmp"
	"context"
	"math"
	"slices"
	"strings"
	"time"

	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/scan"
	"sluice/sink/opslog"
)

// WindowReport are those of a table.
type WindowReport struct {
	URL        string            `json:"url"`
	Identity   string            `json:"identity"`
	Partitions []PartitionWindow `json:"partitions"`
	Bytes      int64             `json:"bytes"`           // that a member would take for all of them
	Limit      int64             `json:"limit"`           // that one may take, for all of its tables; 0 if a database remembers
	Forgotten  int64             `json:"beyond_limit"`    // entries that would be forgotten for want of memory
	Seconds    float64           `json:"rebuild_seconds"` // that reading took here
}

// PartitionWindow is the window of a partition.
type PartitionWindow struct {
	Topic     string     `json:"topic"`
	Partition int32      `json:"partition"`
	Entries   int64      `json:"entries"`
	None      int64      `json:"rows_without_identity"`
	From      *time.Time `json:"from"` // null if nothing was remembered yet
	Newest    *time.Time `json:"newest"`
	Reset     int64      `json:"reset_below"`
}

// Fingerprints fills the windows of a table as a member would.
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
	identifier, err := info.Schema.Identifier(id)
	if err != nil {
		return nil, err
	}
	type window struct {
		scope      idempotency.Scope
		next       int64
		from       int64
		newest     int64
		shown      *PartitionWindow
		remembered bool
	}
	type source struct {
		topic     string
		partition int32
	}
	at := map[string]int64{}
	for _, t := range info.Txns {
		at[t.AppID] = t.Version
	}
	all, q := map[source]*window{}, scan.Query{Columns: append([][]string{identifier.Path()}, kafkaPaths...)}
	oldest := int64(-1)
	for _, t := range info.Txns {
		app, err := idempotency.ParseAppID(t.AppID)
		if err != nil || app.TableID != "" || app.Pipeline != o.config.Pipeline || !slices.Contains(o.topics, app.Partition.Topic) {
			continue
		}
		p := app.Partition
		below := operations.Forgotten(p.Topic, p.TopicID.String(), p.ID)
		win := &window{
			scope: idempotency.Scope{Pipeline: app.Pipeline, TableID: info.ID, Partition: p}, next: t.Version,
			shown: &PartitionWindow{Topic: p.Topic, Partition: p.ID, Reset: below},
		}
		if newest, ok := at[p.NewestAppID(app.Pipeline)]; ok {
			win.remembered, win.newest = true, newest
			win.from = max(newest-o.table.Identity.Window.Milliseconds(), 0)
			first, last := time.UnixMilli(win.from).UTC(), time.UnixMilli(newest).UTC()
			win.shown.From, win.shown.Newest = &first, &last
			if oldest < 0 || win.from < oldest {
				oldest = win.from
			}
			q.Where = append(q.Where, scan.Where{Topic: p.Topic, Partition: p.ID, From: below, Next: t.Version})
		}
		all[source{p.Topic, p.ID}] = win
	}
	memory := idempotency.NewMemory(cmp.Or(w.Limit, math.MaxInt64), nil)
	if len(q.Where) > 0 {
		q.Since = time.UnixMilli(oldest)
		err = delta.Scan(ctx, o.store, q, func(rows scan.Rows) error {
			return delta.EntriesOf(identifier, rows, func(topic string, partition int32, entries []idempotency.Entry) error {
				win := all[source{topic, partition}]
				if win == nil || !win.remembered {
					return nil
				}
				return memory.Remember(ctx, win.scope, 0, 0, func(yield func(idempotency.Entry) bool) {
					for _, e := range entries {
						at, dated := idempotency.Effective(e.At, rows.Written)
						if at = min(at, win.newest); !dated || at < win.from || e.Offset < win.shown.Reset || e.Offset >= win.next {
							continue
						}
						if e.Fingerprint.IsZero() {
							win.shown.None++
						} else if e.At = at; !yield(e) {
							return
						}
					}
				})
			})
		})
		if err != nil {
			return nil, err
		}
	}
	for _, win := range all {
		win.shown.Entries = memory.Entries(win.scope)
		w.Partitions = append(w.Partitions, *win.shown)
	}
	slices.SortFunc(w.Partitions, func(a, b PartitionWindow) int {
		if a.Topic != b.Topic {
			return strings.Compare(a.Topic, b.Topic)
		}
		return int(a.Partition) - int(b.Partition)
	})
	s := memory.Stats()
	w.Bytes, w.Forgotten, w.Seconds = s.Bytes, s.Lost, time.Since(began).Seconds()
	return w, nil
}

// kafkaPaths are the columns that entries need beside their identity, in the order of delta.Recalled.
var kafkaPaths = [][]string{{schema.KafkaTopic}, {schema.KafkaPartition}, {schema.KafkaOffset}, {schema.KafkaTimestamp}}
