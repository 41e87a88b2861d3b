package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

const (
	topic      = "records"
	partitions = 2
	firstTime  = 1_750_000_000_000
	ingestedAt = 1_760_000_000_000
)

// tableFile has the columns and rows of a case as the readers must return them, Kafka columns first.
type tableFile struct {
	Name    string           `json:"name"`
	Checks  []int            `json:"checks"`
	Columns []map[string]any `json:"columns"`
	Rows    [][]any          `json:"rows"`
	// Versions has a pair for each version: the number and how many of the rows it has.
	Versions [][2]int64 `json:"versions"`
}

// writer writes one case.
type writer struct {
	c      testCase
	dir    string // of the table
	store  objstore.Store
	table  *delta.Table
	snap   *connector.Snapshot
	next   [partitions]int64
	expect tableFile
}

func guard() *reliability.Guard {
	return reliability.NewGuard("store", reliability.Config{
		Backoff:  reliability.Backoff{Initial: time.Second, Max: 30 * time.Second, Jitter: .25},
		Failures: 5, OpenFor: time.Minute, Successes: 3,
	}, slog.New(slog.DiscardHandler), nil)
}

// write writes a case with the product's decoder and table.
func write(ctx context.Context, root string, store objstore.Store, c testCase) (tableFile, error) {
	w := &writer{c: c, dir: filepath.Join(root, c.name), store: objstore.Sub(store, c.name)}
	w.expect = tableFile{Name: c.name, Checks: c.checks, Columns: describe(c.tableColumns())}
	if err := w.open(ctx, without(c.columns, c.later)); err != nil {
		return w.expect, err
	}
	defer func() { w.table.Close() }()
	for i := range c.commits {
		from, to := len(c.rows)*i/c.commits, len(c.rows)*(i+1)/c.commits
		if len(c.later) > 0 && i == c.commits/2 {
			grow := w.grow
			if c.foreign {
				grow = w.alter
			}
			if err := grow(ctx); err != nil {
				return w.expect, err
			}
		}
		if err := w.commit(ctx, from, c.rows[from:to]); err != nil {
			return w.expect, fmt.Errorf("commit %d: %w", i, err)
		}
	}
	if c.checkpointed {
		return w.expect, w.awaitCheckpoint(ctx)
	}
	return w.expect, nil
}

// awaitCheckpoint waits until the writer has made a checkpoint and named it.
func (w *writer) awaitCheckpoint(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	for {
		_, err := os.Stat(filepath.Join(w.dir, "_delta_log", "_last_checkpoint"))
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		select {
		case <-ctx.Done():
			return errors.New("the writer made no checkpoint")
		case <-time.After(10 * time.Millisecond):
		}
	}
}

func (w *writer) open(ctx context.Context, columns []column) (err error) {
	s, err := schema.ParseDDL(ddlOf(columns))
	if err != nil {
		return fmt.Errorf("schema: %w", err)
	}
	for _, word := range w.c.words {
		s = s.WithMetadata(word)
	}
	if w.c.rescue {
		s = s.WithRescued()
	}
	if s, err = s.WithPartitionBy(w.c.partitionBy); err != nil {
		return fmt.Errorf("partitions: %w", err)
	}
	options := delta.Options{
		Pipeline: "deltacheck", Engine: "sluice/test", Schema: s, Guard: guard(),
		NoStatistics: w.c.excluded, Properties: w.c.properties, Comment: w.c.comment(),
	}
	if w.table, err = delta.Open(w.store, options); err != nil {
		return err
	}
	if w.snap, err = w.table.Load(ctx); err != nil {
		return err
	}
	w.expect.Versions = append(w.expect.Versions, [2]int64{w.snap.Version, int64(len(w.expect.Rows))})
	return nil
}

// without removes columns and fields of structs from a schema.
func without(columns, these []column) []column {
	columns = slices.Clone(columns)
	for _, t := range these {
		i := slices.IndexFunc(columns, func(c column) bool { return c.name == t.name })
		if len(t.typ.fields) > 0 {
			columns[i].typ.fields = without(columns[i].typ.fields, t.typ.fields)
		} else {
			columns = slices.Delete(columns, i, i+1)
		}
	}
	return columns
}

// grow opens the table with the later columns. The next commit adds them.
func (w *writer) grow(ctx context.Context) error {
	w.table.Close()
	return w.open(ctx, w.c.columns)
}

// alter adds the later columns as another program does, and opens the table again with them.
func (w *writer) alter(ctx context.Context) error {
	text, err := os.ReadFile(filepath.Join(w.dir, "_delta_log", fmt.Sprintf("%020d.json", 0)))
	if err != nil {
		return err
	}
	full, err := schema.ParseDDL(ddlOf(w.c.columns))
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(text)) {
		var action struct {
			MetaData map[string]any `json:"metaData"`
		}
		if err := json.Unmarshal([]byte(line), &action); err != nil {
			return err
		}
		if action.MetaData == nil {
			continue
		}
		action.MetaData["schemaString"] = full.WithKafkaColumns().DeltaJSON()
		info := map[string]any{"commitInfo": map[string]any{"timestamp": time.Now().UnixMilli(), "operation": "ADD COLUMNS", "txnId": w.c.name}}
		first, err := json.Marshal(info)
		if err != nil {
			return err
		}
		second, err := json.Marshal(action)
		if err != nil {
			return err
		}
		name := filepath.Join(w.dir, "_delta_log", fmt.Sprintf("%020d.json", w.snap.Version+1))
		if err := os.WriteFile(name, []byte(string(first)+"\n"+string(second)+"\n"), 0o600); err != nil {
			return err
		}
	}
	w.table.Close()
	return w.open(ctx, w.c.columns)
}

func ddlOf(columns []column) string {
	list := make([]string, len(columns))
	for i, c := range columns {
		list[i] = c.ddl()
	}
	return strings.Join(list, ", ")
}

// commit writes rows, alternately of the partitions, as one commit.
func (w *writer) commit(ctx context.Context, first int, rows [][]any) error {
	columns := w.c.columns
	if len(w.c.later) > 0 && len(w.expect.Versions) <= w.c.commits/2 {
		columns = without(columns, w.c.later)
	}
	commit := &connector.Commit{Operation: "STREAMING UPDATE"}
	var pieces []connector.Piece
	defer func() {
		for _, p := range pieces {
			p.Rows.Release()
		}
	}()
	for p := range partitions {
		var own [][]any
		var extras []extra
		for i := p; i < len(rows); i += partitions {
			own = append(own, rows[i])
			if e := (extra{}); len(w.c.records) == 0 {
				extras = append(extras, e)
			} else {
				extras = append(extras, w.c.records[first+i])
			}
		}
		at := partition(p)
		from := w.next[p]
		w.next[p] += int64(len(own))
		commit.Txns = append(commit.Txns, connector.Txn{AppID: at.AppID("deltacheck"), Version: w.next[p]})
		commit.Ranges = append(commit.Ranges, connector.Range{
			Topic: topic, Partition: at.ID, From: from, Next: w.next[p], Rows: int64(len(own)), Epoch: -1,
		})
		if len(own) == 0 {
			continue
		}
		build := w.decoded
		if w.c.arrow {
			build = w.built
		}
		batches, err := build(columns, at, from, own, extras)
		if err != nil {
			return err
		}
		for _, b := range batches {
			pieces = append(pieces, connector.Piece{Rows: b, To: b.NumRows()})
		}
	}
	if len(pieces) > 0 {
		staged, err := w.table.Stage(ctx, w.snap, "b-1", pieces, nil)
		if err != nil {
			return err
		}
		commit.Staged = staged
	}
	snap, err := w.table.Commit(ctx, commit, func(*connector.Snapshot) error { return nil })
	if err != nil {
		return err
	}
	w.snap = snap
	w.expect.Versions = append(w.expect.Versions, [2]int64{snap.Version, int64(len(w.expect.Rows))})
	return nil
}

func partition(p int) idempotency.Partition {
	return idempotency.Partition{Cluster: "c", Topic: topic, TopicID: idempotency.TopicID{1}, ID: int32(p)}
}

// decoded makes rows of JSON records with the decoder.
func (w *writer) decoded(columns []column, at idempotency.Partition, from int64, rows [][]any, extras []extra) (batches []arrow.RecordBatch, err error) {
	decoder := decode.JSON{Rescue: w.c.rescue, Now: func() time.Time { return time.UnixMilli(ingestedAt) }}
	builder, err := decoder.Builder(w.snap.Schema)
	if err != nil {
		return nil, err
	}
	for i, row := range rows {
		e, offset := extras[i], from+int64(i)
		record := connector.Record{Offset: offset, Timestamp: firstTime + offset, SetBy: e.setBy, Key: e.key, Headers: e.headers}
		rescued := any(nil)
		if !e.tombstone {
			r := recordWriter{}
			if w.c.rescue {
				r.chance = rand.New(rand.NewPCG(uint64(offset), uint64(at.ID)))
			}
			record.Value = []byte(r.object(columns, row, ""))
			if len(r.rescued) > 0 {
				rescued = "{" + strings.Join(r.rescued, ",") + "}"
			}
		}
		err := builder.Add(at, &record)
		if errors.Is(err, connector.ErrChunkFull) {
			batches = append(batches, builder.Seal())
			err = builder.Add(at, &record)
		}
		if err != nil {
			return batches, fmt.Errorf("%w in %.300s", err, record.Value)
		}
		w.expected(at, offset, e, row, rescued)
	}
	return append(batches, builder.Seal()), nil
}

// built makes rows without JSON, as the decoder of another format would.
func (w *writer) built(columns []column, at idempotency.Partition, from int64, rows [][]any, extras []extra) ([]arrow.RecordBatch, error) {
	b := array.NewRecordBuilder(memory.DefaultAllocator, w.snap.Schema.(*schema.Schema).Arrow())
	defer b.Release()
	if got, want := len(b.Fields()), len(w.c.tableColumns())-len(w.c.columns)+len(columns); got != want {
		return nil, fmt.Errorf("%d columns in the table, want %d", got, want)
	}
	for i, row := range rows {
		for k, v := range w.c.tableRow(coordinates(at, from+int64(i)), extras[i], row, nil) {
			appendValue(b.Field(k), v)
		}
		w.expected(at, from+int64(i), extras[i], row, nil)
	}
	return []arrow.RecordBatch{b.NewRecordBatch()}, nil
}

// coordinates are the values of the Kafka columns.
func coordinates(at idempotency.Partition, offset int64) []any {
	return []any{at.Topic, int64(at.ID), offset, (firstTime + offset) * 1000}
}

func kafkaColumns() []column {
	text, long, integer, time := texts, integer("bigint", 64), integer("int", 32), instants("timestamp", "")
	return []column{
		col(schema.KafkaTopic, typ{kind: &text}),
		col(schema.KafkaPartition, typ{kind: &integer}),
		col(schema.KafkaOffset, typ{kind: &long}),
		col(schema.KafkaTimestamp, typ{kind: &time}),
	}
}

// expected adds a row to those that readers must return.
func (w *writer) expected(at idempotency.Partition, offset int64, e extra, row []any, rescued any) {
	first := coordinates(at, offset)
	times := map[string]any{schema.KafkaTimestamp: first[len(first)-1]}
	row = slices.Clone(row)
	for i, c := range w.c.columns {
		if row[i] == "" && slices.Contains(w.c.partitionBy, backticks(c.inTable())) { // by the protocol
			row[i] = nil
		}
		times[c.name] = row[i]
	}
	var last []any
	for _, c := range w.c.computed {
		var v any
		if micros, ok := times[c.from].(int64); ok {
			v = c.of(micros)
		}
		last = append(last, v)
	}
	columns, out := w.c.tableColumns(), []any(nil)
	for i, v := range append(w.c.tableRow(first, e, row, rescued), last...) {
		out = append(out, columns[i].typ.canon(v))
	}
	w.expect.Rows = append(w.expect.Rows, out)
}

// describe returns the columns for the readers.
func describe(columns []column) []map[string]any {
	list := make([]map[string]any, len(columns))
	for i, c := range columns {
		list[i] = map[string]any{"name": c.inTable(), "type": c.typ.describe()}
	}
	return list
}

func (t typ) describe() map[string]any {
	switch {
	case t.kind != nil:
		return map[string]any{"kind": t.kind.name}
	case t.key != nil:
		return map[string]any{"key": t.key.describe(), "element": t.element.describe()}
	case t.element != nil:
		return map[string]any{"element": t.element.describe()}
	}
	return map[string]any{"fields": describe(t.fields)}
}
