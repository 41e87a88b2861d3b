package schema_test

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"sluice/connector/schema"
	"sluice/reliability/hold"
)

// hash returns the digits of the suffix that a field of this name gets.
func hash(field string) string {
	sum := sha256.Sum256([]byte(field))
	return hex.EncodeToString(sum[:])[:8]
}

func TestColumnNames(t *testing.T) {
	long := strings.Repeat("é", 200) // 400 bytes
	for _, c := range []struct {
		name         string
		taken        []string
		fields, want []string
	}{
		{"ordinary names stay", nil, []string{"a", "a.b", "Straße", "a-b", "`", "_kafk", "_"}, []string{"a", "a.b", "Straße", "a-b", "`", "_kafk", "_"}},
		{"forbidden characters", nil, []string{" a,;{}()\n\t=\x00\u0085b"}, []string{"_a___________b"}},
		{"empty and no UTF-8", nil, []string{"", "a\xffb"}, []string{"_", "a_b"}},
		{"reserved", nil, []string{"_kafka_offset", "_KAFKA_x"}, []string{"__kafka_offset", "__KAFKA_x"}},
		{"what stays comes first", nil, []string{"a b", "a_b"}, []string{"a_b_" + hash("a b"), "a_b"}},
		{"the first of two changed names", nil, []string{"a b", "a,b"}, []string{"a_b", "a_b_" + hash("a,b")}},
		{"case only", nil, []string{"id", "Id", "ID"}, []string{"id", "Id_" + hash("Id"), "ID_" + hash("ID")}},
		{"case in other languages", nil, []string{"σ", "ς", "K", "\u212a", "i", "\u0130", "i\u0307"}, []string{
			"σ", "ς_" + hash("ς"), "K", "\u212a_" + hash("\u212a"), "i", "\u0130_" + hash("\u0130"), "i\u0307_" + hash("i\u0307"),
		}},
		{"taken by the table", []string{"a_b", "ID"}, []string{"a b", "id", "c"}, []string{"a_b_" + hash("a b"), "id_" + hash("id"), "c"}},
		{"cut between characters", nil, []string{long}, []string{strings.Repeat("é", 123) + "_" + hash(long)}},
		{"255 bytes", nil, []string{strings.Repeat("x", 255)}, []string{strings.Repeat("x", 255)}},
		{"a suffix that is taken", nil, []string{"a b", "a_b", "a_b_" + hash("a b")}, []string{"a_b_" + hash("a b\x001"), "a_b", "a_b_" + hash("a b")}},
	} {
		if d := cmp.Diff(c.want, schema.ColumnNames(c.taken, c.fields, true)); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
	if got := schema.ColumnNames(nil, []string{"_kafka_offset"}, false); got[0] != "_kafka_offset" {
		t.Errorf("the prefix is reserved in structs: %s", got[0])
	}
}

// FuzzColumnNames: the columns of any fields can exist in one table of Delta, whose names are compared
// without case. A field without a rival for its name has the same column beside any other fields, in any order.
func FuzzColumnNames(f *testing.F) {
	f.Add("a b,a_b,a=b,A_B,A_b", uint64(1))
	f.Add("_kafka_offset,__kafka_offset,_KAFKA_OFFSET,", uint64(2))
	f.Add("\u0130,i,I,\u0131,i\u0307,ſ,s,S,ǅ,ǆ,Ǆ,ß,ẞ", uint64(3))
	f.Add(strings.Repeat("x", 300)+","+strings.Repeat("x", 301)+","+strings.Repeat("X", 300), uint64(4))
	f.Add("a b,a_b,a_b_"+hash("a b")+",A_B_"+strings.ToUpper(hash("a b")), uint64(5))
	f.Fuzz(func(t *testing.T, text string, seed uint64) {
		fields := slices.Compact(slices.Sorted(strings.SplitSeq(text, ",")))
		r := rand.New(rand.NewPCG(seed, 0))
		if len(fields) > 1 {
			fields = append(fields, fields[0]+","+fields[1]) // the separator of this test is forbidden in names, too
		}
		r.Shuffle(len(fields), func(i, j int) { fields[i], fields[j] = fields[j], fields[i] })
		cut := r.IntN(len(fields) + 1)
		taken := schema.ColumnNames(nil, fields[:cut], true)
		added := schema.ColumnNames(taken, fields[cut:], true)
		checkNames(t, fields, slices.Concat(taken, added))

		all := schema.ColumnNames(nil, fields, true)
		checkNames(t, fields, all)
		for i, field := range fields {
			alone := schema.ColumnNames(nil, []string{field}, true)
			rival := slices.ContainsFunc(fields, func(other string) bool {
				return other != field && schema.ColumnNames(schema.ColumnNames(nil, []string{other}, true), []string{field}, true)[0] != alone[0]
			})
			if !rival && all[i] != alone[0] {
				t.Errorf("field %q has no rival and the column %q instead of %q", field, all[i], alone[0])
			}
		}
	})
}

func checkNames(t *testing.T, fields, names []string) {
	t.Helper()
	seen := map[string]string{}
	for i, name := range names {
		if name == "" || len(name) > 255 || !utf8.ValidString(name) || strings.ContainsAny(name, " ,;{}()\n\t=") || strings.ContainsFunc(name, unicode.IsControl) {
			t.Errorf("field %q has the column %q", fields[i], name)
		}
		if len(name) >= 7 && strings.EqualFold(name[:7], "_kafka_") {
			t.Errorf("field %q has the reserved column %q", fields[i], name)
		}
		for _, key := range []string{strings.ToLower(name), strings.ToUpper(name), strings.ReplaceAll(strings.ToLower(name), "\u0130", "i\u0307")} {
			if other, there := seen[key]; there && other != name {
				t.Errorf("columns %q and %q differ in case only", other, name)
			}
			seen[key] = name
		}
	}
	distinct := slices.Compact(slices.Sorted(slices.Values(names)))
	if len(distinct) != len(names) {
		t.Errorf("%d fields have %d columns: %q", len(names), len(distinct), names)
	}
}

// TestRenamed: the metadata of a renamed column name the field, beside what they have already, also after the schema
// was written to the table and read back.
func TestRenamed(t *testing.T) {
	declared := parse(t, "`a b` int comment 'c', plain int, `x,y` struct<`p q`: int>, l array<array<struct<`r\"s`: int, R int, r int>>>")
	for _, s := range []*schema.Schema{declared, reread(t, declared)} {
		want := []schema.Renamed{{"a_b", "a b"}, {"x_y", "x,y"}, {"x_y.p_q", "p q"}, {"l[][].r_" + hash("r"), "r"}}
		if d := cmp.Diff(want, s.Renamed()); d != "" {
			t.Errorf("(-want +got):\n%s", d)
		}
		if f := s.Fields()[0]; string(f.Metadata) != `{"sluice.field":"a b","comment":"c"}` || f.Comment() != "c" || f.Source() != "a b" {
			t.Errorf("metadata %s", f.Metadata)
		}
		if f := s.Fields()[2]; string(f.Metadata) != `{"sluice.field":"x,y"}` {
			t.Errorf("metadata %s", f.Metadata)
		}
		if f := s.Fields()[1]; f.Metadata != nil && string(f.Metadata) != "{}" || f.Source() != "plain" {
			t.Errorf("an ordinary column has the metadata %s", f.Metadata)
		}
	}
	for metadata, want := range map[string]string{`{"sluice.field":7}`: "a", `{"sluice.field":null}`: "a", `{"other":"sluice.field"}`: "a", `{"sluice.field":""}`: "", `{}`: "a"} {
		if got := (schema.Field{Name: "a", Metadata: []byte(metadata)}).Source(); got != want {
			t.Errorf("%s: source %q, want %q", metadata, got, want)
		}
	}
}

func reread(t *testing.T, s *schema.Schema) *schema.Schema {
	t.Helper()
	read, err := schema.FromDelta([]byte(s.DeltaJSON()))
	if err != nil {
		t.Fatal(err)
	}
	return read
}

// TestForRows_Sources: the schema in the configuration must name the fields that the table's columns are filled from.
func TestForRows_Sources(t *testing.T) {
	const column = `{"name":"a_b","type":"integer","nullable":true,"metadata":%s}`
	lost := fromDelta(t, fmt.Sprintf(column, `{}`))
	kept := fromDelta(t, fmt.Sprintf(column, `{"sluice.field":"a b"}`))
	spaced := fromDelta(t, `{"name":"a b","type":"integer","nullable":true,"metadata":{}}`)
	inside := fromDelta(t, `{"name":"l","type":{"type":"array","elementType":{"type":"struct","fields":[`+fmt.Sprintf(column, `{}`)+`]},"containsNull":true},"nullable":true,"metadata":{}}`)
	for _, c := range []struct {
		name        string
		table       *schema.Schema
		ddl, reason string
	}{
		{"the same field", kept, "`a b` int", ""},
		{"metadata lost", lost, "`a b` int", `column a_b is filled from the field "a_b" in the table and from "a b" in schema`},
		{"another field", kept, "a_b int", `column a_b is filled from the field "a b" in the table and from "a_b" in schema`},
		{"another column", spaced, "`a b` int", `the field "a b" of schema fills column a b of the table already, and would fill a_b`},
		{"in the elements of a list", inside, "l array<struct<`a b`: int>>", `column l[].a_b is filled`},
		{"not declared", kept, "c int", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := c.table.ForRows(parse(t, c.ddl))
			checkHold(t, err, hold.SchemaConflict, c.reason)
		})
	}
}
