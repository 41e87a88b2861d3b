package delta_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet/file"
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
	"sluice/sink/delta/scan"
)

// declares makes a table declare the usual columns, and nullable strings with these names; a name may have a type.
func declares(columns ...string) func(*delta.Options) {
	return func(o *delta.Options) {
		text := ddl
		for _, c := range columns {
			if !strings.Contains(c, " ") {
				c += " string"
			}
			text += ", " + c
		}
		o.Schema, _ = schema.ParseDDL(text) // a wrong text gives nil, and the test has no table
	}
}

// names returns the columns of a table without the Kafka columns.
func names(t *testing.T, m deltalog.Metadata) (all []string) {
	t.Helper()
	s, err := schema.FromDelta([]byte(m.SchemaString))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range s.Fields() {
		if !schema.IsKafkaColumn(f.Name) {
			all = append(all, f.Name)
		}
	}
	return all
}

// fileColumns returns the columns of a data file without the Kafka columns.
func fileColumns(t *testing.T, store objstore.Store, key string) (all []string) {
	t.Helper()
	r, err := file.NewParquetReader(bytes.NewReader([]byte(get(t, store, key))))
	if err != nil {
		t.Fatal(err)
	}
	for i := range r.MetaData().Schema.Root().NumFields() {
		if name := r.MetaData().Schema.Root().Field(i).Name(); !schema.IsKafkaColumn(name) {
			all = append(all, name)
		}
	}
	return all
}

// values returns the values of a column of strings, in the order of files and rows; a null is "-".
func values(t *testing.T, store objstore.Store, column string) (all []string) {
	t.Helper()
	where := []scan.Where{{Topic: "orders", Partition: 0, From: 0, Next: 1 << 40}}
	err := delta.WholeRows(t.Context(), store, stateOf(t, store), where, []string{schema.KafkaOffset, column}, func(rows arrow.RecordBatch) error {
		texts := make([]string, rows.NumRows())
		for i := range texts {
			texts[i] = "-"
			if at := rows.Schema().FieldIndices(column); len(at) == 1 && rows.Column(at[0]).IsValid(i) {
				texts[i] = rows.Column(at[0]).ValueStr(i)
			}
		}
		all = append(all, texts...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// actions returns the actions of one version by kind: metaData, txns and adds.
func actions(t *testing.T, store objstore.Store, version int64) (meta []deltalog.Metadata, txns []deltalog.Txn, adds []deltalog.Add) {
	t.Helper()
	c, err := deltalog.ReadCommit(t.Context(), store, version, deltalog.All)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range c.Actions {
		switch a := a.(type) {
		case deltalog.Metadata:
			meta = append(meta, a)
		case deltalog.Txn:
			txns = append(txns, a)
		case deltalog.Add:
			adds = append(adds, a)
		}
	}
	return meta, txns, adds
}

// TestAddColumns: columns that the configuration declares and the table lacks come with the first rows, in the same
// version, and change nothing else of the table.
func TestAddColumns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		appendCommits(t, open(t, mem), 1)
		m := alter(t, mem, ddl)
		m.Name, m.Description = "sales", "of the shop"
		m.Configuration = map[string]string{"delta.logRetentionDuration": "interval 30 days", "owner": "x"}
		m.SchemaString = strings.Replace(m.SchemaString, `"name":"id","type":"long","nullable":true,"metadata":{}`,
			`"name":"id","type":"long","nullable":false,"metadata":{"x":[1.50]}},{"name":"d","type":"decimal(4,2)","nullable":true,"metadata":{}`, 1)
		foreign(t, mem, m)

		reg, log := prometheus.NewRegistry(), &bytes.Buffer{}
		tab := open(t, mem, declares("extra string comment 'new'", "s struct<x:int>"), measured(reg), func(o *delta.Options) {
			o.Logger = slog.New(slog.NewTextHandler(log, nil))
		})
		s := load(t, tab)
		if got := s.Table.(*schema.Schema).ChangesTo(s.Schema.(*schema.Schema)).String(); got != "extra string, s struct<x:int>, id null" || s.Version != 2 {
			t.Errorf("version %d, rows have the changes %q", s.Version, got)
		}
		// A commit without rows needs no column.
		idle, err := tab.Commit(t.Context(), rowRange{0, 3, 3}.commit(nil), rowRange{0, 3, 3}.pre)
		if err != nil {
			t.Fatal(err)
		}
		if meta, _, _ := actions(t, mem, idle.Version); len(meta) != 0 || idle.Schema != s.Schema {
			t.Errorf("version %d has %v", idle.Version, meta)
		}
		// Rows of before and after the change go into one file.
		old := rows(parse(t, ddl).WithKafkaColumns(), 0, 3, 5)
		c := rowRange{0, 3, 8}
		files, err := tab.Stage(t.Context(), idle, "b-1", []connector.Piece{old, rows(idle.Schema, 0, 5, 8)}, nil)
		if err != nil || files.Count != 1 {
			t.Fatal(files, err)
		}
		s, err = tab.Commit(t.Context(), c.commit(files), c.pre)
		if err != nil {
			t.Fatal(err)
		}
		meta, txns, adds := actions(t, mem, s.Version)
		if len(meta) != 1 || len(txns) != 1 || len(adds) != 1 {
			t.Fatalf("%v %v %v", meta, txns, adds)
		}
		want := m
		want.SchemaString = strings.TrimSuffix(strings.Replace(m.SchemaString, `"type":"long","nullable":false`, `"type":"long","nullable":true`, 1), "]}") +
			`,{"name":"extra","type":"string","nullable":true,"metadata":{"comment":"new"}}` +
			`,{"name":"s","type":{"type":"struct","fields":[{"name":"x","type":"integer","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}}]}`
		if diff := cmp.Diff(want, meta[0]); diff != "" {
			t.Error(diff)
		}
		if s.Schema != idle.Schema || !s.Table.(*schema.Schema).Equal(s.Schema.(*schema.Schema)) {
			t.Error("rows are built for another schema now, although it has the same columns")
		}
		if n := metric(t, reg, "sluice_columns_added_total"); n != 2 {
			t.Errorf("%v columns counted", n)
		}
		for _, line := range []string{`msg="added columns" batch_id="" version=4 columns="[extra s]"`, `msg="made columns nullable" batch_id="" version=4 columns=[id]`} {
			if strings.Count(log.String(), line) != 1 {
				t.Errorf("no line %s in\n%s", line, log)
			}
		}
		s, err = (rowRange{0, 8, 9}).write(t.Context(), tab, s)
		if err != nil {
			t.Fatal(err)
		}
		if meta, _, _ := actions(t, mem, s.Version); len(meta) != 0 {
			t.Errorf("the next commit sets the schema again: %v", meta)
		}
		check(t, mem, 9)
		if got := values(t, mem, "extra"); !slices.Equal(got, []string{"-", "-", "-", "-", "-", "x5", "x6", "x7", "x8"}) {
			t.Errorf("extra: %q", got)
		}
		var added []string
		for e, err := range delta.History(t.Context(), mem) {
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range append(e.Added, e.Relaxed...) {
				added = append(added, fmt.Sprint(e.Version, name, e.Metadata))
			}
		}
		if !slices.Equal(added, []string{"4extratrue", "4strue", "4idtrue"}) {
			t.Errorf("history: %q", added)
		}
		// Another process, and one that does not declare the columns, see the same table.
		if s := load(t, open(t, mem)); !s.Schema.(*schema.Schema).Has([]string{"s", "x"}) || s.Schema != s.Table {
			t.Errorf("%+v", s)
		}
	})
}

// TestAddColumns_Conflict: between our read of the log and our put, another writer commits the version that ours was to
// be, and changes the schema, while our files have the new column extra. What it changes decides whether our commit
// adds its column on top, or is fenced, so that the records are read again.
func TestAddColumns_Conflict(t *testing.T) {
	for name, c := range map[string]struct {
		winner string // the columns of the winner's schema
		want   string // the columns afterwards
		added  string // those that our commit added
		fence  string // the text of the fence, "" if our commit succeeds
	}{
		"no change":                     {winner: ddl, want: "id name extra", added: "extra"},
		"another column":                {winner: ddl + ", other date", want: "id name other extra", added: "extra"},
		"the same column":               {winner: ddl + ", extra string", want: "id name extra"},
		"the same column, NOT NULL":     {winner: ddl + ", extra string not null", fence: "column extra is NOT NULL in the table"},
		"the same column, another type": {winner: ddl + ", extra bigint", fence: "column extra is bigint in the table and string in schema"},
		"the same column, another case": {winner: ddl + ", Extra string", fence: "column extra and the table's column Extra differ in case only"},
		"a NOT NULL column":             {winner: ddl + ", other date not null", fence: "column other is NOT NULL in the table"},
		"a dropped column":              {winner: "id bigint", fence: "column name is not in the table any more"},
		"a column made NOT NULL":        {winner: "id bigint not null, name string", fence: "column id is NOT NULL in the table"},
		"a column of another type":      {winner: "id string, name string", fence: "column id is string in the table"},
	} {
		t.Run(name, func(t *testing.T) {
			bubble(t, func(t *testing.T) {
				mem := objstore.NewMem()
				load(t, open(t, mem))
				tab := open(t, mem, declares("extra"))
				s := load(t, tab)
				r := rowRange{0, 0, 4}
				files, err := tab.Stage(t.Context(), s, "b-1", []connector.Piece{rows(s.Schema, 0, 0, 4)}, nil)
				if err != nil {
					t.Fatal(err)
				}
				first := true
				done, err := tab.Commit(t.Context(), r.commit(files), func(s *connector.Snapshot) error {
					if first {
						first = false
						foreign(t, mem, alter(t, mem, c.winner))
					}
					return r.pre(s)
				})
				if c.fence != "" {
					fenced(c.fence)(t, err)
					tab.Discard(t.Context(), files)
					noOrphans(t, mem)
					return
				}
				if err != nil {
					t.Fatal(err)
				}
				if got := strings.Join(names(t, stateOf(t, mem).Metadata), " "); got != c.want || done.Version != 2 {
					t.Errorf("version %d: %s", done.Version, got)
				}
				for e, err := range delta.Recent(t.Context(), mem, done.Version) {
					if err != nil {
						t.Fatal(err)
					}
					if got := strings.Join(e.Added, " "); got != c.added {
						t.Errorf("added %q", got)
					}
					break
				}
				if got := values(t, mem, "extra"); !slices.Equal(got, []string{"x0", "x1", "x2", "x3"}) {
					t.Errorf("extra: %q", got)
				}
				check(t, mem, 4)
			})
		})
	}
}

// TestAddColumns_Members: two members add different columns at once, and both succeed with the files that they have
// staged. If both add one column with different types, the second is fenced, and then held until its configuration fits.
func TestAddColumns_Members(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		load(t, open(t, mem))
		stage := func(p int32, columns ...string) (*delta.Table, *connector.Staged) {
			tab := open(t, mem, declares(columns...))
			s := load(t, tab)
			files, err := tab.Stage(t.Context(), s, "b", []connector.Piece{rows(s.Schema, p, 0, 2)}, nil)
			if err != nil {
				t.Fatal(err)
			}
			return tab, files
		}
		one, ones := stage(0, "a", "s struct<x:int>")
		two, twos := stage(1, "b", "s struct<y:int>")
		three, threes := stage(2, "b bigint")
		for i, m := range []struct {
			*delta.Table
			files *connector.Staged
		}{{one, ones}, {two, twos}, {three, threes}} {
			r := rowRange{int32(i), 0, 2}
			_, err := m.Commit(t.Context(), r.commit(m.files), r.pre)
			if i == 2 {
				fenced("column b is string in the table and bigint in schema")(t, err)
				_, err = m.Load(t.Context())
				holds(t, err, hold.SchemaConflict, "column b is string in the table and bigint in schema")
				m.Discard(t.Context(), m.files)
			} else if err != nil {
				t.Fatal(err)
			}
		}
		if got := names(t, stateOf(t, mem).Metadata); !slices.Equal(got, []string{"id", "name", "a", "s", "b"}) {
			t.Errorf("columns %q", got)
		}
		s, err := schema.FromDelta([]byte(stateOf(t, mem).Metadata.SchemaString))
		if err != nil || !s.Has([]string{"s", "x"}) || !s.Has([]string{"s", "y"}) {
			t.Errorf("%v, %v", s, err)
		}
		check(t, mem, 2, 2)
		noOrphans(t, mem)
	})
}

// TestAddColumns_Dropped: a column that another program drops does not come back with files that were staged before.
// One that the configuration declares comes back with the next rows, because the configuration asks for it.
func TestAddColumns_Dropped(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, declared := range []bool{false, true} {
			mem := objstore.NewMem()
			load(t, open(t, mem, declares("extra")))
			var columns []string
			if declared {
				columns = []string{"extra"}
			}
			tab := open(t, mem, declares(columns...))
			s := load(t, tab)
			foreign(t, mem, alter(t, mem, ddl))
			_, err := (rowRange{0, 0, 3}).write(t.Context(), tab, s)
			fenced("column extra is not in the table any more")(t, err)
			if _, err = (rowRange{0, 0, 3}).write(t.Context(), tab, load(t, tab)); err != nil {
				t.Fatal(err)
			}
			if got := slices.Contains(names(t, stateOf(t, mem).Metadata), "extra"); got != declared {
				t.Errorf("declared %v: the column is there: %v", declared, got)
			}
			check(t, mem, 3)
		}
	})
}

// TestAddColumns_Unfit: while the configuration does not fit, rows that were built before are written for the table as
// it is, and each load is a hold. It ends when the table fits again.
func TestAddColumns_Unfit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		load(t, open(t, mem))
		tab := open(t, mem, declares("extra"))
		load(t, tab)
		foreign(t, mem, alter(t, mem, ddl+", extra bigint"))
		_, err := tab.Load(t.Context())
		holds(t, err, hold.SchemaConflict, "column extra is bigint in the table and string in schema")
		s, err := tab.Commit(t.Context(), rowRange{0, 0, 2}.commit(nil), rowRange{0, 0, 2}.pre)
		if err != nil || s.Schema != s.Table {
			t.Errorf("%+v, %v", s, err)
		}
		foreign(t, mem, alter(t, mem, ddl))
		if s := load(t, tab); s.Schema == s.Table {
			t.Error("rows are built without the column")
		}
	})
}

// TestAddColumns_Fingerprints: an identity is configured for a table without its column. There are no fingerprints to
// read until the next commit adds the column.
func TestAddColumns_Fingerprints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		appendCommits(t, open(t, mem), 1)
		identity := idempotency.Identity{By: idempotency.ByContent}
		tab := open(t, mem, func(o *delta.Options) { o.Schema = o.Schema.WithFingerprint() })
		read := func(s *connector.Snapshot) (n int) {
			reading, err := tab.ReadFingerprints(s, connector.FingerprintQuery{
				Identity: identity, Claims: map[connector.Partition]connector.Offsets{{Cluster: "c", Topic: "orders"}: {From: 0, Next: 9}},
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := reading(t.Context(), func(p connector.PastRows) error { n += len(p.Entries); return nil }); err != nil {
				t.Fatal(err)
			}
			return n
		}
		s := load(t, tab)
		if n := read(s); n != 0 {
			t.Errorf("%d fingerprints", n)
		}
		piece := rows(s.Schema, 0, 3, 5)
		columns := slices.Clone(piece.Rows.Columns())
		b := array.NewStringBuilder(memory.DefaultAllocator)
		for range 2 {
			b.Append(strings.Repeat("0f", 16))
		}
		columns[piece.Rows.Schema().FieldIndices(schema.KafkaFingerprint)[0]] = b.NewArray()
		piece.Rows = array.NewRecordBatch(piece.Rows.Schema(), columns, 2)
		files, err := tab.Stage(t.Context(), s, "b", []connector.Piece{piece}, nil)
		if err != nil {
			t.Fatal(err)
		}
		if s, err = tab.Commit(t.Context(), rowRange{0, 3, 5}.commit(files), rowRange{0, 3, 5}.pre); err != nil {
			t.Fatal(err)
		}
		if n := read(s); n != 5 {
			t.Errorf("%d fingerprints", n)
		}
	})
}

// TestAddColumns_Checkpoint: a checkpoint has the newest schema, and a process that loads it continues.
func TestAddColumns_Checkpoint(t *testing.T) {
	bubble(t, func(t *testing.T) {
		w := newRecordedStore(t, true, func(int, objstore.Op) objstoretest.Fault { return ok })
		for i := range int64(6) {
			tab := process(t, w.mem, declares(fmt.Sprint("c", i)))
			s := load(t, tab)
			if _, err := (rowRange{0, i, i + 1}).write(context.Background(), tab, s); err != nil {
				t.Fatal(err)
			}
			synctest.Wait() // for the checkpoint
			tab.Close()
		}
		s := stateOf(t, w.mem)
		if s.Checkpoint.Version < 5 {
			t.Fatalf("%+v", s.Checkpoint)
		}
		cleanUp(t, w.mem, s.Checkpoint.Version)
		if got := names(t, stateOf(t, w.mem).Metadata); !slices.Equal(got, []string{"id", "name", "c0", "c1", "c2", "c3", "c4", "c5"}) {
			t.Errorf("columns %q", got)
		}
		checkRows(t, w.mem, stateOf(t, w.mem), 6)
		var held *hold.Error
		if _, err := process(t, w.mem, declares("c0 bigint")).Load(t.Context()); !errors.As(err, &held) || classify.Of(err) != classify.Fatal {
			t.Errorf("got %v", err)
		}
	})
}
