package schema_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

func TestExtended(t *testing.T) {
	const table = "a int not null comment 'c', s struct<x:int, y:string not null>, l array<struct<k:int>>"
	for _, c := range []struct{ name, add, want, changes string }{
		{"same", table, table, ""},
		{"the table has more", "a int not null", table, ""},
		{
			"columns at the end", "z string comment 'new', a int not null, b struct<u:int not null>",
			table + ", z string comment 'new', b struct<u:int not null>", "z string, b struct<u:int not null>",
		},
		{
			"field of a struct", "a int not null, s struct<y:string not null, z:date>",
			strings.Replace(table, "y:string not null", "y:string not null, z:date", 1), "s.z date",
		},
		{
			"field of a list's elements", "a int not null, l array<struct<m:array<int>>>",
			strings.Replace(table, "k:int", "k:int, m:array<int>", 1), "l[].m array<int>",
		},
		{"nullability relaxed", "a int, s struct<y:string>", "a int comment 'c', s struct<x:int, y:string>, l array<struct<k:int>>", "a null, s.y null"},
		{"never made NOT NULL", "a int not null, s struct<x:int not null, y:string not null> not null", table, ""},
		{"comments stay", "a int not null comment 'other'", table, ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := parse(t, table)
			got, err := s.Extended(parse(t, c.add))
			if err != nil {
				t.Fatal(err)
			}
			if got.DDL() != c.want {
				t.Errorf("got  %s\nwant %s", got.DDL(), c.want)
			}
			changes := s.ChangesTo(got)
			if changes.String() != c.changes || changes.None() != (c.changes == "") || (got == s) != (c.changes == "") {
				t.Errorf("changes %q, the same schema: %v", changes, got == s)
			}
			if s.DDL() != table {
				t.Errorf("the table's schema has become %s", s.DDL())
			}
		})
	}
}

func TestExtended_Conflicts(t *testing.T) {
	const table = "a int, n bigint not null, s struct<x:float>, l array<smallint>, d date, m map<string,int>, p decimal(4,2)"
	for _, c := range []struct{ add, want string }{
		{"n bigint not null, b int not null", "column b is not null in schema and not in the table"},
		{"n bigint not null, s struct<y:int not null>", "column s.y is not null in schema"},
		{"a int", "column n is NOT NULL in the table and not in schema"},
		{"n bigint, A int", "column A and the table's column a differ in case only"},
		{"n bigint, s struct<X:float>", "column s.X and the table's column s.x differ in case only"},
		{"n bigint, a bigint", "column a is int in the table and bigint in schema: widening a column needs a Delta feature (typeWidening)"},
		{"n bigint, s struct<x:double>", "column s.x is float in the table and double in schema: widening"},
		{"n bigint, l array<double>", "column l[] is smallint in the table and double in schema: widening"},
		{"n int", "column n is bigint in the table and int in schema: write bigint in schema, which takes every value of int"},
		{"n bigint, m map<string,double>", "column m{} is int in the table and double in schema: widening"},
		{"n bigint, p decimal(9,2)", "column p is decimal(4,2) in the table and decimal(9,2) in schema: a column cannot change its type"},
		{"n double", "column n is bigint in the table and double in schema: a column cannot change its type"},
		{"n bigint, d string", "column d is date in the table and string in schema: a column cannot change its type"},
		{"n bigint, a struct<x:int>", "column a is int in the table and struct<x:int> in schema"},
	} {
		got, err := parse(t, table).Extended(parse(t, c.add))
		checkHold(t, err, hold.SchemaConflict, c.want)
		if got != nil {
			t.Errorf("%s: a schema besides the error", c.add)
		}
	}
	s := parse(t, "a int")
	_, err := s.WithPartitions([]string{"a"}).Extended(s)
	checkHold(t, err, hold.SchemaConflict, "partitioned by (a), the rows were built for ()")
}

// TestExtended_NotWritten: columns of types that are not written stay as they are, and are not added from a schema for
// which rows were built, since no row has them.
func TestExtended_NotWritten(t *testing.T) {
	table := fromDelta(t, `{"name":"d","type":"void","nullable":true,"metadata":{"x":[1.50]}},{"name":"a","type":"long","nullable":true}`)
	rows := fromDelta(t, `{"name":"e","type":"variant","nullable":true},{"name":"d","type":"variant","nullable":true},{"name":"b","type":"date","nullable":true}`)
	got, err := table.Extended(rows)
	if err != nil {
		t.Fatal(err)
	}
	want := strings.TrimSuffix(table.DeltaJSON(), "]}") + `,{"name":"b","type":"date","nullable":true,"metadata":{}}]}`
	if got.DeltaJSON() != want {
		t.Errorf("got  %s\nwant %s", got.DeltaJSON(), want)
	}
	_, err = table.Extended(parse(t, "d string"))
	checkHold(t, err, hold.SchemaConflict, "column d is void in the table and string in schema")

	list := func(null bool) *schema.Schema {
		return fromDelta(t, fmt.Sprintf(`{"name":"l","type":{"type":"array","elementType":"long","containsNull":%t},"nullable":true}`, null))
	}
	if got, err = list(false).Extended(list(true)); err != nil || got.DeltaJSON() != list(true).DeltaJSON() || list(false).ChangesTo(got).String() != "l[] null" {
		t.Errorf("%v, %v", got, err)
	}
	strict := list(false)
	if got, err = list(true).Extended(strict); err != nil || got.DeltaJSON() != list(true).DeltaJSON() || strict.ChangesTo(strict).String() != "" {
		t.Errorf("%v, %v", got, err)
	}
}

func TestForRows(t *testing.T) {
	table := parse(t, "a int").WithKafkaColumns()
	got, err := table.ForRows(parse(t, "a int, b string").WithFingerprint().WithTopicID().WithKafkaColumns())
	if err != nil {
		t.Fatal(err)
	}
	// A new version of this program must not add the topic id to a table of an older one. An identity that is configured
	// needs its column.
	if changes := table.ChangesTo(got).Names(); !slices.Equal(changes, []string{schema.KafkaFingerprint, "b"}) {
		t.Errorf("added %q", changes)
	}
	same := table.WithTopicID()
	if got, err = same.ForRows(parse(t, "a int").WithTopicID().WithKafkaColumns()); err != nil || got != same {
		t.Errorf("%v, %v", got, err)
	}
	_, err = table.ForRows(parse(t, "a bigint").WithTopicID().WithKafkaColumns())
	checkHold(t, err, hold.SchemaConflict, "column a is int in the table")
}

// randomAddition draws a schema of nullable columns whose names begin with one of prefixes. Columns with equal paths
// have equal types in all of them: the type of a column follows from its name.
func randomAddition(t *rapid.T, label string, depth int, prefixes ...string) []string {
	var fields []string
	for _, name := range rapid.SliceOfNDistinct(rapid.IntRange(0, 7), 0, 6, rapid.ID).Draw(t, label) {
		prefix := rapid.SampledFrom(prefixes).Draw(t, "prefix")
		typ := []string{`"long"`, `"string"`, `"double"`, `"boolean"`, `"date"`, "struct", "list", "lists"}[name]
		inner := func() string {
			return `{"type":"struct","fields":[` + strings.Join(append(randomAddition(t, label, depth-1, prefixes...), `{"name":"z","type":"long","nullable":true,"metadata":{}}`), ",") + `]}`
		}
		switch {
		case depth == 0 && name > 4:
			continue
		case typ == "struct":
			typ = inner()
		case typ == "list":
			typ = `{"type":"array","elementType":` + inner() + `,"containsNull":true}`
		case typ == "lists":
			typ = `{"type":"array","elementType":{"type":"array","elementType":` + inner() + `,"containsNull":true},"containsNull":true}`
		}
		fields = append(fields, fmt.Sprintf(`{"name":"%s%d","type":%s,"nullable":true,"metadata":{}}`, prefix, name, typ))
	}
	return fields
}

func randomSchema(t *rapid.T, label string, prefixes ...string) *schema.Schema {
	s, err := schema.FromDelta([]byte(`{"type":"struct","fields":[` + strings.Join(randomAddition(t, label, 2, prefixes...), ",") + `]}`))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// sorted returns a schema as text that does not depend on the order of its columns.
func sorted(t *rapid.T, s *schema.Schema) string {
	var order func(v any) any
	order = func(v any) any {
		switch v := v.(type) {
		case map[string]any:
			for k := range v {
				v[k] = order(v[k])
			}
			if fields, ok := v["fields"].([]any); ok {
				slices.SortFunc(fields, func(a, b any) int {
					return strings.Compare(a.(map[string]any)["name"].(string), b.(map[string]any)["name"].(string))
				})
			}
		case []any:
			for i := range v {
				v[i] = order(v[i])
			}
		}
		return v
	}
	var v any
	if err := json.Unmarshal([]byte(s.DeltaJSON()), &v); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(order(v))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// TestExtended_Properties: two members extend a table by schemas that may overlap, at any depth. In both orders the
// table gets the same columns; every schema of before fits; a second time changes nothing; and the old columns come
// first, unchanged.
func TestExtended_Properties(t *testing.T) {
	must := func(t *rapid.T, s, add *schema.Schema) *schema.Schema {
		extended, err := s.Extended(add)
		if err != nil {
			t.Fatalf("%s\nby %s: %v", s.DDL(), add.DDL(), err)
		}
		return extended
	}
	rapid.Check(t, func(t *rapid.T) {
		table := randomSchema(t, "table", "a", "b", "c")
		one, two := randomSchema(t, "one", "a", "b"), randomSchema(t, "two", "b", "c")
		both, other := must(t, must(t, table, one), two), must(t, must(t, table, two), one)
		if a, b := sorted(t, both), sorted(t, other); a != b {
			t.Fatalf("%s\n%s", a, b)
		}
		if must(t, both, one) != both || must(t, both, two) != both || must(t, both, table) != both || must(t, both, other) != both {
			t.Fatal("not idempotent")
		}
		for _, rows := range []*schema.Schema{table, one, two, other} {
			if err := both.Fits(rows); err != nil {
				t.Fatal(err)
			}
		}
		if grouped := must(t, table, must(t, one, two)); sorted(t, grouped) != sorted(t, both) {
			t.Fatalf("not associative: %s\n%s", grouped.DDL(), both.DDL())
		}
		changes := table.ChangesTo(both)
		if changes.None() != (table == both) {
			t.Fatalf("%q from %s to %s", changes, table.DDL(), both.DDL())
		}
		for i, f := range table.Fields() {
			if both.Fields()[i].Name != f.Name {
				t.Fatalf("column %d: %s", i, both.Fields()[i].Name)
			}
		}
		if again, err := schema.FromDelta([]byte(both.DeltaJSON())); err != nil || again.DeltaJSON() != both.DeltaJSON() {
			t.Fatalf("the table's log cannot have it: %v", err)
		}
	})
}
