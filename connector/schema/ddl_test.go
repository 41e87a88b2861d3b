package schema_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sluice/connector/schema"
)

func parse(t *testing.T, text string) *schema.Schema {
	t.Helper()
	s, err := schema.ParseDDL(text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	return s
}

func TestParseDDL(t *testing.T) {
	for _, c := range []struct{ text, ddl string }{
		{"order_id string not null, qty int", "order_id string not null, qty int"},
		{"a BIGINT, b Long, c INTEGER, d int, e smallint, f short, g tinyint, h byte", "a bigint, b bigint, c int, d int, e smallint, f smallint, g tinyint, h tinyint"},
		{"a double, b float, c real, d boolean, e bool, f date, g timestamp", "a double, b float, c float, d boolean, e boolean, f date, g timestamp"},
		{"s struct<city: string, zip:string not null>, t array<string>", "s struct<city:string, zip:string not null>, t array<string>"},
		{"s struct<city string>, a array<array<struct<x int>>>", "s struct<city:string>, a array<array<struct<x:int>>>"},
		{"a decimal, b DEC ( 5 ), c numeric(38 , 38), d Decimal(10,2)", "a decimal(10,0), b decimal(5,0), c decimal(38,38), d decimal(10,2)"},
		{"a binary, m map < String , array<map<string,decimal(3,1)>> > not null", "a binary, m map<string,array<map<string,decimal(3,1)>>> not null"},
		{"\n  a :\tint NOT\nNULL COMMENT 'it\\'s \\\\ one' ,\n b int comment \"x\" not null\n", "a int not null comment 'it\\'s \\\\ one', b int not null comment 'x'"},
		{"/* a; b */ a int /* 'c */, /**/b/***/int/* , d int */", "a int, b int"},
		{"a int /* b", ""},
		{"a int comment '/* x */'", "a int comment '/* x */'"},
		{"`odd name.` int", ""},
		{"`odd-name.` int, `back``tick` int, Straße int, `comment` int, comment int2", ""},
		{"`odd-name.` int, `back``tick` int, Straße int, not int, comment int", "`odd-name.` int, `back``tick` int, Straße int, not int, comment int"},
	} {
		s, err := schema.ParseDDL(c.text)
		if c.ddl == "" {
			if err == nil {
				t.Errorf("%q: no error", c.text)
			}
			continue
		}
		if err != nil || s.DDL() != c.ddl {
			t.Errorf("%q:\n got %v, %v\nwant %s", c.text, s, err, c.ddl)
		}
	}
}

// TestDDLErrors: an error names the position and says what to write instead.
func TestDDLErrors(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "schema: expected the name of a column, found the end"},
		{"a", `schema near "a": expected the type of column "a", found the end`},
		{"a int,", `schema near "a int,": expected the name of a column, found the end`},
		{"a int b int", `schema near "a int b int": expected a comma or the end, found "b"`},
		{"a int\x00", `schema near "a int…": expected a comma or the end, found "\x00"`},
		{"a int,\nb varchar(10)", `schema in line 2 near "a int, b varchar(10)": column "b": type varchar is not written by this version; use string`},
		{"a decimal(39,2)", `column "a": write decimal(p,s): p digits, at most 38, of which s are after the point, at most p`},
		{"a decimal(0)", "write decimal(p,s)"},
		{"a decimal(3,4)", "write decimal(p,s)"},
		{"a decimal(3", "write decimal(p,s)"},
		{"a decimal()", "write decimal(p,s)"},
		{"a decimal(3,-1)", "write decimal(p,s)"},
		{"a timestamp_ntz", "use timestamp; for values without a zone that are in UTC add utc in column_options"},
		{"a variant", "use string, with raw in column_options"},
		{"a binary(5)", "type binary has no parameter"},
		{"a int64", "use bigint"},
		{"a map<int,string>", `the keys of a map are the names in a JSON object, which are strings; write map<string,…>, found "int"`},
		{"a map<string>", `expected "," after the key type of the map`},
		{"a map", `expected "<" after map`},
		{"a map<string,int", `expected ">" at the end of the map`},
		{"a strng", `"strng" is no type; use one of bigint, binary, bool, boolean,`},
		{"a int(11)", "type int has no parameter"},
		{"a int not nil", `expected "null" after "not", found "nil"`},
		{"a int null", `leave "null" out`},
		{"a int default 1", `only a type, "not null" and "comment '…'"`},
		{"a int, A string", `schema near "a int, A string": column "A" is there already`},
		{"s struct<a int, A int>", `near "s struct<a int, A int>": column "A" is there already`},
		{"`a b` int", `Delta has no " " in names`},
		{"`a=b` int", `Delta has no "=" in names`},
		{"s struct<`x(y`: int>", `Delta has no "(" in names`},
		{"`` int", "a column needs a name"},
		{"`a int", "backtick of this name is not closed"},
		{"a int comment 'x", "quote of this comment is not closed"},
		{"a int comment x", "expected text between quotes"},
		{"_kafka_offset bigint", "are reserved"},
		{"_KAFKA_x int", "are reserved"},
		{"s struct", `expected "<" after struct`},
		{"s struct<a int", `expected ">" at the end of the struct`},
		{"s struct<>", "expected the name of a column"},
		{"s array<int not null>", `expected ">" at the end of the array, found "not"`},
		{"é`", "schema near \"é`\": expected the type"},
		{
			"order_id string not null, customer string, shipping struct<city: string>, total money, placed_at timestamp, note string, channel string",
			`schema near "…struct<city: string>, total money, placed_at…": column "total": "money" is no type`,
		},
		{strings.Repeat("x", 99) + " int, y\u00a0nothing", `near "…int, y nothing": column "y": "nothing" is no type`},
		{strings.Repeat("a", 25) + ":" + strings.Repeat("b", 40) + " c", `near "` + strings.Repeat("a", 25) + `:…": column`}, // a quote in an error does not begin or end inside a word
		{"a int comment 'of ann:secret@host', b", `near "…, b": expected the type of column "b"`},
		{strings.Repeat("a", 40) + ":" + strings.Repeat("b", 40), `schema: column "`},
		{"a int; b int", `expected a comma or the end, found ";"`},
		{"a " + strings.Repeat("array<", 100) + "int" + strings.Repeat(">", 100), "nested deeper than 20"},
		{strings.Repeat("a struct<", 100), "nested deeper than 20"},
		{"a " + strings.Repeat("map<string,", 20) + "int" + strings.Repeat(">", 20), "nested deeper than 20"},
		{columns(1001), "it has 1001 columns"},
		{"s struct<" + columns(600) + ">, a array<struct<" + columns(300) + ">>, m map<string,struct<" + columns(101) + ">>", "it has 1001 columns"},
	} {
		_, err := schema.ParseDDL(c.text)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%q:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
	if s := parse(t, "s struct<_kafka_x: int>"); len(s.Fields()) != 1 {
		t.Error("the prefix is reserved for columns only")
	}
}

// columns returns the DDL of n columns.
func columns(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("c%d int", i)
	}
	return strings.Join(list, ", ")
}

// TestDDL_AtTheBounds: a schema that just keeps the bounds of depth and of columns is accepted.
func TestDDL_AtTheBounds(t *testing.T) {
	parse(t, columns(schema.MaxColumns))
	parse(t, "a "+strings.Repeat("array<", schema.MaxDepth-1)+"int"+strings.Repeat(">", schema.MaxDepth-1))
	parse(t, strings.Repeat("a struct<", schema.MaxDepth-1)+"a int"+strings.Repeat(">", schema.MaxDepth-1))
}

// FuzzParseDDL: a schema that was parsed can be written and parsed again, as DDL and as Delta's JSON.
func FuzzParseDDL(f *testing.F) {
	for _, s := range []string{
		"order_id string not null, qty int, price double, shipping struct<city:string, zip:string not null>, tags array<string>",
		"`a``b` int comment 'it\\'s', b array<struct<x:date not null comment \"\\\\\">>", "a int not null,", "a struct<", "a decimal(1,2)", "a decimal(38,2), b map<string,binary>", "é long", "a\u00a0int", "`00` int Comment ''",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := schema.ParseDDL(text)
		if err != nil {
			return
		}
		again, err := schema.ParseDDL(s.DDL())
		if err != nil || again.DDL() != s.DDL() {
			t.Fatalf("%q became %q: %v", text, s.DDL(), err)
		}
		table, err := schema.FromDelta([]byte(s.DeltaJSON()))
		if err != nil {
			t.Fatalf("%q: %v", s.DeltaJSON(), err)
		}
		if diff := cmp.Diff(s.DeltaJSON(), table.DeltaJSON()); diff != "" {
			t.Fatal(diff)
		}
		if err := table.Fits(s); err != nil {
			t.Fatal(err)
		}
		if err := table.Unsupported(); err != nil {
			t.Fatal(err)
		}
		if n := s.Arrow().NumFields(); n != len(s.Fields()) {
			t.Fatalf("%d Arrow fields", n)
		}
	})
}
