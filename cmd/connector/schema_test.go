package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector/schema"
	"sluice/internal/admin"
)

// TestSchemaPropose: the printed text is a schema as it stands, and says what each field has had. No value is printed
// unless it is asked for.
func TestSchemaPropose(t *testing.T) {
	t.Parallel()
	l := newLake(t, `topics: {other: {}}`)
	l.Create("orders", 3)
	var records []*kgo.Record
	produce := func(partition int32, value string, headers ...kgo.RecordHeader) {
		r := &kgo.Record{Topic: "orders", Partition: partition, Headers: headers}
		if value != "" {
			r.Value = []byte(value)
		}
		records = append(records, r)
	}
	produce(0, `{"id":"secret","qty":1,"at":{"lat":1.5},"tags":[],"odd name":1,"_kafka_x":1,"ID":2,"":3,"no":null}`)
	produce(0, `{"id":"secret","qty":2.5,"at":{"lat":2,"who":"secret"}}`)
	produce(1, `{"id":"secret","qty":"secret","list":[{"a":1},{"a":true}]}`)
	produce(1, `{"id":`)
	produce(1, "")
	produce(1, `{"id":1}`, kgo.RecordHeader{Key: "HEALTHCHECK", Value: []byte("TRUE")})
	if err := l.Client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	out, errs := l.runs(1, "schema", "propose", "orders")
	want := `/* topic orders: 3 records of 2 partitions; left out: 1 record without a value, 1 health check, 1 record that cannot become rows (truncated) */
id string /* all records: string */,
qty string /* all records; CONFLICT in qty: integer 1, number 1, string 1 */,
at struct<lat:double, who:string> /* 2 of 3 records: object */,
` + "`odd name`" + ` bigint /* 1 of 3 records: integer */,
_kafka_x bigint /* 1 of 3 records: integer */,
ID bigint /* 1 of 3 records: integer */,
list array<struct<a:string>> /* 1 of 3 records; CONFLICT in list[].a: boolean 1, integer 1 */
/* field "tags" has no column: its objects and arrays are empty, so its type is unknown (1 of 3 records: array) */
/* field "" has no column: its name is empty, and schema cannot declare it (1 of 3 records: integer) */
/* field "no" has no column: it is always null, so its type is unknown (0 of 3 records, null in 1 of 3 records) */
`
	if d := cmp.Diff(want, out); d != "" || !strings.Contains(errs, "2 places of several kinds") {
		t.Errorf("(-want +got):\n%s%s", d, errs)
	}
	s, err := schema.ParseDDL(out)
	if err != nil || s.DDL() != "id string, qty string, at struct<lat:double, who:string>, odd_name bigint, __kafka_x bigint, ID_3843971d bigint, list array<struct<a:string>>" {
		t.Errorf("%v, %v", s.DDL(), err)
	}

	out, _ = l.runs(1, "schema", "propose", "orders", "--output", "json")
	var got admin.SchemaProposal
	if err := json.Unmarshal([]byte(out), &got); err != nil || strings.Contains(out, "secret") {
		t.Fatalf("%v\n%s", err, out)
	}
	qty := admin.ProposedColumn{
		Field: "qty", DDL: "qty string", Raw: true, Records: 3, Kinds: []admin.ValueCount{{Kind: "integer", Count: 1}, {Kind: "number", Count: 1}, {Kind: "string", Count: 1}},
	}
	qty.Conflicts = []admin.ValueConflict{{Path: "qty", Kinds: qty.Kinds}}
	byName := map[string]admin.ProposedColumn{}
	for _, c := range got.Columns {
		byName[c.Field] = c
	}
	// Which of two names that differ in case is seen first depends on the order of partitions, the column does not.
	if d := cmp.Diff(qty, byName["qty"], cmpopts.SortSlices(func(x, y admin.ValueCount) bool { return x.Kind < y.Kind })); d != "" || len(got.Columns) != 10 {
		t.Errorf("(-want +got):\n%s%s", d, out)
	}

	out, _ = l.runs(1, "schema", "propose", "orders", "--values")
	if !strings.Contains(out, `id string /* all records: string, for example "secret" */`) {
		t.Error(out)
	}
	for _, c := range []struct {
		code       int
		args, want string
	}{
		{1, "other", "topic_missing"},
		{2, "", "accepts 1 arg(s)"},
		{2, "orders --records 0", "write a number from 1"},
	} {
		if out, errs := l.runs(c.code, append([]string{"schema", "propose"}, strings.Fields(c.args)...)...); out != "" || !strings.Contains(errs, c.want) {
			t.Errorf("%s: %s%s", c.args, out, errs)
		}
	}
	l.Create("empty", 1)
	if _, errs := l.runs(1, "schema", "propose", "empty"); !strings.Contains(errs, "no record from which") {
		t.Error(errs)
	}
}

// TestSchemaPropose_Newest: the command reads only the newest records of each partition, and more of a long partition if
// another is short.
func TestSchemaPropose_Newest(t *testing.T) {
	t.Parallel()
	l := newLake(t, `topics: {orders: {}}`)
	l.Create("orders", 2)
	for i := range 100 {
		record := &kgo.Record{Topic: "orders", Partition: int32(min(i%20, 1)), Value: fmt.Appendf(nil, `{"f%d":%d}`, i/20, i)}
		if err := l.Client.ProduceSync(t.Context(), record).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	// Partition 0 has 5 records, one of each name; partition 1 has 19 of each name.
	out, errs := l.runs(0, "schema", "propose", "orders", "--records", "25")
	for _, want := range []string{"25 records of 2 partitions", "f0 bigint /* 1 of 25 records: integer */", "f3 bigint /* 2 of 25 records", "f4 bigint /* 20 of 25 records"} {
		if !strings.Contains(out, want) {
			t.Errorf("no %q in\n%s%s", want, out, errs)
		}
	}
	if out, _ := l.runs(0, "schema", "propose", "orders", "--records", "2"); !strings.Contains(out, "f4 bigint /* all records") {
		t.Error(out)
	}
}
