package schema

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"
)

func TestRescuedPath(t *testing.T) {
	for text, want := range map[string]string{
		"a":                          `"a"`,
		"s.y":                        `"s" "y"`,
		"l[12][0].y":                 `"l" 12 0 "y"`,
		"`s.y`.`l[0]`":               `"s.y" "l[0]"`,
		"``.x":                       `"" "x"`,
		"`a``b`[3].``":               "\"a`b\" 3 \"\"",
		"":                           "",
		"a.":                         "",
		".a":                         "",
		"a[":                         "",
		"a[1]":                       "", // the last step is a name
		"a[-1].x":                    "",
		"a[1]x":                      "",
		"`a":                         "",
		"a..b":                       "",
		"a[99999999999999].b":        `"a" 99999999999999 "b"`,
		"a[999999999999999999999].b": "",
	} {
		steps, err := ParseRescuedPath(text)
		var all []string
		for _, s := range steps {
			if s.Index >= 0 {
				all = append(all, fmt.Sprint(s.Index))
			} else {
				all = append(all, `"`+s.Name+`"`)
			}
		}
		if got := strings.Join(all, " "); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
}

func TestRescuedFields(t *testing.T) {
	var got []string
	err := RescuedFields([]byte(`{"a":1,"s.\"y":{"x" : [1, "]"]},"l[0].z":"\"}"}`), func(path string, value []byte) error {
		got = append(got, path+"="+string(value))
		return nil
	})
	if want := []string{`a=1`, `s."y={"x" : [1, "]"]}`, `l[0].z="\"}"`}; err != nil || !slices.Equal(got, want) {
		t.Errorf("%q, %v", got, err)
	}
	for _, text := range []string{``, `[]`, `{"a":1`, `{"a":1}x`, `{"a"}`} {
		if err := RescuedFields([]byte(text), func(string, []byte) error { return nil }); err == nil {
			t.Errorf("%s is accepted", text)
		}
	}
}

// TestGrowth_Total: a table gets no more than MaxColumns columns, counting those that it has, at all depths.
func TestGrowth_Total(t *testing.T) {
	var ddl strings.Builder
	for i := range MaxColumns/2 - 1 {
		fmt.Fprintf(&ddl, "c%d bigint, s%d struct<x:int>, ", i, i)
	}
	table, err := ParseDDL(ddl.String() + "last bigint")
	if err != nil {
		t.Fatal(err)
	}
	g := NewGrowth(table)
	for _, path := range []string{"new", "s1.y", "s2.y", "new2"} {
		if known, err := g.Observe(path, []byte("1"), false); known || err != nil {
			t.Fatal(known, err)
		}
	}
	s, full := g.Schema(NewColumns{PerCommit: 100, PerHour: 100}, time.Now())
	if n := countColumns(Type{Kind: Struct, Fields: s.fields}); n != MaxColumns || !full {
		t.Errorf("%d columns, full is %v", n, full)
	}
}

func TestSameValues(t *testing.T) {
	column := func(name, metadata string) Field {
		return Field{Name: name, Type: Type{Kind: String}, Nullable: true, Metadata: []byte(metadata)}
	}
	of := func(f Field) *Schema {
		inside := Type{Kind: Struct, Fields: []Field{f}}
		return &Schema{fields: []Field{{Name: "l", Type: Type{Kind: Array, Element: &inside}}}}
	}
	plain, raw, other := column("x", `{"sluice.inferred":true}`), column("x", `{"sluice.raw":true}`), column("x", `{"sluice.field":"X"}`)
	for _, c := range []struct {
		table, rows Field
		same        bool
	}{{plain, column("x", "{}"), true}, {raw, raw, true}, {plain, column("y", `{"sluice.raw":true}`), true}, {plain, raw, false}, {raw, plain, false}, {plain, other, false}, {other, plain, false}} {
		if err := of(c.table).SameValues(of(c.rows)); (err == nil) != c.same {
			t.Errorf("%s and %s: %v", c.table.Metadata, c.rows.Metadata, err)
		}
	}
}
