package delta_test

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/google/go-cmp/cmp"

	"sluice/connector"
	"sluice/connector/decode"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// partitionedBy opens a table with these partitions, as a member with this configuration does.
func partitionedBy(t *testing.T, store objstore.Store, ddl string, by ...string) (*delta.Table, *connector.Snapshot) {
	t.Helper()
	columns, err := parse(t, ddl).WithPartitionBy(by)
	if err != nil {
		t.Fatal(err)
	}
	tab := open(t, store, func(o *delta.Options) { o.Schema = columns })
	return tab, load(t, tab)
}

// appendJSON commits records of partition 0 that begin at the table's position, in chunks of the given number of rows.
func appendJSON(t *testing.T, tab *delta.Table, s *connector.Snapshot, chunk int, records ...string) *connector.Snapshot {
	t.Helper()
	of := idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}}
	builder, err := decode.JSON{}.Builder(s.Schema)
	if err != nil {
		t.Fatal(err)
	}
	from := max(s.Positions[app(0)], 0)
	var pieces []connector.Piece
	seal := func() {
		if rows := builder.Seal(); rows != nil {
			pieces = append(pieces, connector.Piece{Rows: rows, To: rows.NumRows()})
		}
	}
	for i, text := range records {
		if err := builder.Add(of, &connector.Record{Offset: from + int64(i), Timestamp: 1_700_000_000_000 + int64(i), Value: []byte(text)}); err != nil {
			t.Fatal(err)
		}
		if builder.Rows() == chunk {
			seal()
		}
	}
	seal()
	r := rowRange{0, from, from + int64(len(records))}
	staged, err := tab.Stage(t.Context(), s, "b", pieces, func(int, int64) {})
	if err != nil {
		t.Fatal(err)
	}
	if s, err = tab.Commit(t.Context(), r.commit(staged), func(*connector.Snapshot) error { return nil }); err != nil {
		t.Fatal(err)
	}
	return s
}

// adds returns the files of the newest version.
func adds(t *testing.T, store objstore.Store) (all []deltalog.File) {
	t.Helper()
	for f, err := range deltalog.Files(t.Context(), store, stateOf(t, store)) {
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, f)
	}
	return all
}

// TestPartitioned_Table: rows of a partitioned table with hostile values lie in the files of their values, a restarted
// member without partition_by continues, and everything that reads the table finds all rows. A checkpoint keeps the
// values.
func TestPartitioned_Table(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		const ddl = "id bigint not null, country string, at timestamp"
		tab, s := partitionedBy(t, mem, ddl, "country", "hour(at)", "bucket(4, id)")
		countries := []any{"DE", "", nil, "..", "a/b", "%2F", "\n", "😀", "\x00", strings.Repeat("long", 2500), " ", "DE"}
		var records []string
		for i, c := range countries {
			text, err := json.Marshal(map[string]any{"id": i, "country": c, "at": fmt.Sprintf("2026-01-31T%02d:59:59.5Z", i%2), "at_hour": "of the record"})
			if err != nil {
				t.Fatal(err)
			}
			records = append(records, string(text))
		}
		appendJSON(t, tab, s, 5, records...)
		again := open(t, mem, func(o *delta.Options) { o.Schema = parse(t, ddl) })
		s = load(t, again)
		for range 11 { // writes a checkpoint
			s = appendJSON(t, again, s, 5, records...)
		}
		synctest.Wait() // until the checkpoint is written, because Close ends its writing
		again.Close()
		commands := open(t, mem, func(o *delta.Options) { o.Schema = nil }) // as a replay opens it
		s = appendJSON(t, commands, load(t, commands), 5, records...)
		state := stateOf(t, mem)
		if state.Checkpoint.Version < 0 || state.Protocol.MinReaderVersion != 1 || state.Protocol.MinWriterVersion != 2 {
			t.Errorf("%+v %+v", state.Checkpoint, state.Protocol)
		}
		const total = 13 * 12
		rowsInFiles := 0
		for _, f := range adds(t, mem) {
			if len(f.PartitionValues) != 3 || strings.Contains(f.Path, "//") {
				t.Errorf("%s: %v", f.Path, f.PartitionValues)
			}
			var stats struct {
				NumRecords int
				NullCount  map[string]any
			}
			if err := json.Unmarshal([]byte(f.Stats), &stats); err != nil || stats.NullCount["country"] != nil || stats.NullCount["at_hour"] != nil || stats.NullCount["id"] == nil {
				t.Errorf("%s, %v", f.Stats, err)
			}
			rowsInFiles += stats.NumRecords
		}
		if rowsInFiles != total {
			t.Errorf("%d rows in files, want %d", rowsInFiles, total)
		}

		found := map[string]int{}
		q := scan.Query{Columns: [][]string{{"id"}, {"country"}, {"at_hour"}, {"id_bucket"}, {schema.KafkaOffset}}}
		err := delta.Scan(t.Context(), mem, q, func(r scan.Rows) error {
			for i := range int(r.Batch.NumRows()) {
				id := r.Batch.Column(0).(*array.Int64).Value(i)
				want, isText := countries[id].(string)
				country := r.Batch.Column(1).(*array.String)
				if country.IsNull(i) != (!isText || want == "") || country.IsValid(i) && country.Value(i) != want {
					t.Errorf("row %d: country %q", id, country.ValueStr(i))
				}
				if hour := r.Batch.Column(2).ValueStr(i); hour != fmt.Sprintf("2026-01-31-%02d", id%2) {
					t.Errorf("row %d: hour %s", id, hour)
				}
				if b := r.Batch.Column(3).(*array.Int32).Value(i); b < 0 || b > 3 {
					t.Errorf("row %d: bucket %d", id, b)
				}
				found[r.Batch.Column(4).ValueStr(i)]++
			}
			return nil
		})
		if err != nil || len(found) != total {
			t.Errorf("%d different rows, want %d: %v", len(found), total, err)
		}
		of := []connector.RowsOf{{Topic: "orders"}, {Topic: "orders", Partition: 1}, {Topic: "none", Partition: connector.AnyPartition}}
		has, err := commands.HasRows(t.Context(), s, of, true)
		if err != nil || !has[of[0]] || has[of[1]] || has[of[2]] {
			t.Errorf("%v, %v", has, err)
		}
		if ok, err := delta.NewRowFinder(mem).Has(t.Context(), "orders", 0, 3, "country", ".."); err != nil || !ok {
			t.Errorf("the row with .. is not found: %v", err)
		}
		if i, err := delta.Inspect(t.Context(), mem); err != nil || i.Refusal != nil || !slices.Equal(i.PartitionColumns, []string{"country", "at_hour", "id_bucket"}) || i.Rows != total {
			t.Errorf("%+v, %v", i, err)
		}
		id := idempotency.Identity{By: idempotency.ByField, Name: "id"}
		read, err := commands.ReadFingerprints(s, connector.FingerprintQuery{Identity: id, Claims: map[connector.Partition]connector.Offsets{
			{Cluster: "c", Topic: "orders"}: {Next: total},
		}})
		if err != nil {
			t.Fatal(err)
		}
		entries := 0
		if err := read(t.Context(), func(r connector.PastRows) error { entries += len(r.Entries); return nil }); err != nil || entries != total {
			t.Errorf("%d fingerprints, %v", entries, err)
		}
		_, err = commands.ReadFingerprints(s, connector.FingerprintQuery{Identity: idempotency.Identity{By: idempotency.ByField, Name: "country"}})
		holds(t, err, hold.SchemaConflict, "is a partition column of the table")
	})
}

// TestPartitioned_AnotherConfiguration: a member whose partition_by differs from the table's is held.
func TestPartitioned_AnotherConfiguration(t *testing.T) {
	mem := objstore.NewMem()
	partitionedBy(t, mem, ddl, "bucket(4, id)")
	for want, by := range map[string][]string{
		"partitioned by (bucket(4, id) AS id_bucket), the rows were built for (bucket(5, id) AS id_bucket)": {"bucket(5, id)"},
		"the rows were built for (name)": {"name"},
	} {
		columns, err := parse(t, ddl).WithPartitionBy(by)
		if err != nil {
			t.Fatal(err)
		}
		_, err = open(t, mem, func(o *delta.Options) { o.Schema = columns }).Load(t.Context())
		holds(t, err, hold.SchemaConflict, want)
	}
}

// TestPartitioned_AddColumns: members of a partitioned table, with partition_by and without, add different columns with
// files that they staged at once. The table keeps its partitions, and the record's field of a computed column's name
// becomes no column.
func TestPartitioned_AddColumns(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		const ddl = "id bigint, country string, at timestamp"
		partitionedBy(t, mem, ddl, "country", "date(at) AS day")
		before := stateOf(t, mem).Metadata
		stage := func(p int32, column string, by ...string) (*delta.Table, *connector.Staged) {
			tab, s := partitionedBy(t, mem, ddl+", "+column+" string", by...)
			builder, err := decode.JSON{}.Builder(s.Schema)
			if err != nil {
				t.Fatal(err)
			}
			of := idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: p}
			for i, country := range []string{"DE", "FR"} {
				text := fmt.Sprintf(`{"id":%d,"country":%q,"at":"2026-01-31T23:59:59Z",%q:"x%d","day":"2000-01-01"}`, i, country, column, i)
				if err := builder.Add(of, &connector.Record{Offset: int64(i), Timestamp: 1_700_000_000_000, Value: []byte(text)}); err != nil {
					t.Fatal(err)
				}
			}
			files, err := tab.Stage(t.Context(), s, "b", []connector.Piece{{Rows: builder.Seal(), To: 2}}, func(int, int64) {})
			if err != nil {
				t.Fatal(err)
			}
			return tab, files
		}
		one, ones := stage(0, "a", "country", "date(at) AS day")
		two, twos := stage(1, "b")
		for i, m := range []struct {
			*delta.Table
			files *connector.Staged
			want  string
		}{{one, ones, "a"}, {two, twos, "b"}} {
			r := rowRange{int32(i), 0, 2}
			s, err := m.Commit(t.Context(), r.commit(m.files), r.pre)
			if err != nil {
				t.Fatal(err)
			}
			meta, _, files := actions(t, mem, s.Version)
			if len(meta) != 1 || len(files) != 2 || !slices.Equal(meta[0].PartitionColumns, before.PartitionColumns) {
				t.Fatalf("%v %v", meta, files)
			}
			for _, f := range files {
				if day := f.PartitionValues["day"]; len(f.PartitionValues) != 2 || day == nil || *day != "2026-01-31" {
					t.Errorf("%s: %v", f.Path, f.PartitionValues)
				}
				if got := fileColumns(t, mem, deltalog.Key(f.Path)); !slices.Equal(got, []string{"id", "at", m.want}) {
					t.Errorf("the file has %q", got)
				}
			}
		}
		if got := names(t, stateOf(t, mem).Metadata); !slices.Equal(got, []string{"id", "country", "at", "day", "a", "b"}) {
			t.Errorf("columns %q", got)
		}
		// A member of the table as it is now continues, and everything finds the rows and their values.
		tab, s := partitionedBy(t, mem, ddl, "country", "date(at) AS day")
		appendJSON(t, tab, s, 5, `{"id":2,"country":"DE","at":"2026-02-01T00:00:00Z","a":"x2"}`)
		if got := values(t, mem, "a"); !slices.Equal(got, []string{"x0", "x1", "x2"}) {
			t.Errorf("a: %q", got)
		}
		days := map[string]int{}
		q := scan.Query{Columns: [][]string{{"country"}, {"day"}, {"b"}}}
		err := delta.Scan(t.Context(), mem, q, func(r scan.Rows) error {
			for i := range int(r.Batch.NumRows()) {
				days[r.Batch.Column(0).ValueStr(i)+" "+r.Batch.Column(1).ValueStr(i)+" "+r.Batch.Column(2).ValueStr(i)]++
			}
			return nil
		})
		want := map[string]int{"DE 2026-01-31 (null)": 1, "FR 2026-01-31 (null)": 1, "DE 2026-01-31 x0": 1, "FR 2026-01-31 x1": 1, "DE 2026-02-01 (null)": 1}
		if diff := cmp.Diff(want, days); diff != "" || err != nil {
			t.Error(err, diff)
		}
	})
}

// TestPartitioned_ManyValues: a batch with 10 000 values becomes as many files, each row in its file and in order. The
// memory beside the batch does not grow with the number of values.
func TestPartitioned_ManyValues(t *testing.T) {
	const values, total = 10_000, 60_000
	store := objstore.NewMem()
	tab, s := partitionedBy(t, store, "id bigint, device string, note string", "device")
	records, r := make([]string, total), rand.New(rand.NewPCG(1, 2))
	for i := range records {
		records[i] = fmt.Sprintf(`{"id":%d,"device":"device-%05d","note":"%x"}`, i, r.IntN(values), r.Uint64())
	}
	defer debug.SetMemoryLimit(debug.SetMemoryLimit(64 << 20))
	runtime.GC()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	appendJSON(t, tab, s, 8_000, records...)
	took := time.Since(began)
	runtime.ReadMemStats(&after)
	sizes, next := []int64{}, map[string]int64{}
	for _, f := range adds(t, store) {
		sizes = append(sizes, f.Size)
	}
	slices.Sort(sizes)
	rows := 0
	q := scan.Query{Columns: [][]string{{"device"}, {"id"}}}
	err := delta.Scan(t.Context(), store, q, func(b scan.Rows) error {
		for i := range int(b.Batch.NumRows()) {
			device, id := b.Batch.Column(0).ValueStr(i), b.Batch.Column(1).(*array.Int64).Value(i)
			if id < next[device] || !strings.Contains(records[id], `"`+device+`"`) {
				t.Fatalf("row %d in %s after %d", id, device, next[device]-1)
			}
			next[device] = id + 1
			rows++
		}
		return nil
	})
	if err != nil || rows != total || len(sizes) != len(next) {
		t.Errorf("%d rows, %d files of %d devices, %v", rows, len(sizes), len(next), err)
	}
	t.Logf("%d rows in %d files of %d to %d bytes (median %d); %v; %d MiB of memory from the system more than before",
		rows, len(sizes), sizes[0], sizes[len(sizes)-1], sizes[len(sizes)/2], took, (int64(after.Sys)-int64(before.Sys))>>20)
	if grown := int64(after.Sys) - int64(before.Sys); grown > 96<<20 {
		t.Errorf("%d MiB of memory more than before", grown>>20)
	}
}
