package app

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector/schema"
	"sluice/internal/laketest"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// alteredStore calls alter before the first put of a data file, so after the rows were built and before the commit.
type alteredStore struct {
	objstore.Store
	alter func()
	puts  *atomic.Int64 // puts of data files
}

func (s *alteredStore) Put(ctx context.Context, key string, content io.ReadSeeker, mode objstore.Mode) error {
	if strings.Contains(key, "part-") && s.puts.Add(1) == 1 {
		s.alter()
	}
	return s.Store.Put(ctx, key, content, mode)
}

// TestAlteredDuringFlush: another program alters the table while a member puts the data files of its batch. The files
// are committed if they fit the altered table. If not, their records are read again, for the altered table, or the topic
// is held until the table fits. No row is lost or doubled, and none loses a value of a column that the table has.
func TestAlteredDuringFlush(t *testing.T) {
	t.Parallel()
	const (
		column  = `,{"name":"other","type":"string","nullable":true,"metadata":{}}`
		s       = `{"name":"s","type":"string","nullable":true,"metadata":{}}`
		columns = "n int, s string"
	)
	replaced := func(old, now string) func(*deltalog.Protocol, *deltalog.Metadata) {
		return func(_ *deltalog.Protocol, m *deltalog.Metadata) {
			if !strings.Contains(m.SchemaString, old) {
				panic("the table has another schema: " + m.SchemaString)
			}
			m.SchemaString = strings.Replace(m.SchemaString, old, now, 1)
		}
	}
	required := func(field string) string { return strings.Replace(field, `"nullable":true`, `"nullable":false`, 1) }
	for name, c := range map[string]struct {
		before, schema string // the configured schema of the first rows, and of those during whose flush the table is altered
		alter          func(*deltalog.Protocol, *deltalog.Metadata)
		puts           int64  // of data files: 1 if the first ones are committed, or if the topic is held
		hold           string // reason and detail, which another ALTER ends; "" for no hold
		want           string // the columns afterwards
		other          string // the values of the column other in all rows; "-" is null, or no such column
	}{
		"another column": {columns, columns, replaced(s, s+column), 1, "", "n s other", "------"},
		"a NOT NULL column": {
			columns, columns, replaced(s, s+required(column)), 1,
			"schema_conflict: column other is NOT NULL in the table and not in schema: add it to schema, or drop the NOT NULL in the table",
			"n s", "------",
		},
		"a column that the commit adds":     {columns, columns + ", other string", replaced(s, s+column), 1, "", "n s other", "---ooo"},
		"a column that it adds as nullable": {columns, columns + ", other string", replaced(s, s+required(column)), 2, "", "n s other", "---ooo"},
		"a column that it adds as a text": {
			columns, columns + ", other string", replaced(s, s+strings.Replace(column, "string", "long", 1)), 1,
			"schema_conflict: column other is bigint in the table and string in schema: a column cannot change its type, see docs/schema.md",
			"n s other", "---ooo",
		},
		"a column dropped":                 {columns + ", other string", columns, replaced(column, ""), 2, "", "n s", "ooo---"},
		"a declared column dropped":        {columns, columns, replaced(","+s, ""), 2, "", "n s", "------"},
		"a column renamed as drop and add": {columns, columns, replaced(`"name":"s"`, `"name":"t"`), 2, "", "n t s", "------"},
		"a column renamed by column mapping": {
			columns, columns, func(p *deltalog.Protocol, m *deltalog.Metadata) {
				replaced(s, `{"name":"t","type":"string","nullable":true,"metadata":{"delta.columnMapping.id":9,"delta.columnMapping.physicalName":"s"}}`)(p, m)
				p.MinReaderVersion, p.MinWriterVersion = 2, 5
				m.Configuration = map[string]string{"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "9"}
			}, 1,
			"table_unsupported: the table is not one that this version writes: its protocol is reader 2, writer 5: changeDataFeed, checkConstraints, columnMapping, generatedColumns",
			"n s", "------",
		},
		"a column made nullable": {columns + " not null", columns + " not null", replaced(required(s), s), 1, "", "n s", "------"},
		"a column made NOT NULL": {columns, columns, replaced(s, required(s)), 2, "", "n s", "------"},
		"a column widened": {
			columns, columns, replaced(`"name":"n","type":"integer"`, `"name":"n","type":"long"`), 1,
			"schema_conflict: column n is bigint in the table and int in schema: write bigint in schema, which takes every value of int, see docs/schema.md",
			"n s", "------",
		},
		"a comment": {columns, columns, replaced(s, strings.Replace(s, "{}", `{"comment":"c"}`, 1)), 1, "", "n s", "------"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := newLake(t, fmt.Sprintf("topics: {orders: {schema: %q}}", c.before))
			l.Create("orders", 1)
			produce := func(from, to int) {
				t.Helper()
				for n := from; n < to; n++ {
					value := fmt.Appendf(nil, `{"n":%d,"s":"v%d","other":"o"}`, n, n)
					if err := l.Client.ProduceSync(t.Context(), &kgo.Record{Topic: "orders", Value: value}).FirstErr(); err != nil {
						t.Fatal(err)
					}
				}
			}
			produce(0, 3)
			l.run()
			produce(3, 6)
			l = l.as(fmt.Sprintf("%q", c.before), fmt.Sprintf("%q", c.schema))
			before := l.state()
			var puts atomic.Int64
			m, err := New(t.Context(), laketest.Load(t, l.Config), Options{UntilCurrent: true, store: func(o objstore.Store) objstore.Store {
				return &alteredStore{o, func() {
					p, m := before.Protocol, before.Metadata
					c.alter(&p, &m)
					l.commit(p, m)
				}, &puts}
			}}, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			err, held := m.Run(t.Context()), ""
			for _, h := range m.Report().Holds {
				held = h.Reason + ": " + h.Detail
			}
			if held != c.hold || (err != nil) != (c.hold != "") {
				t.Errorf("got %v, held for %q, want %q", err, held, c.hold)
			}
			if c.hold != "" {
				l.Has("orders", laketest.UpTo(3, "orders:0"))
				l.commit(before.Protocol, before.Metadata)
				l.run()
			}
			if n := puts.Load(); n != c.puts {
				t.Errorf("%d data files were put, want %d", n, c.puts)
			}
			l.Has("orders", laketest.UpTo(6, "orders:0"))
			var want []string
			for n := range 6 {
				want = append(want, fmt.Sprintf("%d v%d %c", n, n, c.other[n]))
			}
			if d := cmp.Diff(want, l.values("n", "s", "other")); d != "" {
				t.Errorf("rows (-want +got):\n%s", d)
			}
			if got := l.columns(); got != c.want {
				t.Errorf("columns %q, want %q", got, c.want)
			}
		})
	}
}

// state returns the newest state of table orders.
func (l *lake) state() *deltalog.State {
	l.T.Helper()
	state, err := deltalog.Load(l.T.Context(), objstore.Sub(l.Store, "orders"))
	if err != nil {
		l.T.Fatal(err)
	}
	return state
}

// commit commits a protocol and metadata to table orders, as ALTER TABLE of another program does.
func (l *lake) commit(p deltalog.Protocol, m deltalog.Metadata) {
	l.T.Helper()
	body, err := deltalog.Encode([]deltalog.Action{deltalog.CommitInfo{Operation: "ALTER TABLE"}, p, m})
	if err != nil {
		l.T.Fatal(err)
	}
	l.Append("orders", strings.TrimSpace(string(body)))
}

// columns returns the columns of table orders, without those of Kafka.
func (l *lake) columns() string {
	l.T.Helper()
	s, err := schema.FromDelta([]byte(l.state().Metadata.SchemaString))
	if err != nil {
		l.T.Fatal(err)
	}
	var names []string
	for _, f := range s.Fields() {
		if !schema.IsKafkaColumn(f.Name) {
			names = append(names, f.Name)
		}
	}
	return strings.Join(names, " ")
}

// values returns the values of columns in the rows of table orders, in order; "-" is null, or a file without the column.
func (l *lake) values(columns ...string) (all []string) {
	l.T.Helper()
	where := []scan.Where{{Topic: "orders", Partition: 0, From: 0, Next: 1 << 40}}
	err := delta.WholeRows(l.T.Context(), objstore.Sub(l.Store, "orders"), l.state(), where, columns, func(rows arrow.RecordBatch) error {
		for i := range int(rows.NumRows()) {
			var row []string
			for _, name := range columns {
				value := "-"
				if at := rows.Schema().FieldIndices(name); len(at) == 1 && rows.Column(at[0]).IsValid(i) {
					value = rows.Column(at[0]).ValueStr(i)
				}
				row = append(row, value)
			}
			all = append(all, strings.Join(row, " "))
		}
		return nil
	})
	if err != nil {
		l.T.Fatal(err)
	}
	slices.Sort(all)
	return all
}
