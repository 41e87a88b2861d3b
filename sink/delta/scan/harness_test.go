package scan_test

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/sink/delta/datafile"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// row is one row of the table in these tests. A null is -1 in the fields partition and offset, and the zero value in
// the other fields. id is never null.
type row struct {
	id        int64
	topic     string
	partition int32
	offset    int64
	at        int64 // in microseconds
	text      string
}

func (r row) String() string {
	return fmt.Sprintf("%d %s-%d@%d t%d %q", r.id, r.topic, r.partition, r.offset, r.at, r.text)
}

const ddl = "id bigint, text string"

func tableSchema(tb testing.TB) *schema.Schema {
	tb.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		tb.Fatal(err)
	}
	return s.WithKafkaColumns()
}

// fataler has the methods that *testing.T and *rapid.T share.
type fataler interface {
	Helper()
	Fatalf(format string, args ...any)
}

// lake is a table in memory whose log and data files a test writes.
type lake struct {
	t       fataler
	ctx     context.Context
	store   objstore.Store
	schema  *schema.Schema
	version int64
	files   int
}

func newLake(t fataler, ctx context.Context, store objstore.Store, s *schema.Schema, change ...func(*deltalog.Protocol, *deltalog.Metadata)) *lake { //nolint:revive // the test comes first
	t.Helper()
	l := &lake{t: t, ctx: ctx, store: store, schema: s, version: -1}
	p := deltalog.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}
	m := deltalog.Metadata{ID: "lake", Format: deltalog.Format{Provider: "parquet"}, SchemaString: s.DeltaJSON()}
	for _, c := range change {
		c(&p, &m)
	}
	l.commit(p, m)
	return l
}

func (l *lake) must(err error) {
	l.t.Helper()
	if err != nil {
		l.t.Fatalf("%v", err)
	}
}

func (l *lake) commit(actions ...deltalog.Action) {
	l.t.Helper()
	body, err := deltalog.Encode(actions)
	l.must(err)
	l.version++
	l.must(l.store.Put(l.ctx, deltalog.CommitKey(l.version), bytes.NewReader(body), objstore.IfAbsent))
}

// put stores a data file, and returns its add action with the statistics.
func (l *lake) put(body []byte, stats string) deltalog.Add {
	l.t.Helper()
	l.files++
	key := fmt.Sprintf("part-%05d ä.parquet", l.files)
	l.must(l.store.Put(l.ctx, key, bytes.NewReader(body), objstore.Replace))
	return deltalog.Add{Path: deltalog.URI(key), Size: int64(len(body)), DataChange: true, Stats: stats}
}

// write stores rows with the encoder of package datafile, each group as one row group.
func (l *lake) write(groups ...[]row) deltalog.Add {
	l.t.Helper()
	var pieces []connector.Piece
	for _, g := range groups {
		pieces = append(pieces, connector.Piece{Rows: batchOf(l.schema, g), To: int64(len(g))})
	}
	var add deltalog.Add
	l.must(datafile.Encode(l.ctx, l.schema.Arrow(), pieces, datafile.Options{}, func(f datafile.File) error {
		body, err := io.ReadAll(f.Body)
		if err != nil {
			return err
		}
		add = l.put(body, f.Stats)
		return nil
	}))
	return add
}

func (l *lake) state() *deltalog.State {
	l.t.Helper()
	s, err := deltalog.Load(l.ctx, l.store)
	l.must(err)
	return s
}

func (l *lake) checkpoint() {
	l.t.Helper()
	_, err := deltalog.WriteCheckpoint(l.ctx, l.store, l.state(), time.Now(), "")
	l.must(err)
}

func batchOf(s *schema.Schema, rows []row) arrow.RecordBatch {
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	defer b.Release()
	for _, r := range rows {
		for i, f := range b.Schema().Fields() {
			switch b := b.Field(i).(type) {
			case *array.StringBuilder:
				text := r.text
				if f.Name == schema.KafkaTopic {
					text = r.topic
				}
				if text == "" {
					b.AppendNull()
				} else {
					b.Append(text)
				}
			case *array.Int32Builder:
				if r.partition < 0 {
					b.AppendNull()
				} else {
					b.Append(r.partition)
				}
			case *array.Int64Builder:
				switch {
				case f.Name == "id":
					b.Append(r.id)
				case r.offset < 0:
					b.AppendNull()
				default:
					b.Append(r.offset)
				}
			case *array.TimestampBuilder:
				if r.at == 0 {
					b.AppendNull()
				} else {
					b.Append(arrow.Timestamp(r.at))
				}
			}
		}
	}
	return b.NewRecordBatch()
}

// all returns the paths of all columns that the table has in these tests.
func all() [][]string {
	return [][]string{{schema.KafkaTopic}, {schema.KafkaPartition}, {schema.KafkaOffset}, {schema.KafkaTimestamp}, {"id"}, {"text"}}
}

// rowsOf converts a batch that has all columns.
func rowsOf(b arrow.RecordBatch) (rows []row) {
	for i := range int(b.NumRows()) {
		r := row{partition: -1, offset: -1}
		if c := b.Column(0).(*array.String); c.IsValid(i) {
			r.topic = string([]byte(c.Value(i)))
		}
		if c := b.Column(1).(*array.Int32); c.IsValid(i) {
			r.partition = c.Value(i)
		}
		if c := b.Column(2).(*array.Int64); c.IsValid(i) {
			r.offset = c.Value(i)
		}
		if c := b.Column(3).(*array.Timestamp); c.IsValid(i) {
			r.at = int64(c.Value(i))
		}
		r.id = b.Column(4).(*array.Int64).Value(i)
		if c := b.Column(5).(*array.String); c.IsValid(i) {
			r.text = string([]byte(c.Value(i)))
		}
		rows = append(rows, r)
	}
	return rows
}

// run scans all columns. It returns the rows sorted by id, and the paths of the files in the order in which the scan
// yielded them.
func run(ctx context.Context, store objstore.Store, s *deltalog.State, q scan.Query) (rows []row, paths []string, err error) {
	q.Columns = all()
	err = scan.Run(ctx, store, s, q, func(r scan.Rows) error {
		rows = append(rows, rowsOf(r.Batch)...)
		if len(paths) == 0 || paths[len(paths)-1] != r.Path {
			paths = append(paths, r.Path)
		}
		return nil
	})
	slices.SortFunc(rows, func(a, b row) int { return int(a.id - b.id) })
	return rows, paths, err
}

// values returns the values of one column as text.
func values(t *testing.T, l *lake, path ...string) (texts []string, err error) {
	t.Helper()
	err = scan.Run(t.Context(), l.store, l.state(), scan.Query{Columns: [][]string{path}}, func(r scan.Rows) error {
		for i := range int(r.Batch.NumRows()) {
			texts = append(texts, r.Batch.Column(0).ValueStr(i))
		}
		return nil
	})
	return texts, err
}
