package delta_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/reliability/hold"
	"sluice/sink/delta"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/deltatest"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/objstore/objstoretest"
)

func TestSupported(t *testing.T) {
	columns := parse(t, ddl).WithKafkaColumns().DeltaJSON()
	with := func(key, value string) deltalog.Metadata {
		return deltalog.Metadata{ID: "i", SchemaString: columns, Configuration: map[string]string{key: value}}
	}
	plain := deltalog.Protocol{MinReaderVersion: 1, MinWriterVersion: 2}
	for name, m := range map[string]deltalog.Metadata{
		"nothing":     {ID: "i", SchemaString: columns},
		"append only": with("delta.appendOnly", "true"),
		// Change files are needed for updates and deletes, but not for appends.
		"change data feed":       with("delta.enableChangeDataFeed", "true"),
		"foreign property":       with("owner", "x"),
		"no column mapping":      with("delta.columnMapping.mode", "none"),
		"no iceberg":             with("delta.enableIcebergCompatV2", "false"),
		"txns kept for a month":  with("delta.setTransactionRetentionDuration", "interval 30 days"),
		"a log kept for an hour": with("delta.logRetentionDuration", "interval 1 hour"),
		"classic checkpoints":    with("delta.checkpointPolicy", "classic"),
	} {
		if err := delta.Supported(plain, m); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := delta.Supported(deltalog.Protocol{MinReaderVersion: 1, MinWriterVersion: 1}, with("a", "b")); err != nil {
		t.Error(err)
	}
	for text, p := range map[string]deltalog.Protocol{
		"changeDataFeed, checkConstraints, generatedColumns": {MinReaderVersion: 1, MinWriterVersion: 4},
		"reader 2, writer 5":       {MinReaderVersion: 2, MinWriterVersion: 5},
		"deletionVectors, variant": {MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"deletionVectors"}, WriterFeatures: []string{"variant", "deletionVectors"}},
		"catalogManaged":           {MinReaderVersion: 3, MinWriterVersion: 7, ReaderFeatures: []string{"catalogManaged"}, WriterFeatures: []string{"catalogManaged"}},
		"writer 99":                {MinReaderVersion: 1, MinWriterVersion: 99},
		"reader 2, writer 2":       {MinReaderVersion: 2, MinWriterVersion: 2},
		"reader 1, writer 2: odd":  {MinReaderVersion: 1, MinWriterVersion: 2, WriterFeatures: []string{"odd"}},
	} {
		holds(t, delta.Supported(p, with("a", "b")), hold.TableUnsupported, text)
	}
	partitioned := with("a", "b")
	partitioned.PartitionColumns = []string{"_kafka_offset"}
	csv := with("a", "b")
	csv.Format.Provider = "csv"
	for text, m := range map[string]deltalog.Metadata{
		"CHECK constraint (delta.constraints.c)":                     with("delta.constraints.c", "id > 0"),
		"column mapping":                                             with("delta.columnMapping.mode", "name"),
		"delta.enableRowTracking":                                    with("delta.enableRowTracking", "true"),
		"delta.enableIcebergCompatV2":                                with("delta.enableIcebergCompatV2", "true"),
		"delta.enableIcebergCompatV3":                                with("delta.enableIcebergCompatV3", "true"),
		"delta.enableInCommitTimestamps":                             with("delta.enableInCommitTimestamps", "true"),
		"delta.enableIcebergCompatV1":                                with("delta.enableIcebergCompatV1", "true"),
		"delta.universalFormat":                                      with("delta.universalFormat.enabledFormats", "iceberg"),
		"another service":                                            with("delta.coordinatedCommits.commitCoordinator-preview", "dynamodb"),
		"checkpoints of another kind":                                with("delta.checkpointPolicy", "v2"),
		"a feature":                                                  with("delta.feature.deletionVectors", "supported"),
		`= "interval 29 days", after which positions may be dropped`: with("delta.setTransactionRetentionDuration", "interval 29 days"),
		`= "soon"`: with("delta.setTransactionRetentionDuration", "soon"),
		`= "interval 59 minutes", after which a version`: with("delta.logRetentionDuration", "interval 59 minutes"),
		`= "later"`:                    with("delta.logRetentionDuration", "later"),
		"partitioned by _kafka_offset": partitioned,
		"csv":                          csv,
		"cannot be read":               {ID: "i", SchemaString: "?"},
		"invariant":                    {ID: "i", SchemaString: strings.Replace(columns, `"metadata":{}`, `"metadata":{"delta.invariants":"{}"}`, 1)},
	} {
		holds(t, delta.Supported(plain, m), hold.TableUnsupported, text)
	}
	holds(t, delta.Supported(plain, deltalog.Metadata{ID: "i", SchemaString: parse(t, ddl).DeltaJSON()}), hold.SchemaConflict, "_kafka_offset")
}

// TestOpenExisting: a table is refused if it lacks a NOT NULL column of the configured schema or has a column with
// another type. Nullable columns may be missing.
func TestOpenExisting(t *testing.T) {
	mem := objstore.NewMem()
	load(t, open(t, mem))
	for text, want := range map[string]string{
		"id bigint":                        "", // the table may have more columns
		ddl:                                "",
		"id bigint, name string, x string": "",
		"id bigint, name string, x string not null": "column x is not null in schema and not in the table",
		"id string, name string":                    "column id",
	} {
		_, err := open(t, mem, func(o *delta.Options) { o.Schema = parse(t, text) }).Load(t.Context())
		if want == "" && err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if want != "" {
			holds(t, err, hold.SchemaConflict, want)
		}
	}
	s := load(t, open(t, mem, func(o *delta.Options) { o.Schema = nil }))
	if err := s.Schema.Fits(parse(t, ddl).WithKafkaColumns()); err != nil {
		t.Error(err)
	}
	_, err := open(t, objstore.NewMem(), func(o *delta.Options) { o.Schema = nil }).Load(t.Context())
	holds(t, err, hold.SchemaConflict, "there is no table")
}

// TestRefusalEnds: while the table needs a feature that this version of Sluice does not have, each load is refused with
// a hold. Once it needs the feature no more, the writer continues.
func TestRefusalEnds(t *testing.T) {
	mem := objstore.NewMem()
	tab := open(t, mem)
	before := load(t, tab)
	m := alter(t, mem, ddl)
	m.Configuration = map[string]string{"delta.constraints.c": "id > 0"}
	foreign(t, mem, m)
	_, err := tab.Load(t.Context())
	holds(t, err, hold.TableUnsupported, "constraint")
	foreign(t, mem, alter(t, mem, ddl), deltalog.Txn{AppID: "x", Version: 1})
	m.Configuration = nil
	foreign(t, mem, m)
	if s := load(t, tab); s.Version != 3 || s.Schema.Fits(before.Schema) != nil {
		t.Errorf("%+v", s)
	}
}

func TestTableVanished(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		tab := open(t, mem)
		load(t, tab)
		if err := mem.Delete(t.Context(), deltalog.CommitKey(0)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for range 2 { // if a member has seen the table, it does not create it again
			_, err := tab.Load(t.Context())
			holds(t, err, hold.TableReplaced, "is gone")
		}
	})
}

func TestDamagedLog(t *testing.T) {
	mem := objstore.NewMem()
	load(t, open(t, mem))
	put(t, mem, deltalog.CommitKey(2), `{"txn":{"appId":"a","version":1}}`)
	_, err := open(t, mem).Load(t.Context())
	holds(t, err, hold.TableUnsupported, "version 1 is missing")
	if err := mem.Delete(t.Context(), deltalog.CommitKey(2)); err != nil {
		t.Fatal(err)
	}
	put(t, mem, deltalog.CommitKey(0), "garbage")
	_, err = open(t, mem).Load(t.Context())
	holds(t, err, hold.TableUnsupported, "corrupt")
}

func TestDeniedLoad(t *testing.T) {
	bubble(t, func(t *testing.T) {
		store := objstoretest.NewFaulty(objstore.NewMem(), func(objstore.Op) objstoretest.Fault { return denied })
		_, err := open(t, store).Load(t.Context())
		holds(t, err, hold.StoreDenied, "403")
	})
}

// TestStatisticsProperties: the properties of the table for the number of indexed columns and the length of string
// bounds decide which statistics a commit has.
func TestStatisticsProperties(t *testing.T) {
	for property, want := range map[string]string{
		"delta.dataSkippingNumIndexedCols":         `{"numRecords":3}`,
		"delta.dataSkippingStringPrefixLength":     `"name":"n"`,
		"delta.dataSkippingNumIndexedCols.foreign": `"name":"n0"`,
		"delta.dataSkippingStatsColumns":           `{"numRecords":3,"minValues":{"id":0},"maxValues":{"id":2},"nullCount":{"id":0}}`,
	} {
		mem := objstore.NewMem()
		tab := open(t, mem)
		load(t, tab)
		m := alter(t, mem, ddl)
		m.Configuration = map[string]string{property: "0"}
		if strings.HasSuffix(property, "PrefixLength") {
			m.Configuration[property] = "1"
		}
		if strings.HasSuffix(property, "StatsColumns") {
			m.Configuration[property] = "ID"
		}
		foreign(t, mem, m)
		s := appendCommits(t, tab, 1)
		c, err := deltalog.ReadCommit(t.Context(), mem, s.Version, deltalog.KindAdd)
		if err != nil {
			t.Fatal(err)
		}
		if got := c.Actions[0].(deltalog.Add).Stats; !strings.Contains(got, want) {
			t.Errorf("%s: %s", property, got)
		}
	}
}

// TestStageSeveralFiles: rows keep their order over several pieces and files.
func TestStageSeveralFiles(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		tab := open(t, mem, func(o *delta.Options) { o.FileSize = 1 })
		s := load(t, tab)
		pieces := []connector.Piece{rows(s.Schema, 0, 0, 5), rows(s.Schema, 0, 5, 6), rows(s.Schema, 0, 6, 20)}
		staged, err := tab.Stage(t.Context(), s, "b-1", pieces, nil)
		if err != nil || staged.Rows != 20 || staged.Bytes == 0 {
			t.Fatal(staged, err)
		}
		if _, err := tab.Commit(t.Context(), rowRange{0, 0, 20}.commit(staged), rowRange{0, 0, 20}.pre); err != nil {
			t.Fatal(err)
		}
		if n := len(files(t, mem)); n != 3 {
			t.Errorf("%d files", n)
		}
		check(t, mem, 20)
	})
}

// TestBrokenReads: if a read fails or its body breaks off, the guard retries it. The table then has the same state as
// without failures.
func TestBrokenReads(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		tab := open(t, mem)
		for range 5 { // writes two checkpoints, and commits after them
			appendCommits(t, tab, 5)
			synctest.Wait() // waits for the checkpoint, which might otherwise be of a later version
		}
		var n atomic.Int64 // counts operations; commits are read in parallel
		store := objstoretest.NewFaulty(mem, func(op objstore.Op) objstoretest.Fault {
			if n.Add(1)%2 == 0 && (op.Kind == objstore.OpGet || op.Kind == objstore.OpList) {
				return broken
			}
			return ok
		})
		tr := &trace{}
		if s := load(t, open(t, objstoretest.Traced(store, tr.line))); s.Version != 25 || s.Positions[app(0)] != 75 {
			t.Errorf("%+v", s)
		}
		lists := slices.DeleteFunc(tr.all(), func(l string) bool { return !strings.HasPrefix(l, "list") })
		if len(lists) != 2 || lists[0] == lists[1] || !strings.Contains(lists[1], ".json") {
			t.Errorf("a list that broke off was not continued: %q", lists)
		}
	})
}

// TestCheckpoints: the table writes checkpoints by itself, one at a time. If one fails, commits are not affected.
func TestCheckpoints(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		failing := true
		store := objstoretest.NewFaulty(mem, func(op objstore.Op) objstoretest.Fault {
			if failing && strings.Contains(op.Key, "checkpoint.parquet") {
				return unavailable
			}
			return ok
		})
		reg := prometheus.NewRegistry()
		tab := open(t, store, measured(reg))
		load(t, tab)
		step := func(n int, written, failed float64) {
			t.Helper()
			for range n {
				appendCommits(t, tab, 1)
				synctest.Wait()
			}
			s, err := deltalog.Load(t.Context(), mem)
			if err != nil {
				t.Fatal(err)
			}
			const name = "sluice_delta_checkpoints_total"
			if ok, no := metric(t, reg, name, "ok"), metric(t, reg, name, "failed"); ok != written || no != failed {
				t.Errorf("version %d: %v checkpoints and %v failed, want %v and %v", s.Version, ok, no, written, failed)
			}
		}
		step(8, 0, 0)
		step(1, 0, 1)
		step(9, 0, 1)
		step(1, 0, 2)
		failing = false
		step(9, 0, 2)
		step(1, 1, 2)
		step(9, 1, 2)
		step(1, 2, 2) // now the commits since the last checkpoint have more than a quarter of its bytes

		// A checkpoint of another member counts like an own one.
		stranger := open(t, mem)
		appendCommits(t, stranger, 10)
		synctest.Wait()
		step(9, 2, 2)

		// If the last checkpoint is missing, the next one does not copy from it.
		s, err := deltalog.Load(t.Context(), mem)
		if err != nil {
			t.Fatal(err)
		}
		if err := mem.Delete(t.Context(), deltalog.CheckpointKey(s.Checkpoint.Version)); err != nil {
			t.Fatal(err)
		}
		step(10, 3, 2)
		check(t, mem, (s.Version+10)*3)
		tab.Close()
		step(30, 3, 2)
	})
}

func TestInspect(t *testing.T) {
	bubble(t, func(t *testing.T) {
		mem := objstore.NewMem()
		if _, err := delta.Inspect(t.Context(), mem); !errors.Is(err, deltalog.ErrNoTable) {
			t.Error(err)
		}
		tab := open(t, mem)
		appendCommits(t, tab, 12)
		synctest.Wait()
		foreign(t, mem, deltalog.Add{Path: "foreign.parquet", Size: 5}, deltalog.Remove{Path: "none.parquet"})
		i, err := delta.Inspect(t.Context(), mem)
		if err != nil {
			t.Fatal(err)
		}
		if i.Version != 13 || i.Checkpoint != 9 || i.Files != 13 || i.Rows != 36 || i.FilesWithoutRows != 1 || i.Refusal != nil ||
			len(i.Txns) != 1 || i.Schema == nil || i.Created.IsZero() {
			t.Errorf("%+v", i)
		}
		m := alter(t, mem, ddl)
		m.PartitionColumns = []string{"none"}
		foreign(t, mem, m)
		if i, err = delta.Inspect(t.Context(), mem); err != nil || i.Refusal == nil || i.Schema == nil {
			t.Errorf("%+v, %v", i, err)
		}

		var history []delta.Entry
		for e, err := range delta.History(t.Context(), mem) {
			if err != nil {
				t.Fatal(err)
			}
			history = append(history, e)
		}
		if e := history[12]; len(history) != 15 || e.Rows != 3 || e.Files != 1 || len(e.Ranges) != 1 || e.Ranges[0].From != 33 || e.Operation != "STREAMING UPDATE" || e.Time.IsZero() {
			t.Errorf("%d entries, %+v", len(history), e)
		}
		if e := history[13]; e.Ranges != nil || e.Removed != 1 || e.Rows != 0 {
			t.Errorf("%+v", e)
		}
		versions := map[int64]int{}
		for f, err := range deltatest.Adds(t.Context(), mem) {
			if err != nil {
				t.Fatal(err)
			}
			versions[f.Version]++
		}
		if versions[-1] != 9 || versions[12] != 1 || versions[13] != 1 {
			t.Errorf("files by version: %v", versions)
		}
		for e, err := range delta.History(t.Context(), mem) { // the caller may leave the iterator early
			if err != nil || e.Version > 0 {
				t.Error(e, err)
			}
			break
		}
	})
}

func TestOffsetsOfDamagedFiles(t *testing.T) {
	mem := objstore.NewMem()
	appendCommits(t, open(t, mem), 1)
	whole := get(t, mem, files(t, mem)[0])
	for name, text := range map[string]string{
		"missing": "", "garbage": "garbage", "cut off": whole[:len(whole)/2], "no columns": "",
		"a hole": whole[:40] + strings.Repeat("\x00", 40) + whole[80:],
	} {
		key := strings.ReplaceAll(name, " ", "-") + ".parquet"
		if name != "missing" {
			if err := mem.Put(t.Context(), key, bytes.NewReader([]byte(text)), objstore.Replace); err != nil {
				t.Fatal(err)
			}
		}
		var err error
		for _, err = range delta.Offsets(t.Context(), mem, deltalog.File{Add: deltalog.Add{Path: key}}) {
			if err != nil {
				break
			}
		}
		if err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	deleted := deltalog.File{Add: deltalog.Add{Path: files(t, mem)[0], DeletionVector: []byte("{}")}}
	for _, err := range delta.Offsets(t.Context(), mem, deleted) {
		if err == nil {
			t.Error("rows of a file with a deletion vector")
		}
	}
}
