package schema_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"sluice/connector/schema"
)

func TestParsePaths(t *testing.T) {
	for text, want := range map[string][][]string{
		"":                          nil,
		" \t":                       nil,
		"a":                         {{"a"}},
		" a . b ,c":                 {{"a", "b"}, {"c"}},
		"`a.b`.`c,d`, `e``f` . g-h": {{"a.b", "c,d"}, {"e`f", "g-h"}},
		"größe.x y":                 {{"größe", "x y"}},
	} {
		got, err := schema.ParsePaths(text)
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Errorf("%q: %v %s", text, err, d)
		}
	}
	for text, want := range map[string]string{
		"a,":      "a name is missing",
		"a..b":    "a name is missing",
		"``":      "a name is missing",
		"`a":      "a backtick is not closed",
		"a`b`":    "backticks around the whole name",
		"`a`b.c":  "expected a dot or a comma",
		".":       "a name is missing",
		"a, , b ": "a name is missing",
	} {
		if got, err := schema.ParsePaths(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %q, %v", text, got, err)
		}
	}
	if got, err := schema.ParsePath("a,b"); err == nil {
		t.Errorf("two paths are taken for one: %q", got)
	}
}

// TestParsePaths_AnyName: a name between backticks is read back, with any characters in it.
func TestParsePaths_AnyName(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var want [][]string
		var list []string
		for range rapid.IntRange(1, 3).Draw(t, "paths") {
			path := rapid.SliceOfN(rapid.StringN(1, 8, -1), 1, 3).Draw(t, "path")
			var parts []string
			for _, name := range path {
				parts = append(parts, "`"+strings.ReplaceAll(name, "`", "``")+"`")
			}
			want, list = append(want, path), append(list, strings.Join(parts, "."))
			if again, err := schema.ParsePath(schema.JoinPath(path)); err != nil || !slices.Equal(again, path) {
				t.Fatalf("%q joined and parsed: %q, %v", path, again, err)
			}
		}
		got, err := schema.ParsePaths(strings.Join(list, ","))
		if d := cmp.Diff(want, got); d != "" || err != nil {
			t.Fatalf("%v %s", err, d)
		}
	})
}

func TestSchema_Find(t *testing.T) {
	s := parse(t, "a int, b struct<c: struct<d: string>>, l array<struct<e: int>>")
	for path, want := range map[string]string{
		"a": "int", "b": "struct<c:struct<d:string>>", "b.c.d": "string", "b.x": "", "A": "", "a.b": "", "l.e": "", "l": "array<struct<e:int>>",
	} {
		f, ok := s.Find(strings.Split(path, "."))
		if ok != (want != "") || ok && f.Type.String() != want {
			t.Errorf("%s: %v %t", path, f.Type, ok)
		}
	}
	if _, ok := s.Find(nil); ok {
		t.Error("an empty path is a column")
	}
}
