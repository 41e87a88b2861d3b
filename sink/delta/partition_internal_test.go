package delta

import (
	"io/fs"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/connector/schema"
	"sluice/sink/delta/deltalog"
)

// TestPartitionValues: the log has the values of partition columns as the protocol and Iceberg's specification say.
func TestPartitionValues(t *testing.T) {
	s, err := schema.ParseDDL("s string, i int, l bigint, b boolean, d date, t timestamp")
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.WithPartitionBy([]string{
		"s", "i", "b", "d", "t", "date(t) AS td", "hour(t) AS th",
		"bucket(2147, i) AS bi", "bucket(2147, s) AS bs", "bucket(2147, d) AS bd", "bucket(2147, t) AS bt", "bucket(2147, l) AS bl",
	}); err != nil {
		t.Fatal(err)
	}
	p, err := newPartitioner(s)
	if err != nil {
		t.Fatal(err)
	}
	b := array.NewRecordBuilder(memory.DefaultAllocator, s.Arrow())
	row := func(text string, valid bool) {
		v := []bool{valid}
		b.Field(0).(*array.StringBuilder).AppendValues([]string{text}, v)
		b.Field(1).(*array.Int32Builder).AppendValues([]int32{34}, v)
		b.Field(2).(*array.Int64Builder).AppendValues([]int64{34}, v)
		b.Field(3).(*array.BooleanBuilder).AppendValues([]bool{true}, v)
		b.Field(4).(*array.Date32Builder).AppendValues([]arrow.Date32{17486}, v)
		b.Field(5).(*array.TimestampBuilder).AppendValues([]arrow.Timestamp{1_510_871_468_000_000}, v)
	}
	row("iceberg", true)
	row("", true)
	row("", false)
	row("iceberg", true)
	numbers, err := p.Of(b.NewRecordBatch())
	if d := cmp.Diff([]int32{0, 1, 2, 0}, numbers); d != "" || err != nil {
		t.Fatal(err, d)
	}
	// The hashes are the examples in the specification of Iceberg, appendix B.
	hash := func(h uint32) *string { return new(itoa(int64(h&0x7fffffff) % 2147)) }
	negative := func(h int32) *string { return hash(uint32(h)) }
	want := map[string]*string{
		"s": new("iceberg"), "i": new("34"), "b": new("true"), "d": new("2017-11-16"), "t": new("2017-11-16T22:31:08.000000Z"),
		"td": new("2017-11-16"), "th": new("2017-11-16-22"),
		"bi": hash(2017239379), "bl": hash(2017239379), "bs": hash(1210000089), "bd": negative(-653330422), "bt": negative(-2047944441),
	}
	if d := cmp.Diff(want, p.values[0]); d != "" {
		t.Error(d)
	}
	if p.values[1]["s"] != nil || *p.values[1]["bs"] != "0" {
		t.Error("the empty text is not null, or has no bucket")
	}
	for name, v := range p.values[2] {
		if v != nil {
			t.Errorf("%s is %q, not null", name, *v)
		}
	}
	for name, by := range map[string]string{"t": "t", "d": "d", "x": "date(t) AS x", "y": "hour(t) AS y"} {
		p := partitionerOf(t, "t timestamp, d date", by)
		b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
			{Name: "t", Type: arrow.FixedWidthTypes.Timestamp_us}, {Name: "d", Type: arrow.FixedWidthTypes.Date32},
		}, nil))
		b.Field(0).(*array.TimestampBuilder).Append(253_402_300_800_000_000)
		b.Field(1).(*array.Date32Builder).Append(-719_163)
		if _, err := p.Of(b.NewRecordBatch()); err == nil || !strings.Contains(err.Error(), "cannot be a value of partition column "+name) {
			t.Errorf("%s: %v", by, err)
		}
	}
	row(schema.NullPartition, true)
	if _, err := p.Of(b.NewRecordBatch()); err == nil || !strings.Contains(err.Error(), "cannot be a value of partition column s") {
		t.Error(err)
	}
}

// partitionerOf returns the partitioner of a table with one expression.
func partitionerOf(t *testing.T, ddl, by string) *partitioner {
	t.Helper()
	s, err := schema.ParseDDL(ddl)
	if err != nil {
		t.Fatal(err)
	}
	if s, err = s.WithPartitionBy([]string{by}); err != nil {
		t.Fatal(err)
	}
	p, err := newPartitioner(s)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func itoa(n int64) string {
	var digits []byte
	for ; n >= 10; n /= 10 {
		digits = append([]byte{byte('0' + n%10)}, digits...)
	}
	return string(append([]byte{byte('0' + n)}, digits...))
}

func TestDirectory(t *testing.T) {
	for value, want := range map[string]string{
		"DE": "c=DE/", "..": "c=../", "a/b": "c=a%2Fb/", "%2F": "c=%252F/", "a\nb": "c=a%0Ab/", "😀": "c=%F0%9F%98%80/", "a\x00": "c=a%00/",
		"\\": "c=%5C/", "a b": "c=a%20b/", "`{|}<>é": "c=%60%7B%7C%7D%3C%3E%C3%A9/", "!$&()+,-.;@_~": "c=!$&()+,-.;@_~/", "=:?": "c=%3D%3A%3F/",
		strings.Repeat("x", 253): "c=" + strings.Repeat("x", 253) + "/",
	} {
		if got := directory([]string{"c"}, map[string]*string{"c": &value}); got != want {
			t.Errorf("%q: %s, want %s", value, got, want)
		}
	}
	if got := directory([]string{"a", "b"}, map[string]*string{"a": nil, "b": new("1")}); got != "a=__HIVE_DEFAULT_PARTITION__/b=1/" {
		t.Error(got)
	}
	if got := directory(nil, nil); got != "" {
		t.Error(got)
	}
	// Names that hide a directory are those of partition columns, which a vacuum does not skip.
	if got := directory([]string{"_c", ".c"}, map[string]*string{"_c": new("x"), ".c": new("y")}); got != "_c=x/.c=y/" {
		t.Error(got)
	}
	for _, columns := range [][]string{{"c"}, {"a", "b", "c"}} {
		long := strings.Repeat("x", 512/len(columns))
		got := directory(columns, map[string]*string{"a": &long, "b": &long, "c": &long})
		if len(got) != len("(hash)=/")+32 || !strings.HasPrefix(got, "(hash)=") {
			t.Errorf("%d columns: %s", len(columns), got)
		}
	}
}

// TestDirectory_Stays: with any values, the key of a file stays below the table, is valid for every store, and
// comes back from the path in the log.
func TestDirectory_Stays(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var columns []string
		values := map[string]*string{}
		for range rapid.IntRange(1, 4).Draw(t, "columns") {
			name := rapid.StringN(1, 20, -1).Draw(t, "name")
			columns = append(columns, name)
			values[name] = rapid.Ptr(rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"..", ".", "/", "../..", "%2F", "%", "\x00", strings.Repeat("é", 5000)})), true).Draw(t, "value")
		}
		key := directory(columns, values) + "part-00000-01234567-0123-0123-0123-0123456789ab.c000.zstd.parquet"
		hidden := func(r rune) bool { return r < ' ' || r == 0x7f || r == '\\' }
		if !fs.ValidPath(key) || len(key) > 600 || !utf8.ValidString(key) || strings.ContainsFunc(key, hidden) || !strings.Contains(key[:strings.IndexByte(key, '/')], "=") {
			t.Fatalf("%q", key)
		}
		if got := deltalog.Key(deltalog.URI(key)); got != key {
			t.Fatalf("%q came back as %q", key, got)
		}
	})
}
