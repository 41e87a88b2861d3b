package schema_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sluice/classify"
	"sluice/connector/schema"
	"sluice/reliability/hold"
)

// checkHold fails the test unless err is a hold with this reason, and its text contains part. If part is "", err must
// be nil instead.
func checkHold(t *testing.T, err error, reason hold.Reason, part string) {
	t.Helper()
	if part == "" {
		if err != nil {
			t.Errorf("unexpected: %v", err)
		}
		return
	}
	var h *hold.Error
	if !errors.As(err, &h) || h.Reason != reason || classify.Of(err) != classify.Fatal || !strings.Contains(h.Detail, part) {
		t.Errorf("got %v, want %s with %q", err, reason, part)
	}
}

func TestFits(t *testing.T) {
	const built = "a int not null, s struct<x:int, y:string not null>, l array<struct<k:int>>"
	for _, c := range []struct{ name, table, want string }{
		{"same", built, ""},
		{"added nullable columns", "z int, " + strings.ReplaceAll(built, "k:int", "k:int, m:date") + ", y double", ""},
		{"relaxed nullability", "a int, s struct<x:int, y:string>, l array<struct<k:int>>", ""},
		{"comments and order", "s struct<y:string not null, x:int comment 'c'>, l array<struct<k:int>>, a int not null comment 'd'", ""},
		{"dropped", "a int not null, l array<struct<k:int>>", "column s is not in the table any more"},
		{"dropped inside", "a int not null, s struct<y:string not null>, l array<struct<k:int>>", "column s.x is not in the table any more"},
		{"renamed by case", "A int not null, s struct<x:int, y:string not null>, l array<struct<k:int>>", "column a is not in the table any more"},
		{"retyped", strings.Replace(built, "a int", "a bigint", 1), "column a is bigint in the table and int in schema: write bigint in schema"},
		{"retyped inside", strings.Replace(built, "x:int", "x:string", 1), "column s.x is string"},
		{"retyped in a list", strings.Replace(built, "k:int", "k:bigint", 1), "column l[].k is bigint"},
		{"array to struct", "a int not null, s struct<x:int, y:string not null>, l struct<k:int>", "column l is struct<k:int>"},
		{"new NOT NULL column", built + ", n int not null", "column n is NOT NULL in the table and not in schema"},
		{"new NOT NULL field", strings.Replace(built, "x:int", "x:int, n:int not null", 1), "column s.n is NOT NULL in the table"},
		{"made NOT NULL", strings.Replace(built, "x:int", "x:int not null", 1), "column s.x is NOT NULL in the table, and the rows may have null"},
	} {
		t.Run(c.name, func(t *testing.T) {
			checkHold(t, parse(t, c.table).Fits(parse(t, built)), hold.SchemaConflict, c.want)
		})
	}
}

func TestFitsLists(t *testing.T) {
	list := func(null bool) *schema.Schema {
		return fromDelta(t, fmt.Sprintf(`{"name":"l","type":{"type":"array","elementType":"long","containsNull":%t},"nullable":true}`, null))
	}
	checkHold(t, list(true).Fits(list(false)), "", "")
	checkHold(t, list(false).Fits(list(true)), hold.SchemaConflict, "elements of column l are NOT NULL")
}

func TestFitsDecimalsAndMaps(t *testing.T) {
	rows := parse(t, "d decimal(10,2), m map<string,int>, b binary")
	checkHold(t, parse(t, "d decimal(10,2), m map<string,int>, b binary").Fits(rows), "", "")
	checkHold(t, parse(t, "d decimal(10,3), m map<string,int>, b binary").Fits(rows), hold.SchemaConflict, "column d is decimal(10,3)")
	checkHold(t, parse(t, "d decimal(12,2), m map<string,int>, b binary").Fits(rows), hold.SchemaConflict, "column d is decimal(12,2)")
	checkHold(t, parse(t, "d decimal(10,2), m map<string,bigint>, b binary").Fits(rows), hold.SchemaConflict, "column m{} is bigint")
	checkHold(t, parse(t, "d decimal(10,2), m array<int>, b binary").Fits(rows), hold.SchemaConflict, "column m is array<int>")
	strict := fromDelta(t, `{"name":"d","type":"decimal(10,2)","nullable":true},{"name":"b","type":"binary","nullable":true},`+
		`{"name":"m","type":{"type":"map","keyType":"string","valueType":"integer","valueContainsNull":false},"nullable":true}`)
	checkHold(t, strict.Fits(rows), hold.SchemaConflict, "values of column m are NOT NULL")
}

func TestFitsPartitionsAndKinds(t *testing.T) {
	s := parse(t, "a int, b int")
	checkHold(t, s.WithPartitions([]string{"a"}).Fits(s.WithPartitions([]string{"a"})), "", "")
	checkHold(t, s.WithPartitions([]string{"b"}).Fits(s.WithPartitions([]string{"a"})), hold.SchemaConflict, "partitioned by (b), the rows were built for (a)")
	checkHold(t, s.Fits(s.WithPartitions([]string{"a"})), hold.SchemaConflict, "partitioned by ()")
	checkHold(t, s.Fits(nil), hold.SchemaConflict, "schema of another kind")
}

// TestFitsIgnoresWhatIsNotWritten: columns of types that Sluice does not write (variant) are in no data file. So rows
// still fit after such a column changes its type or goes, but not if it becomes NOT NULL.
func TestFitsIgnoresWhatIsNotWritten(t *testing.T) {
	before := fromDelta(t, `{"name":"a","type":"long","nullable":true},{"name":"d","type":"variant","nullable":true}`)
	checkHold(t, parse(t, "a bigint").Fits(before), "", "")
	checkHold(t, parse(t, "a bigint, d string").Fits(before), "", "")
	checkHold(t, fromDelta(t, `{"name":"a","type":"long","nullable":true},{"name":"d","type":"binary","nullable":false}`).Fits(before),
		hold.SchemaConflict, "column d is NOT NULL")
	checkHold(t, fromDelta(t, `{"name":"a","type":"decimal(4,2)","nullable":true}`).Fits(before), hold.SchemaConflict, "column a is decimal(4,2)")
}

func fromDelta(t *testing.T, fields string) *schema.Schema {
	t.Helper()
	s, err := schema.FromDelta([]byte(`{"type":"struct","fields":[` + fields + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestUnsupported(t *testing.T) {
	const nested = `{"name":"s","type":{"type":"struct","fields":[%s]},"nullable":true}`
	const values = `{"name":"m","type":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[%s]},"valueContainsNull":true},"nullable":true}`
	const list = `{"name":"l","type":{"type":"array","elementType":{"type":"struct","fields":[%s]},"containsNull":true},"nullable":true}`
	for _, c := range []struct{ field, want string }{
		{`{"name":"a","type":"long","nullable":false}`, ""},
		{`{"name":"a","type":"variant","nullable":true}`, ""},
		{`{"name":"a","type":"decimal(3,1)","nullable":false}`, ""},
		{`{"name":"a","type":"binary","nullable":true,"metadata":{"CURRENT_DEFAULT":"X''"}}`, ""},
		{`{"name":"a","type":"long","nullable":true,"metadata":{"CURRENT_DEFAULT":"1","delta.typeChanges":[]}}`, ""},
		{`{"name":"a","type":"variant","nullable":false}`, "is NOT NULL and of type variant, which is not written by this version"},
		{`{"name":"a","type":{"type":"struct","fields":[]},"nullable":false}`, "is NOT NULL and of type struct<>"},
		{`{"name":"a","type":"long","nullable":true,"metadata":{"delta.invariants":"{}"}}`, "has an invariant (delta.invariants)"},
		{`{"name":"a","type":"long","nullable":true,"metadata":{"delta.generationExpression":"b+1"}}`, "has a generation expression"},
		{`{"name":"a","type":"long","nullable":true,"metadata":{"delta.identity.start":1}}`, "has generated identities"},
		{`{"name":"a","type":"long","nullable":true,"metadata":{"delta.columnMapping.id":1}}`, "has column mapping"},
		{`{"name":"a","type":"string","nullable":true,"metadata":{"__CHAR_VARCHAR_TYPE_STRING":"varchar(3)"}}`, "has a bounded length"},
		{`{"name":"a","type":"variant","nullable":true,"metadata":{"CURRENT_DEFAULT":"X''"}}`, "has a default and is of type variant"},
	} {
		want, in := c.want, ""
		for i, format := range []string{"%s", nested, list, values} {
			if want != "" {
				in = "column " + []string{"a", "s.a", "l[].a", "m{}.a"}[i] + " "
			}
			checkHold(t, fromDelta(t, fmt.Sprintf(format, c.field)).Unsupported(), hold.TableUnsupported, in+want)
		}
	}
	checkHold(t, parse(t, "a int").WithPartitions([]string{"a"}).Unsupported(), "", "")
	checkHold(t, parse(t, "a double").WithPartitions([]string{"a"}).Unsupported(), hold.TableUnsupported, "partitioned by a: column a is double")
}

func TestKafkaColumns(t *testing.T) {
	s := parse(t, "order_id string not null, qty int").WithKafkaColumns()
	const want = "_kafka_topic string comment 'topic of the Kafka record', _kafka_partition int comment 'partition of the Kafka record', " +
		"_kafka_offset bigint comment 'offset of the Kafka record in its partition', _kafka_timestamp timestamp comment 'timestamp of the Kafka record', " +
		"order_id string not null, qty int"
	if got := s.DDL(); got != want {
		t.Errorf("got %s", got)
	}
	if again := s.WithKafkaColumns(); again.DDL() != want {
		t.Errorf("twice: %s", again.DDL())
	}
	for i, f := range s.Fields() {
		if schema.IsKafkaColumn(f.Name) != (i < 4) {
			t.Error(f.Name)
		}
	}
	checkHold(t, s.HasKafkaColumns(), "", "")
	const good = `{"name":"_kafka_topic","type":"string","nullable":false},{"name":"x","type":"long","nullable":true},` +
		`{"name":"_kafka_timestamp","type":"timestamp","nullable":true},{"name":"_kafka_partition","type":"integer","nullable":true}`
	checkHold(t, fromDelta(t, good+`,{"name":"_kafka_offset","type":"long","nullable":true}`).HasKafkaColumns(), "", "")
	checkHold(t, fromDelta(t, good).HasKafkaColumns(), hold.SchemaConflict, "ALTER TABLE … ADD COLUMNS (_kafka_offset bigint)")
	checkHold(t, fromDelta(t, good+`,{"name":"_kafka_offset","type":"integer","nullable":true}`).HasKafkaColumns(),
		hold.SchemaConflict, "column _kafka_offset is int and must be bigint")
	checkHold(t, parse(t, "a int").HasKafkaColumns(), hold.SchemaConflict, "_kafka_topic string, _kafka_partition int, _kafka_offset bigint, _kafka_timestamp timestamp")
}
