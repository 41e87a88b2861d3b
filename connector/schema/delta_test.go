package schema_test

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/connector/schema"
)

func TestDeltaJSON(t *testing.T) {
	s := parse(t, "order_id string not null comment '<id> \"1\"', s struct<z: bigint>, l array<int>, b tinyint, c smallint, f float")
	want := `{"type":"struct","fields":[` +
		`{"name":"order_id","type":"string","nullable":false,"metadata":{"comment":"<id> \"1\""}},` +
		`{"name":"s","type":{"type":"struct","fields":[{"name":"z","type":"long","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},` +
		`{"name":"l","type":{"type":"array","elementType":"integer","containsNull":true},"nullable":true,"metadata":{}},` +
		`{"name":"b","type":"byte","nullable":true,"metadata":{}},` +
		`{"name":"c","type":"short","nullable":true,"metadata":{}},` +
		`{"name":"f","type":"float","nullable":true,"metadata":{}}]}`
	if diff := cmp.Diff(want, s.DeltaJSON()); diff != "" {
		t.Error(diff)
	}
}

// spark is the schemaString of a table that Spark made, with types and metadata that this program does not write.
const spark = `{"type":"struct","fields":[` +
	`{"name":"id","type":"long","nullable":true,"metadata":{"comment":"k","big":12345678901234567890123, "odd" : [ 1.0e0 ]}},` +
	`{"name":"amount","type":"variant","nullable":true,"metadata":{}},` +
	`{"name":"props","type":{"type":"map","keyType":"string","valueType":{"type":"struct","fields":[]},"valueContainsNull":true},"nullable":true,"metadata":{}},` +
	`{"name":"at","type":"timestamp_ntz","nullable":true,"metadata":{}},` +
	`{"name":"s","type":{"type":"struct","fields":[{"name":"raw","type":"variant","nullable":true,"metadata":{"x":1}},{"name":"n","type":"integer","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},` +
	`{"name":"only_raw","type":{"type":"struct","fields":[{"name":"raw","type":"variant","nullable":true,"metadata":{}}]},"nullable":true,"metadata":{}},` +
	`{"name":"l","type":{"type":"array","elementType":"variant","containsNull":true},"nullable":true,"metadata":{}},` +
	`{"name":"t","type":{"type":"array","elementType":"string","containsNull":false},"nullable":false,"metadata":{}}]}`

func TestOtherTypes_KeptNotWritten(t *testing.T) {
	s, err := schema.FromDelta([]byte(spark))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(spark, s.DeltaJSON()); diff != "" {
		t.Errorf("read and written again: %s", diff)
	}
	if got, want := s.Written().DDL(), "id bigint comment 'k', s struct<n:int>, t array<string> not null"; got != want {
		t.Errorf("written: %s, want %s", got, want)
	}
	if err := s.Unsupported(); err != nil {
		t.Errorf("nullable columns of other types: %v", err)
	}
	var got []string
	for l := range s.Leaves() {
		got = append(got, fmt.Sprintf("%s %s %t", strings.Join(l.Path, "."), l.Type, l.Written))
	}
	want := []string{
		"id bigint true", "amount variant false",
		`props map<string,struct<>> false`,
		"at timestamp_ntz false", "s.raw variant false", "s.n int true", "only_raw.raw variant false", "l array<variant> false", "t array<string> true",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	for range s.Leaves() { // the caller may leave the loop early
		break
	}
	for l := range s.Leaves() {
		if l.Path[0] == "s" {
			break
		}
	}
}

func TestArrow(t *testing.T) {
	s, err := schema.FromDelta([]byte(spark))
	if err != nil {
		t.Fatal(err)
	}
	want := `schema:
  fields: 3
    - id: type=int64, nullable
    - s: type=struct<n: int32 nullable>, nullable
    - t: type=list<element: utf8>`
	if diff := cmp.Diff(want, s.Arrow().String()); diff != "" {
		t.Error(diff)
	}
	all := parse(t, "a string, b bigint, c int, d smallint, e tinyint, f double, g float, h boolean, i date, j timestamp, k array<int>, "+
		"l decimal(38,6), m binary, n map<string,array<decimal(3)>>")
	want = `schema:
  fields: 14
    - a: type=utf8, nullable
    - b: type=int64, nullable
    - c: type=int32, nullable
    - d: type=int16, nullable
    - e: type=int8, nullable
    - f: type=float64, nullable
    - g: type=float32, nullable
    - h: type=bool, nullable
    - i: type=date32, nullable
    - j: type=timestamp[us, tz=UTC], nullable
    - k: type=list<element: int32, nullable>, nullable
    - l: type=decimal(38, 6), nullable
    - m: type=binary, nullable
    - n: type=map<utf8, list<element: decimal(3, 0), nullable>, items_nullable>, nullable`
	if diff := cmp.Diff(want, all.Arrow().String()); diff != "" {
		t.Error(diff)
	}
}

// TestMapsOfOtherKeys: JSON has no keys but strings, so a map with other keys is kept and not written.
func TestMapsOfOtherKeys(t *testing.T) {
	const other = `{"type":"map","keyType":"integer","valueType":"string","valueContainsNull":true}`
	s := fromDelta(t, `{"name":"m","type":`+other+`,"nullable":true,"metadata":{}},{"name":"s","type":{"type":"map","keyType":"string","valueType":`+
		other+`,"valueContainsNull":true},"nullable":true,"metadata":{}},{"name":"a","type":"long","nullable":true,"metadata":{}}`)
	if got := s.Written().DDL(); got != "a bigint" || !strings.Contains(s.DeltaJSON(), other) {
		t.Errorf("written: %s of %s", got, s.DeltaJSON())
	}
}

func TestFromDeltaErrors(t *testing.T) {
	field := func(s string) string { return `{"type":"struct","fields":[` + s + `]}` }
	for _, c := range []struct{ text, want string }{
		{``, "schema of the table: type"},
		{`{}`, "a type has no name"},
		{`"string"`, "is not a struct"},
		{`null`, "a type has no name"},
		{`{"type":"struct"} x`, "schema of the table: type"},
		{"\"\xff\"", "not UTF-8"},
		{field(`{"name":"a","type":"long"}`), "no nullable"},
		{field(`{"type":"long","nullable":true}`), "no name"},
		{field(`{"name":"a","nullable":true}`), "no type"},
		{field(`{"name":"a","type":null,"nullable":true}`), `column "a": a type has no name`},
		{field(`{"name":"a","type":7,"nullable":true}`), `column "a": type`},
		{field(`{"name":"a","type":"long","nullable":true,"metadata":3}`), "not an object"},
		{field(`{"name":"a","type":{"type":"array","elementType":"long"},"nullable":true}`), "no containsNull"},
		{field(`{"name":"a","type":{"type":"array","containsNull":true},"nullable":true}`), "no elementType"},
		{field(`{"name":"a","type":"long","nullable":true},{"name":"A","type":"long","nullable":true}`), `column "A" is there twice`},
		{field(`{"name":"a","type":{"type":"map","keyType":"string","valueType":"long"},"nullable":true}`), "no valueContainsNull"},
		{strings.Repeat(`{"type":"array","containsNull":true,"elementType":`, 100) + `"long"` + strings.Repeat(`}`, 100), "nested deeper than 64"},
	} {
		_, err := schema.FromDelta([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s:\n got %v\nwant %s", c.text, err, c.want)
		}
	}
	s, err := schema.FromDelta([]byte(field(`{"name":"a","type":"long","nullable":true,"metadata":null}`)))
	if err != nil || !strings.Contains(s.DeltaJSON(), `"metadata":{}`) {
		t.Errorf("null metadata: %v", err)
	}
}

// randomJSON draws the schemaString of a table.
func randomJSON(t *rapid.T, depth int) string {
	leaves := []string{
		`"string"`, `"long"`, `"integer"`, `"short"`, `"byte"`, `"double"`, `"float"`, `"boolean"`, `"date"`, `"timestamp"`,
		`"decimal(38,0)"`, `"decimal(1,1)"`, `"decimal(39,0)"`, `"decimal(2,3)"`, `"binary"`, `"variant"`,
		`{"type":"map","keyType":"string","valueType":"long","valueContainsNull":false}`,
		`{"type":"map","keyType":"long","valueType":"string","valueContainsNull":true}`,
	}
	var typ func(depth int) string
	typ = func(depth int) string {
		switch k := rapid.IntRange(0, 4).Draw(t, "kind"); {
		case depth > 0 && k == 0:
			return randomJSON(t, depth-1)
		case depth > 0 && k == 1:
			return fmt.Sprintf(`{"type":"array","elementType":%s,"containsNull":%t}`, typ(depth-1), rapid.Bool().Draw(t, "containsNull"))
		}
		return rapid.SampledFrom(leaves).Draw(t, "leaf")
	}
	var fields []string
	for i := range rapid.IntRange(0, 4).Draw(t, "fields") {
		name, err := json.Marshal(rapid.StringMatching("[a-zé.`'\"-]{0,3}").Draw(t, "name") + fmt.Sprint(i))
		if err != nil {
			t.Fatal(err)
		}
		metadata := rapid.SampledFrom([]string{`{}`, `{"comment":"it's"}`, `{"x":{"y":[1.50, 2]}}`}).Draw(t, "metadata")
		fields = append(fields, fmt.Sprintf(`{"name":%s,"type":%s,"nullable":%t,"metadata":%s}`, name, typ(depth), rapid.Bool().Draw(t, "nullable"), metadata))
	}
	return `{"type":"struct","fields":[` + strings.Join(fields, ",") + `]}`
}

// TestRoundTrips: a schema read from a table is written byte for byte as it was. Written applied to its own result
// changes nothing, rows built for it fit a supported table, and DDL keeps everything that DDL can express.
func TestRoundTrips(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := randomJSON(t, 3)
		s, err := schema.FromDelta([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(text, s.DeltaJSON()); diff != "" {
			t.Fatal(diff)
		}
		written := s.Written()
		if again := written.Written(); again.DeltaJSON() != written.DeltaJSON() {
			t.Fatal("written twice differs")
		}
		for l := range written.Leaves() {
			if !l.Written {
				t.Fatalf("%v is among the written leaves", l.Path)
			}
		}
		if s.Unsupported() == nil {
			if err := s.Fits(s.Written()); err != nil {
				t.Fatal(err)
			}
		}
		fromDDL, err := schema.ParseDDL(written.DDL())
		if err != nil {
			if len(written.Fields()) > 0 {
				t.Fatal(err)
			}
			return
		}
		if fromDDL.DDL() != written.DDL() {
			t.Fatalf("%s\n%s", fromDDL.DDL(), written.DDL())
		}
	})
}

func FuzzFromDelta(f *testing.F) {
	f.Add([]byte(spark))
	f.Add([]byte(`{"type":"struct","fields":[{"name":"a","type":{"type":"array","elementType":"long","containsNull":true},"nullable":true,"metadata":{"delta.invariants":"x"}}]}`))
	f.Add([]byte(`{"type":"struct","fields":null}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, err := schema.FromDelta(text)
		if err != nil {
			return
		}
		out := s.DeltaJSON()
		again, err := schema.FromDelta([]byte(out))
		if err != nil {
			t.Fatalf("%s\nbecame %s: %v", text, out, err)
		}
		if again.DeltaJSON() != out {
			t.Fatalf("%s\nthen %s", out, again.DeltaJSON())
		}
		_ = s.Arrow().String()
		_ = s.DDL()
		if err := s.Unsupported(); err != nil && err.Error() == "" {
			t.Fatal("empty error")
		}
		if err := s.Fits(again); err != nil && s.Unsupported() == nil {
			t.Fatal(err)
		}
	})
}

// TestLeavesMayBeKept: a caller may keep the paths of leaves, because they share no memory.
func TestLeavesMayBeKept(t *testing.T) {
	var kept []string
	var paths [][]string
	for l := range parse(t, "a struct<b:struct<c:struct<x:int, y:int, z:struct<u:int, v:int>>, d:int>>").Leaves() {
		paths = append(paths, l.Path)
		kept = append(kept, strings.Join(l.Path, "."))
	}
	for i, p := range paths {
		if strings.Join(p, ".") != kept[i] {
			t.Errorf("%s became %v", kept[i], p)
		}
	}
}
