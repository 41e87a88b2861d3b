package decode

import (
	"errors"
	"fmt"
	"testing"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/reliability/hold"
)

// partitioned returns the schema of a table with these partitions.
func partitioned(t *testing.T, ddl string, by ...string) *schema.Schema {
	t.Helper()
	s, err := parse(t, ddl).WithPartitionBy(by)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestPartitionValues: a record is refused if a partition column cannot have its value, and its row leaves nothing
// behind. Columns by which the table is not partitioned, and the sources of buckets, take all values.
func TestPartitionValues(t *testing.T) {
	const ddl = "s string, r string not null, t timestamp, e timestamp, d date, x string, y timestamp, z date"
	options := JSON{Columns: ColumnOptions{"e": {Epoch: "s"}}}
	table := partitioned(t, ddl, "s", "r", "date(t)", "hour(t)", "e", "d", "date(_kafka_timestamp)", "bucket(2, x)", "bucket(2, y)", "bucket(2, z)")
	const good = 1_700_000_000_000
	for _, c := range []struct {
		record string
		at     int64
		path   string // that of the refused value, "" if the record becomes a row
	}{
		{`{"r":"a"}`, good, ""},
		{`{"r":"a"}`, noTimestamp, ""},
		{`{"s":"","r":"a","t":null,"e":null,"d":null}`, good, ""},
		{`{"s":"__HIVE_DEFAULT_PARTITION__","r":"a"}`, good, "s"},
		{`{"s":"__hive_default_partition__","r":"__HIVE_DEFAULT_PARTITION_"}`, good, ""},
		{`{"r":"__HIVE\u005fDEFAULT_PARTITION__"}`, good, "r"},
		{`{"r":""}`, good, "r"},
		{`{"r":"a","t":"0000-12-31T23:59:59.999999Z"}`, good, "t"},
		{`{"r":"a","t":"0001-01-01T00:00:00Z"}`, good, ""},
		{`{"r":"a","t":"0001-01-01T00:00:00+00:01"}`, good, "t"},
		{`{"r":"a","t":"9999-12-31T23:59:59.999999Z"}`, good, ""},
		{`{"r":"a","t":"9999-12-31T23:59:59-00:01"}`, good, "t"},
		{`{"r":"a","e":-62135596801}`, good, "e"},
		{`{"r":"a","e":-62135596800}`, good, ""},
		{`{"r":"a","d":"0000-12-31"}`, good, "d"},
		{`{"r":"a","d":"0001-01-01"}`, good, ""},
		{`{"r":"a","d":"9999-12-31"}`, good, ""},
		{`{"r":"a"}`, 253_402_300_800_000, "_kafka_timestamp"},
		{`{"r":"a"}`, 253_402_300_799_999, ""},
		{`{"r":"a"}`, -62_135_596_800_001, "_kafka_timestamp"},
		{`{"r":"a"}`, -62_135_596_800_000, ""},
		{`{"r":"a","x":"__HIVE_DEFAULT_PARTITION__","y":"0000-01-01T00:00:00Z","z":"0000-01-01"}`, good, ""},
	} {
		for _, distinct := range []int{0, maxDistinct} {
			d := open(t, table, options, distinct)
			if err := d.addValue([]byte(`{"r":"first","s":"x"}`)); err != nil {
				t.Fatal(err)
			}
			err := d.Add(connector.Partition{Topic: "orders"}, &connector.Record{Offset: 1, Timestamp: c.at, Value: []byte(c.record)})
			var e *Error
			switch {
			case c.path == "" && (err != nil || d.Rows() != 2):
				t.Errorf("%s at %d: %v, %d rows", c.record, c.at, err, d.Rows())
			case c.path != "" && (!errors.As(err, &e) || e.Reason != BadPartition || e.Path != c.path || d.Rows() != 1):
				t.Errorf("%s at %d: %v, %d rows", c.record, c.at, err, d.Rows())
			}
			rows := d.Seal()
			for i := range int(rows.NumCols()) {
				if rows.Column(i).Len() != int(rows.NumRows()) {
					t.Errorf("%s: column %s has %d rows of %d", c.record, rows.ColumnName(i), rows.Column(i).Len(), rows.NumRows())
				}
			}
		}
	}
}

// TestPartitionMemory: the rows of a partitioned table take the memory for sorting them from the batch pool.
func TestPartitionMemory(t *testing.T) {
	const rows = 2000
	size := func(s *schema.Schema) (allocated, sealed int64) {
		d := open(t, s, JSON{}, maxDistinct)
		for i := range rows {
			if err := d.addValue(fmt.Appendf(nil, `{"a":%d}`, i)); err != nil {
				t.Fatal(err)
			}
		}
		allocated = d.Allocated()
		d.Seal()
		return allocated, d.Sealed()
	}
	plainAllocated, plainSealed := size(parse(t, "a bigint"))
	allocated, sealed := size(partitioned(t, "a bigint", "bucket(4, a)"))
	if allocated-plainAllocated != 12*rows || sealed-plainSealed != 12*rows {
		t.Errorf("%d bytes more before sealing, %d after", allocated-plainAllocated, sealed-plainSealed)
	}
}

// TestPartitionColumns_Unsupported: no records are decoded for a table whose partition values cannot be computed.
func TestPartitionColumns_Unsupported(t *testing.T) {
	_, err := JSON{}.Builder(parse(t, "a double").WithPartitions([]string{"a"}))
	if held, ok := errors.AsType[*hold.Error](err); !ok || held.Reason != hold.TableUnsupported {
		t.Errorf("no hold: %v", err)
	}
}
