package scan_test

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/pqarrow"
	"github.com/google/go-cmp/cmp"

	"sluice/classify"
	"sluice/connector/schema"
	"sluice/reliability/hold"
	"sluice/sink/delta/deltalog"
	"sluice/sink/delta/objstore"
	"sluice/sink/delta/scan"
)

// foreign writes a data file as another program does.
func foreign(t *testing.T, sc *arrow.Schema, json string, props ...pqarrow.WriterOption) []byte {
	t.Helper()
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, sc, strings.NewReader(json))
	if err != nil {
		t.Fatal(err)
	}
	defer rec.Release()
	var out bytes.Buffer
	w, err := pqarrow.NewFileWriter(sc, &out, parquet.NewWriterProperties(parquet.WithStats(false)), pqarrow.NewArrowWriterProperties(props...))
	if err == nil {
		err = errors.Join(w.Write(rec), w.Close())
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func lakeOf(t *testing.T, ddl string, change ...func(*deltalog.Protocol, *deltalog.Metadata)) *lake {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	return newLake(t, t.Context(), objstore.NewMem(), s, change...)
}

func TestForeignTypes(t *testing.T) {
	const at = "2024-05-06T07:08:09.123456Z"
	for _, c := range []struct {
		name, ddl string
		file      arrow.DataType
		json      string
		int96     bool
		want      string
	}{
		{"us", "c timestamp", arrow.FixedWidthTypes.Timestamp_us, `"2024-05-06T07:08:09.123456Z"`, false, at},
		{"us without zone", "c timestamp", &arrow.TimestampType{Unit: arrow.Microsecond}, `"2024-05-06T07:08:09.123456"`, false, at},
		{"ms", "c timestamp", arrow.FixedWidthTypes.Timestamp_ms, `"2024-05-06T07:08:09.123Z"`, false, "2024-05-06T07:08:09.123000Z"},
		{"ns before 1970", "c timestamp", arrow.FixedWidthTypes.Timestamp_ns, `"1969-12-31T23:59:59.999999999Z"`, false, "1969-12-31T23:59:59.999999Z"},
		{"INT96", "c timestamp", arrow.FixedWidthTypes.Timestamp_ns, `"2024-05-06T07:08:09.123456789Z"`, true, at},
		{"INT96 before 1970", "c timestamp", arrow.FixedWidthTypes.Timestamp_ns, `"1949-12-31T23:59:59.5Z"`, true, "1949-12-31T23:59:59.500000Z"},
		{"int as long", "c bigint", arrow.PrimitiveTypes.Int32, `-7`, false, "-7"},
		{"long", "c bigint", arrow.PrimitiveTypes.Int64, `9007199254740993`, false, "9007199254740993"},
		{"short", "c smallint", arrow.PrimitiveTypes.Int16, `-300`, false, "-300"},
		{"byte", "c tinyint", arrow.PrimitiveTypes.Int8, `-128`, false, "-128"},
		{"float as double", "c double", arrow.PrimitiveTypes.Float32, `1.5`, false, "1.5"},
		{"int as double", "c double", arrow.PrimitiveTypes.Int32, `3`, false, "3"},
		{"float", "c float", arrow.PrimitiveTypes.Float32, `1.5`, false, "1.5"},
		{"boolean", "c boolean", arrow.FixedWidthTypes.Boolean, `true`, false, "true"},
		{"date", "c date", arrow.FixedWidthTypes.Date32, `"1969-12-31"`, false, "1969-12-31"},
		{"dictionary", "c string", &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: arrow.BinaryTypes.String}, `"ä"`, false, "ä"},
		{"large text", "c string", arrow.BinaryTypes.LargeString, `"ä"`, false, "ä"},
		{"binary as text", "c string", arrow.BinaryTypes.Binary, `"YQ=="`, false, "a"},
	} {
		t.Run(c.name, func(t *testing.T) {
			l := lakeOf(t, c.ddl)
			sc := arrow.NewSchema([]arrow.Field{{Name: "before", Type: arrow.PrimitiveTypes.Int32, Nullable: true}, {Name: "c", Type: c.file, Nullable: true}}, nil)
			l.commit(l.put(foreign(t, sc, `[{"before":1,"c":`+c.json+`},{"c":null},{"c":`+c.json+`}]`, pqarrow.WithDeprecatedInt96Timestamps(c.int96), pqarrow.WithStoreSchema()), ""))
			got, err := values(t, l, "c")
			if err != nil {
				t.Fatal(err)
			}
			for i := range got {
				got[i] = strings.Replace(strings.Replace(got[i], " ", "T", 1), ".5Z", ".500000Z", 1)
				if strings.HasSuffix(got[i], ".123Z") {
					got[i] = strings.TrimSuffix(got[i], "Z") + "000Z"
				}
			}
			if diff := cmp.Diff([]string{c.want, array.NullValueStr, c.want}, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestWrongTypesAreRefused(t *testing.T) {
	for _, c := range []struct {
		name, ddl string
		file      arrow.DataType
		json      string
	}{
		{"text as long", "c bigint", arrow.BinaryTypes.String, `"1"`},
		{"long as int", "c int", arrow.PrimitiveTypes.Int64, `1`},
		{"int as byte", "c tinyint", arrow.PrimitiveTypes.Int32, `300`},
		{"long as timestamp", "c timestamp", arrow.PrimitiveTypes.Int64, `1`},
		{"timestamp as long", "c bigint", arrow.FixedWidthTypes.Timestamp_us, `"2024-05-06T07:08:09Z"`},
		{"unsigned as int", "c int", arrow.PrimitiveTypes.Uint32, `4000000000`},
		{"list as int", "c int", arrow.ListOf(arrow.PrimitiveTypes.Int32), `[1]`},
		{"timestamp beyond microseconds", "c timestamp", arrow.FixedWidthTypes.Timestamp_ms, `9223372036854775807`},
	} {
		l := lakeOf(t, c.ddl)
		sc := arrow.NewSchema([]arrow.Field{{Name: "c", Type: c.file, Nullable: true}}, nil)
		l.commit(l.put(foreign(t, sc, `[{"c":`+c.json+`}]`), ""))
		got, err := values(t, l, "c")
		refused(t, err, "column c")
		if !errors.Is(err, scan.ErrUnsound) {
			t.Errorf("%s: %v %v", c.name, got, err)
		}
	}
}

// refused fails the test unless err is a hold with the reason hold.TableUnsupported whose message contains text.
func refused(t *testing.T, err error, text string) {
	t.Helper()
	var held *hold.Error
	if !errors.As(err, &held) || held.Reason != hold.TableUnsupported || classify.Of(err) != classify.Fatal || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want it refused with %q", err, text)
	}
}

func TestMissingColumnsAndStructs(t *testing.T) {
	l := lakeOf(t, "id bigint, s struct<a: struct<b: string, n: bigint>, l: array<bigint>>, later string")
	inner := arrow.StructOf(arrow.Field{Name: "b", Type: arrow.BinaryTypes.String, Nullable: true})
	sc := arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: "s", Nullable: true, Type: arrow.StructOf(
		arrow.Field{Name: "l", Type: arrow.ListOf(arrow.PrimitiveTypes.Int64), Nullable: true}, arrow.Field{Name: "a", Type: inner, Nullable: true})}}, nil)
	l.commit(l.put(foreign(t, sc, `[{"id":1,"s":{"a":{"b":"x"},"l":[1,2]}},{"id":2,"s":null},{"id":3,"s":{"a":null}},{"id":4,"s":{"a":{"b":null},"l":[]}},{"id":5,"s":{"a":{"b":"y"}}}]`), ""))
	null := array.NullValueStr
	for path, want := range map[string][]string{
		"id": {"1", "2", "3", "4", "5"}, "s.a.b": {"x", null, null, null, "y"},
		"s.a.n": {null, null, null, null, null}, "later": {null, null, null, null, null},
	} {
		got, err := values(t, l, strings.Split(path, ".")...)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
	for path, text := range map[string]string{"s.x": "no column s.x", "s": "column s is struct", "s.l": "column s.l is array", "id.x": "no column id.x"} {
		_, err := values(t, l, strings.Split(path, ".")...)
		refused(t, err, text)
	}
	if err := scan.Run(t.Context(), l.store, l.state(), scan.Query{}, nil); err == nil {
		t.Error("a scan of no columns")
	}
}

func TestTablePartitions(t *testing.T) {
	ddl := "day date, n bigint, i int, sm smallint, by tinyint, d double, f float, ok boolean, at timestamp, name string, v bigint"
	names := []string{"day", "n", "i", "sm", "by", "d", "f", "ok", "at", "name", schema.KafkaTopic, schema.KafkaPartition}
	columns, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	l := newLake(t, t.Context(), objstore.NewMem(), columns.WithKafkaColumns(), func(_ *deltalog.Protocol, m *deltalog.Metadata) { m.PartitionColumns = names })
	text := func(s string) *string { return &s }
	sc := arrow.NewSchema([]arrow.Field{{Name: "v", Type: arrow.PrimitiveTypes.Int64}}, nil)
	add := func(values map[string]*string) {
		a := l.put(foreign(t, sc, `[{"v":1},{"v":2}]`), "")
		a.PartitionValues = values
		l.commit(a)
	}
	add(map[string]*string{
		"day": text("2024-02-29"), "n": text("-5"), "i": text("6"), "sm": text("7"), "by": text("-8"), "d": text("1.5"), "f": text("2.5"), "ok": text("true"),
		"at": text("2024-02-29 12:00:00.5"), "name": text("a b"), schema.KafkaTopic: text("orders"), schema.KafkaPartition: text("3"),
	})
	add(map[string]*string{"day": nil, "n": text("")})
	null := array.NullValueStr
	for name, want := range map[string]string{
		"day": "2024-02-29", "n": "-5", "i": "6", "sm": "7", "by": "-8", "d": "1.5", "f": "2.5", "ok": "true", "at": "2024-02-29T12:00:00.5Z", "name": "a b", "v": "1",
	} {
		got, err := values(t, l, name)
		if err != nil {
			t.Fatal(err)
		}
		wants := []string{want, want, null, null}
		if name == "v" {
			wants = []string{"1", "2", "1", "2"}
		}
		if diff := cmp.Diff(wants, got); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	rows := 0
	q := scan.Query{Columns: [][]string{{"v"}}, Where: []scan.Where{{"orders", 2, 0, math.MaxInt64}}}
	if err := scan.Run(t.Context(), l.store, l.state(), q, func(r scan.Rows) error { rows += int(r.Batch.NumRows()); return nil }); err != nil || rows != 2 {
		t.Errorf("%d rows, %v", rows, err) // the rows of the file that does not say so
	}
	add(map[string]*string{"n": text("many")})
	_, err = values(t, l, "n")
	refused(t, err, "table partition n")
}

func TestFeaturesAreRefusedByName(t *testing.T) {
	type change = func(*deltalog.Protocol, *deltalog.Metadata)
	features := func(names ...string) change {
		return func(p *deltalog.Protocol, _ *deltalog.Metadata) {
			p.MinReaderVersion, p.MinWriterVersion, p.ReaderFeatures, p.WriterFeatures = 3, 7, names, names
		}
	}
	for text, c := range map[string]change{
		"":            features("deletionVectors", "timestampNtz"),
		"features v9": features("deletionVectors", "v9"),
		"reader 4":    func(p *deltalog.Protocol, _ *deltalog.Metadata) { p.MinReaderVersion = 4 },
		"are orc":     func(_ *deltalog.Protocol, m *deltalog.Metadata) { m.Format.Provider = "orc" },
		"column mapping (delta.columnMapping.mode)": func(_ *deltalog.Protocol, m *deltalog.Metadata) {
			m.Configuration = map[string]string{"delta.columnMapping.mode": "name"}
		},
	} {
		l := lakeOf(t, ddl, c)
		_, err := values(t, l, "id")
		if text == "" && err != nil {
			t.Error(err)
		} else if text != "" {
			refused(t, err, text)
		}
	}
	l := lakeOf(t, ddl)
	dv := l.put(nil, "")
	dv.DeletionVector = []byte(`{"storageType":"u"}`)
	l.commit(dv)
	_, err := values(t, l, "id")
	refused(t, err, "deletionVectors")
	l = lakeOf(t, ddl)
	l.commit(deltalog.Add{Path: "s3://elsewhere/part.parquet", Size: 100})
	_, err = values(t, l, "id")
	refused(t, err, "shallow clone")
}
