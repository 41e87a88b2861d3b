package decode

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/reliability/hold"
)

// rescued returns the text of the column for undeclared fields by row, "" for null.
func rescued(t *testing.T, d *jsonDecoder) (texts []string) {
	t.Helper()
	batch := d.Seal()
	defer batch.Release()
	column := batch.Schema().FieldIndices(schema.Rescued)[0]
	for i := range int(batch.NumRows()) {
		text, _ := rowOf(batch, i)[column].(string)
		texts = append(texts, text)
	}
	return texts
}

func rescuing(t *testing.T, ddl string, j JSON) *jsonDecoder {
	t.Helper()
	j.Rescue = true
	return open(t, parse(t, ddl).WithRescued(), j, maxDistinct)
}

// TestRescue: each undeclared field that is not null is in the column with its path and its own text. Declared fields
// are not, and refused records leave nothing behind.
func TestRescue(t *testing.T) {
	d := rescuing(t, "a int, `b.c` struct<x:int>, list array<array<struct<x:int, y:struct<z:int>>>>, m map<string,array<struct<x:int>>>", JSON{})
	bad := []string{`{"new":1,"a":"x"}`, `{"new":1,"new":2}`, `{"a":1,"new":{"x":1,"x":2}}`, `{"new":1`, `{"new":01}`, `{"b.c":{"new":1},"a":true}`}
	var want []string
	for _, c := range []struct{ record, want string }{
		{`{"a":1}`, ""},
		{`{"a":1,"new":null}`, ""},
		{`{"new": 1.50 , "a":1,"obj":{"x": [1, null]}}`, `{"new":1.50,"obj":{"x": [1, null]}}`},
		{`{"n\u0065w":"t\u0065xt","\"q\\\n":true,"ü":1}`, `{"new":"t\u0065xt","\"q\\\u000a":true,"ü":1}`},
		{`{"b.c":{"x":1,"y":2},"b":{"c":3},"b.c.y":4,"":5,"t` + "`" + `[":6}`, "{\"`b.c`.y\":2,\"b\":{\"c\":3},\"`b.c.y`\":4,\"``\":5,\"`t``[`\":6}"},
		{
			`{"list":[[{"x":1}],[],[{"x":1,"new":1},{"new":2,"y":{"z":1,"new":3}}],[{"new":4}]]}`,
			`{"list[2][0].new":1,"list[2][1].new":2,"list[2][1].y.new":3,"list[3][0].new":4}`,
		},
		{`{"m":{"k":[{"x":1},{"new":1}],"k.":[{"new":"2"}]}}`, "{\"m.k[1].new\":1,\"m.`k.`[0].new\":\"2\"}"},
		{`{"_rescued":"x","_kafka_offset":1}`, `{"_rescued":"x","_kafka_offset":1}`},
		{`{}`, ""},
	} {
		if err := d.addValue([]byte(c.record)); err != nil {
			t.Fatalf("%s: %v", c.record, err)
		}
		want = append(want, c.want)
		for _, r := range bad {
			if err := d.addValue([]byte(r)); err == nil {
				t.Fatalf("%s is accepted", r)
			}
		}
		if c.want != "" && !json.Valid([]byte(c.want)) {
			t.Errorf("%s is no JSON", c.want)
		}
	}
	if i := d.Ignored(); i.Fields != 0 {
		t.Errorf("%d fields ignored", i.Fields)
	}
	if got := rescued(t, d); !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	// The next chunk begins empty.
	if err := d.addValue([]byte(`{"new":2}`)); err != nil {
		t.Fatal(err)
	}
	if got := rescued(t, d); !slices.Equal(got, []string{`{"new":2}`}) {
		t.Errorf("%q", got)
	}
}

// TestRescue_Paths: different fields never have the same path.
func TestRescue_Paths(t *testing.T) {
	d := rescuing(t, "a struct<b:struct<c:int>, `b.c`:struct<c:int>>, `a.b` struct<c:int>", JSON{})
	names := []string{"x", "b.x", "b", "c.x", "`b`", "", ".", "b`.`x", "[0]"}
	var fields []string
	for _, n := range names {
		text, err := json.Marshal(n)
		if err != nil {
			t.Fatal(err)
		}
		fields = append(fields, string(text)+":1")
	}
	top := strings.Join(fields, ",")
	inner := strings.Join(slices.DeleteFunc(slices.Clone(fields), func(f string) bool { return f == `"b":1` }), ",")
	record := fmt.Sprintf(`{"a":{"b":{%s},"b.c":{%s},%s},"a.b":{%s},%s}`, top, top, inner, top, top)
	if err := d.addValue([]byte(record)); err != nil {
		t.Fatal(err)
	}
	text := rescued(t, d)[0]
	var got map[string]int
	if err := json.Unmarshal([]byte(text), &got); err != nil || len(got) != 5*len(names)-1 {
		t.Errorf("%d different paths of %d, %v\n%s", len(got), 5*len(names)-1, err, text)
	}
}

// TestRescue_Bounds: the text counts in Bytes and Allocated and against the size of a chunk. Paths that repeat a long
// prefix cannot make a record larger than MaxBytes.
func TestRescue_Bounds(t *testing.T) {
	long := strings.Repeat("n", 200)
	d := rescuing(t, long+" struct<x:int>", JSON{MaxBytes: 20_000})
	value := strings.Repeat("v", 10_000)
	before := d.Bytes()
	for range 20 {
		if err := d.addValue(fmt.Appendf(nil, `{"new":"%s"}`, value)); err != nil {
			t.Fatal(err)
		}
	}
	if n := d.Bytes() - before; n < 200_000 || d.Allocated() < 200_000 {
		t.Errorf("%d bytes, %d allocated", n, d.Allocated())
	}
	var fields []string
	for i := range 1000 {
		fields = append(fields, fmt.Sprintf(`"%d":1`, i))
	}
	record := fmt.Appendf(nil, `{"%s":{%s}}`, long, strings.Join(fields, ","))
	if len(record) > 20_000 {
		t.Fatal("the record is too large by itself")
	}
	checkError(t, d.addValue(record), TooLarge, long)
	d.fed = math.MaxInt32 - 20_000
	if err := d.addValue([]byte(`{"new":1}`)); !errors.Is(err, connector.ErrChunkFull) || d.Rows() != 20 {
		t.Errorf("%v with %d rows", err, d.Rows())
	}
	if got := rescued(t, d); len(got) != 20 {
		t.Errorf("%d rows", len(got))
	}
}

func TestRescue_Table(t *testing.T) {
	other, err := schema.ParseDDL("a int, _rescued int")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		schema *schema.Schema
		want   string
	}{
		{parse(t, "a int"), "the table has no column _rescued; add it with"},
		{other.WithKafkaColumns(), "column _rescued is int and must be a nullable string"},
	} {
		_, err := JSON{Rescue: true}.Builder(c.schema)
		if h, ok := errors.AsType[*hold.Error](err); !ok || h.Reason != hold.SchemaConflict || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
	}
	// Without Rescue the column is an ordinary one.
	d := open(t, parse(t, "a int").WithRescued(), JSON{}, maxDistinct)
	if err := d.addValue([]byte(`{"_rescued":"x","new":1}`)); err != nil {
		t.Fatal(err)
	}
	if i := d.Ignored(); i.Fields != 1 {
		t.Errorf("%d fields ignored", i.Fields)
	}
	if got := rescued(t, d); got[0] != "x" {
		t.Errorf("%q", got)
	}
}

// TestRescue_NoAllocations: once a chunk has its buffers, keeping undeclared fields allocates no memory per record.
func TestRescue_NoAllocations(t *testing.T) {
	records, _ := orders(3000)
	d := rescuing(t, strings.Replace(orderDDL, "status string, coupon string,", "", 1), JSON{})
	add := func(r *connector.Record) {
		if err := d.Add(connector.Partition{Topic: "orders", ID: 3}, r); err != nil {
			t.Fatal(err)
		}
	}
	for range 3 { // lets the decoder learn the sizes of its buffers
		for i := range records {
			add(&records[i])
		}
		d.Seal().Release()
	}
	for i := range records[:1000] { // fills the dictionaries
		add(&records[i])
	}
	i := 1000
	if n := testing.AllocsPerRun(1500, func() { add(&records[i]); i++ }); n > 0.01 {
		t.Errorf("%v allocations per record", n)
	}
}
