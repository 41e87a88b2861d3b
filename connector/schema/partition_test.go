package schema_test

import (
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

func TestParseExpression(t *testing.T) {
	for text, want := range map[string]schema.Expression{
		"country":                  {Source: "country", Name: "country"},
		" date ( created_at ) ":    {Function: schema.DateOf, Source: "created_at", Name: "created_at_date"},
		"HOUR(_kafka_timestamp)":   {Function: schema.HourOf, Source: "_kafka_timestamp", Name: "kafka_timestamp_hour"},
		"bucket(16, customer_id)":  {Function: schema.BucketOf, Buckets: 16, Source: "customer_id", Name: "customer_id_bucket"},
		"bucket(1,`a.b`) as `c-d`": {Function: schema.BucketOf, Buckets: 1, Source: "a.b", Name: "c-d"},
		"date(t) AS day":           {Function: schema.DateOf, Source: "t", Name: "day"},
		"date":                     {Source: "date", Name: "date"},
	} {
		got, err := schema.ParseExpression(text)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v %s", text, err, d)
		}
		if again, err := schema.ParseExpression(got.String()); err != nil || again.Function != got.Function || again.Source != got.Source || again.Buckets != got.Buckets {
			t.Errorf("%q printed and parsed again: %+v, %v", text, again, err)
		}
	}
	for text, want := range map[string]string{
		"": "is not an expression", "a b": "is not an expression", "date(a": "is not an expression", "date()": "is not an expression",
		"bucket(a)": "number of buckets", "bucket(10001, a)": "number of buckets", "bucket(2 a)": "is not an expression",
		"month(a)": "there is no function month", "a AS b": "keeps its name", "date(a) AS": "is not an expression",
	} {
		if got, err := schema.ParseExpression(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %+v, %v", text, got, err)
		}
	}
}

// TestWithPartitionBy: a computed column is a nullable column of the table, and its expression is in the table's
// schema. Rows lack it, and data files lack all partition columns.
func TestWithPartitionBy(t *testing.T) {
	s, err := parse(t, "a int, created_at timestamp").WithPartitionBy([]string{"a", "date(created_at)", "bucket(4, a) AS b", "hour(_kafka_timestamp)"})
	if err != nil {
		t.Fatal(err)
	}
	s = s.WithKafkaColumns()
	table, err := schema.FromDelta([]byte(s.DeltaJSON()))
	if err != nil {
		t.Fatal(err)
	}
	table = table.WithPartitions(s.Partitions())
	checkHold(t, table.Unsupported(), "", "")
	if rows, err := table.ForRows(s); rows != table || err != nil {
		t.Errorf("%v, %v", rows, err)
	}
	names := func(all []schema.Field) (list []string) {
		for _, f := range all {
			list = append(list, f.Name+" "+f.Type.String())
		}
		return list
	}
	want := []string{"a int", "created_at timestamp", "created_at_date date", "b int", "kafka_timestamp_hour string"}
	if d := cmp.Diff(want, names(table.Fields()[4:])); d != "" {
		t.Error(d)
	}
	if d := cmp.Diff(want[:2], names(table.Written().Fields()[4:])); d != "" {
		t.Error(d)
	}
	if f := table.FileArrow(); f.NumFields() != 5 || f.Field(4).Name != "created_at" {
		t.Error(f)
	}
	got, err := table.Expressions()
	if d := cmp.Diff([]schema.Expression{
		{Source: "a", Name: "a"},
		{Function: schema.DateOf, Source: "created_at", Name: "created_at_date"},
		{Function: schema.BucketOf, Buckets: 4, Source: "a", Name: "b"},
		{Function: schema.HourOf, Source: "_kafka_timestamp", Name: "kafka_timestamp_hour"},
	}, got); d != "" || err != nil {
		t.Error(err, d)
	}

	// Without partition_by the table decides; with another one there is a hold.
	if rows, err := table.ForRows(parse(t, "a int, created_at timestamp").WithKafkaColumns()); rows != table || err != nil {
		t.Errorf("%v, %v", rows, err)
	}
	for _, other := range [][]string{{"a"}, {"a", "hour(created_at) AS created_at_date", "bucket(4, a) AS b", "hour(_kafka_timestamp)"}, {"a", "date(created_at)", "bucket(5, a) AS b", "hour(_kafka_timestamp)"}} {
		configured, err := parse(t, "a int, created_at timestamp").WithPartitionBy(other)
		if err != nil {
			t.Fatal(err)
		}
		_, err = table.ForRows(configured.WithKafkaColumns())
		checkHold(t, err, hold.SchemaConflict, "the table is partitioned by (a, date(created_at) AS created_at_date, bucket(4, a) AS b")
	}
}

// TestForRows_Partitioned: a partitioned table gets new columns, and keeps its partitions and its computed columns. No
// table gets a computed column, or partitions.
func TestForRows_Partitioned(t *testing.T) {
	const declared = "id bigint, at timestamp, country string"
	by := []string{"country", "date(at) AS day"}
	partitioned := func(ddl string) *schema.Schema {
		s, err := parse(t, ddl).WithPartitionBy(by)
		if err != nil {
			t.Fatal(err)
		}
		return s.WithKafkaColumns()
	}
	table, more := partitioned(declared), declared+", note string"
	for name, configured := range map[string]*schema.Schema{
		"with partition_by": partitioned(more), "without": parse(t, more).WithKafkaColumns(), "of fewer columns": parse(t, "id bigint, note string").WithKafkaColumns(),
	} {
		rows, err := table.ForRows(configured)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		checkHold(t, rows.Unsupported(), "", "")
		if got := table.ChangesTo(rows).List(); !slices.Equal(got, []string{"note string"}) || !slices.Equal(rows.Partitions(), []string{"country", "day"}) {
			t.Errorf("%s: %v, partitioned by %v", name, got, rows.Partitions())
		}
		if got, err := rows.Expressions(); err != nil || len(got) != 2 || got[1].Source != "at" {
			t.Errorf("%s: %v, %v", name, got, err)
		}
		if rows.Written().Has([]string{"day"}) || !rows.Written().Has([]string{"note"}) || rows.FileArrow().HasField("country") || !rows.FileArrow().HasField("note") {
			t.Errorf("%s: rows have %s, files %s", name, rows.Written().DDL(), rows.FileArrow())
		}
		// The table changes as rows require it, also if another member has added the column meanwhile.
		for _, now := range []*schema.Schema{table, rows} {
			if next, err := now.Extended(rows); err != nil || !next.Equal(rows) {
				t.Errorf("%s: %v, %v", name, next, err)
			}
		}
		checkHold(t, rows.Fits(table), "", "")
	}
	plain := parse(t, declared).WithKafkaColumns()
	named, err := parse(t, declared+", day date").WithPartitionBy([]string{"country", "day"})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		table, configured *schema.Schema
		want              string
	}{
		{plain, table, "the table is partitioned by (), the rows were built for (country, date(at) AS day)"},
		{plain.WithPartitions([]string{"country"}), table, "the table is partitioned by (country), the rows were built for"},
		{named.WithKafkaColumns(), table, "the table is partitioned by (country, day), the rows were built for (country, date(at) AS day)"},
		{table, named.WithKafkaColumns(), "column day is computed by the table, date(at), and declared in schema"},
		{table, parse(t, declared+", day date").WithKafkaColumns(), "column day is computed by the table, date(at), and declared in schema"},
		{table, parse(t, declared+", DAY date").WithKafkaColumns(), "differ in case only"},
	} {
		if got, err := c.table.ForRows(c.configured); got != nil {
			t.Errorf("%s, %v; want %s", got.DDL(), err, c.want)
		} else {
			checkHold(t, err, hold.SchemaConflict, c.want)
		}
		if got, err := c.table.Extended(c.configured); got != nil {
			t.Errorf("extended to %s, %v", got.DDL(), err)
		}
	}
}

// TestWithPartitionBy_Names: a column of another name than its field can be a partition column and a source. A computed
// column needs a name that columns can have, and that no other column has in any case.
func TestWithPartitionBy_Names(t *testing.T) {
	const ddl = "`unit price` bigint, `sold at` timestamp, Id string, `a.b` string, `c,d` string"
	s, err := parse(t, ddl).WithPartitionBy([]string{"unit_price", "date(sold_at)", "`a.b`", "bucket(4, c_d) AS `c=d`"})
	if err == nil || s != nil {
		t.Fatal("a computed column c=d")
	}
	s, err = parse(t, ddl).WithPartitionBy([]string{"unit_price", "date(sold_at)", "`a.b`", "bucket(4, c_d) AS `c-d`"})
	if err != nil {
		t.Fatal(err)
	}
	if want := []string{"unit_price", "sold_at_date", "a.b", "c-d"}; !slices.Equal(s.Partitions(), want) {
		t.Errorf("%q", s.Partitions())
	}
	table, err := schema.FromDelta([]byte(s.WithKafkaColumns().DeltaJSON()))
	if err != nil {
		t.Fatal(err)
	}
	table = table.WithPartitions(s.Partitions())
	for _, configured := range []*schema.Schema{s.WithKafkaColumns(), parse(t, ddl).WithKafkaColumns()} {
		if rows, err := table.ForRows(configured); err != nil || rows != table {
			t.Errorf("%v, %v", rows, err)
		}
	}
	for by, want := range map[string]string{
		"`unit price`":         "the field has the column unit_price, write that",
		"date(`sold at`)":      "the field has the column sold_at, write that",
		"nobody":               "column nobody is not in the schema",
		"date(sold_at) AS ID":  "column Id is already in the schema: write AS and another name",
		"date(sold_at) AS `,`": `a column cannot have the name ",": write AS and another name`,
		"date(sold_at) AS `" + strings.Repeat("x", 256) + "`": "a column cannot have the name",
		"date(sold_at) AS _KAFKA_day":                         "names that begin with _kafka_ are reserved",
		"date(sold_at) AS _Rescued":                           "column _rescued is that of unknown fields",
		"_rescued":                                            "column _rescued has a value for each record with unknown fields",
		"bucket(4, _rescued)":                                 "column _rescued has a value for each record with unknown fields",
	} {
		for _, of := range []*schema.Schema{parse(t, ddl), parse(t, ddl).WithRescued()} {
			if got, err := of.WithPartitionBy([]string{by}); err == nil || !strings.Contains(err.Error(), want) && !strings.Contains(err.Error(), "column _rescued is already") {
				t.Errorf("%s: %v, %v", by, got, err)
			}
		}
	}
	// Readers may take a dotless and a dotted capital I for the same letter, and then find a column twice.
	if got, err := parse(t, "at timestamp").WithPartitionBy([]string{"date(at) AS `\u0130d`", "hour(at) AS id"}); err == nil {
		t.Error(got.DDL())
	}
}

// TestIsPartitionTime: the years 1 to 9999 of UTC.
func TestIsPartitionTime(t *testing.T) {
	for text, want := range map[string]bool{
		"0000-12-31T23:59:59.999999Z": false, "0001-01-01T00:00:00Z": true, "9999-12-31T23:59:59.999999Z": true, "9999-12-31T23:59:59-00:01": false,
	} {
		at, err := time.Parse(time.RFC3339Nano, text)
		if err != nil {
			t.Fatal(err)
		}
		day := int32(math.Floor(float64(at.Unix()) / 86400))
		if got := schema.IsPartitionTime(at.UnixMicro()); got != want || schema.IsPartitionDate(day) != want {
			t.Errorf("%s: %t, its day: %t", text, got, schema.IsPartitionDate(day))
		}
	}
}

// TestExpressions_Unsupported: a table is refused if this version cannot compute the values of a partition column.
func TestExpressions_Unsupported(t *testing.T) {
	field := func(name, typ, expression string) string {
		return `{"name":"` + name + `","type":"` + typ + `","nullable":true,"metadata":` + expression + `}`
	}
	for want, fields := range map[string]string{
		"which is not a column of it":          field("q", "long", "{}"),
		"column p is double":                   field("p", "double", "{}"),
		"column p is binary":                   field("p", "binary", "{}"),
		"column t is not in the schema":        field("p", "date", `{"sluice.partition":"date(t)"}`),
		"takes no column of type bigint":       field("p", "date", `{"sluice.partition":"date(t)"}`) + "," + field("t", "long", "{}"),
		"gives date, and the column is string": field("p", "string", `{"sluice.partition":"date(t)"}`) + "," + field("t", "timestamp", "{}"),
		"is no text":                           field("p", "date", `{"sluice.partition":1}`),
		"computes nothing":                     field("p", "date", `{"sluice.partition":"t"}`),
		"column _rescued has a value for each": field("p", "date", `{"sluice.partition":"date(_rescued)"}`) + "," + field("_rescued", "string", "{}"),
		"is not an expression":                 field("p", "date", `{"sluice.partition":"date("}`),
	} {
		s := fromDelta(t, fields).WithPartitions([]string{"p"})
		checkHold(t, s.Unsupported(), hold.TableUnsupported, want)
	}
}
