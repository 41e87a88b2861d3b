package schema

import (
	"encoding/json"
	"fmt"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
)

func shapeOf(t *testing.T, values ...string) *Shape {
	t.Helper()
	o := NewObserver(1000)
	for _, v := range values {
		if err := o.Observe([]byte(v)); err != nil {
			t.Fatalf("%s: %v", v, err)
		}
	}
	return o.Shape()
}

// inferred returns the type for the values with each raw column marked, "" if they need no column.
func inferred(s *Shape) string {
	f, ok := s.Column("x")
	if !ok {
		return ""
	}
	return marked(f)
}

func marked(f Field) string {
	t := f.Type
	switch {
	case f.Raw():
		return "raw"
	case t.Kind == Array:
		return "array<" + marked(Field{Type: *t.Element}) + ">"
	case t.Kind == Struct:
		var all []string
		for _, f := range t.Fields {
			all = append(all, f.Name+":"+marked(f))
		}
		return "struct<" + strings.Join(all, ",") + ">"
	}
	return t.String()
}

func TestShape_Column(t *testing.T) {
	for _, c := range []struct {
		values, want string
	}{
		{`null`, ""},
		{`{} null`, ""},
		{`[] [null]`, ""},
		{`[[]] []`, ""},
		{`[{}]`, ""},
		{`[{}] [[]]`, "raw"},
		{`true null false`, "boolean"},
		{`1 null -7`, "bigint"},
		{`1.0 1e3 -0 100e-2 0e999 0.0`, "bigint"},
		{`9223372036854775807 -9223372036854775808`, "bigint"},
		{`9007199254740993`, "bigint"},
		{`1 2.5`, "double"},
		{`1e30 2`, "double"},
		{`1e-400`, "double"},
		{`9007199254740992 2.5`, "double"},
		{`9007199254740993 2.5`, "raw"},
		{`9223372036854775808`, "raw"},
		{`100000000000000000000 1`, "raw"},
		{`1e309`, "raw"},
		{`"a" "2026-01-31" null`, "string"},
		{`"a" 1`, "raw"},
		{`true 1`, "raw"},
		{`{"a":1} "x"`, "raw"},
		{`{"a":1} [1]`, "raw"},
		{`{} 1`, "raw"},
		{`[] 1`, "raw"},
		{`{"b":1,"a":null} {"a":"x","c":{}}`, "struct<a:string,b:bigint>"},
		{`{"a":1} {"a":"x"}`, "struct<a:raw>"},
		{`[1] [2.5,null]`, "array<double>"},
		{`[1,"a"]`, "raw"},
		{`[[1],["a"]]`, "raw"},
		{`[[1],[],null]`, "array<array<bigint>>"},
		{`[{"a":1},{"b":[true]}]`, "array<struct<a:bigint,b:array<boolean>>>"},
		{`[{"a":1},{"a":"x"}]`, "array<struct<a:raw>>"},
		{` { "a" : [ 1 , 2 ] , "é\"\u0041" : "x\"" } `, "struct<a:array<bigint>,é\"A:string>"},
	} {
		var values []string
		for d := json.NewDecoder(strings.NewReader(c.values)); d.More(); {
			var v json.RawMessage
			if err := d.Decode(&v); err != nil {
				t.Fatal(err)
			}
			values = append(values, string(v))
		}
		if got := inferred(shapeOf(t, values...)); got != c.want {
			t.Errorf("%s: %q, want %q", c.values, got, c.want)
		}
	}
}

func TestShape_Depth(t *testing.T) {
	for _, pair := range []string{`{"a": }`, `[ ]`} {
		opening, closing, _ := strings.Cut(pair, " ")
		for levels, raw := range map[int]bool{InferDepth - 1: false, InferDepth: true, InferDepth + 5: true} {
			v := strings.Repeat(opening, levels) + "1" + strings.Repeat(closing, levels)
			if got := inferred(shapeOf(t, v)); strings.Contains(got, "raw") != raw {
				t.Errorf("%d levels of %s: %s", levels, pair, got)
			}
		}
	}
}

// randomValue returns JSON that often has the fields and kinds of other random values.
func randomValue(r *rand.Rand, depth int) string {
	n := 9
	if depth == 0 {
		n = 7
	}
	switch r.IntN(n) {
	case 0:
		return "null"
	case 1:
		return strconv.FormatBool(r.IntN(2) == 0)
	case 2:
		return strconv.Itoa(r.IntN(100))
	case 3:
		return fmt.Sprintf("%d.%d", r.IntN(10), 1+r.IntN(9))
	case 4:
		return strconv.FormatInt(r.Int64(), 10)
	case 5:
		return []string{"1e3", "1e30", "1e309", "12345678901234567890", "2.0"}[r.IntN(5)]
	case 6:
		return strconv.Quote(string(rune('a' + r.IntN(26))))
	case 7:
		parts := make([]string, r.IntN(3))
		for i := range parts {
			parts[i] = randomValue(r, depth-1)
		}
		return "[" + strings.Join(parts, ",") + "]"
	}
	var parts []string
	for _, name := range []string{"a", "b", "c"} {
		if r.IntN(2) == 0 {
			parts = append(parts, `"`+name+`":`+randomValue(r, depth-1))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// TestShape_Lattice: the column depends on the set of the values only, not on their order or on how often each came; a
// value that the set has already changes nothing, and a mixed column stays mixed.
func TestShape_Lattice(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	for range 3000 {
		values := make([]string, 1+r.IntN(6))
		for i := range values {
			values[i] = randomValue(r, 3)
		}
		want := inferred(shapeOf(t, values...))
		again := slices.Concat(values, values[:r.IntN(len(values)+1)])
		r.Shuffle(len(again), func(i, j int) { again[i], again[j] = again[j], again[i] })
		if got := inferred(shapeOf(t, again...)); got != want {
			t.Fatalf("seed %d: %q gives %q, and %q gives %q", seed, values, want, again, got)
		}
		mixed := shapeOf(t, values...).Mixed()
		if more := shapeOf(t, slices.Concat(values, []string{randomValue(r, 3)})...); mixed && !more.Mixed() {
			t.Fatalf("seed %d: %q is mixed, and no longer with one more value", seed, values)
		}
	}
}

// TestNumberKind compares with arithmetic without limits.
func TestNumberKind(t *testing.T) {
	seed := rand.Uint64()
	r := rand.New(rand.NewPCG(seed, 0))
	texts := []string{
		"0", "-0", "9007199254740992", "9007199254740993", "-9223372036854775808", "-9223372036854775809", "9223372036854775807",
		"9223372036854775808", "9999999999999999999", "922337203685477580700e-2", "1e18", "1e19", "0.1e1", "1E+2", "1e-0",
	}
	for range 20_000 {
		text := strconv.FormatUint(r.Uint64()>>r.IntN(64), 10)
		if r.IntN(2) == 0 {
			text = "-" + text
		}
		if r.IntN(2) == 0 {
			text += fmt.Sprintf(".%d", r.IntN(100)*r.IntN(2))
		}
		if r.IntN(2) == 0 {
			text += fmt.Sprintf("e%d", r.IntN(40)-20)
		}
		texts = append(texts, text)
	}
	for _, text := range texts {
		exact, ok := new(big.Rat).SetString(text)
		if !ok {
			t.Fatal(text)
		}
		want := FractionValue
		double, _ := strconv.ParseFloat(text, 64)
		switch {
		case exact.IsInt() && exact.Num().IsInt64() && new(big.Rat).SetFloat64(double).Cmp(exact) == 0:
			want = IntegerValue
		case exact.IsInt() && exact.Num().IsInt64():
			want = LongValue
		case exact.IsInt() && !strings.Contains(text, "e"):
			want = HugeValue
		}
		if got, ok := NumberKind(text); !ok || got != want {
			t.Errorf("seed %d: %s is %v, want %v", seed, text, got, want)
		}
	}
}

func TestObserver_Invalid(t *testing.T) {
	for _, text := range []string{
		"", " ", "{", "[", `"`, `"a`, `"\`, "{]", "[}", `{"a"}`, `{"a":}`, `{"a":1,}`, "[1,]", "[1 2]", "{1:2}", "01", "1.", ".5", "+1", "1e", "1e+-2", "1e-+2",
		"-", "tru", "nul", "1 2", `{"a":1}x`, `{"\x":1}`, "1_0", "0x1", strings.Repeat("[", 1000),
	} {
		if err := NewObserver(10).Observe([]byte(text)); err == nil {
			t.Errorf("%q is accepted", text)
		}
	}
}

// TestObserver_Bound: names beyond the bound are counted and not kept, at any depth; those that are kept are complete.
func TestObserver_Bound(t *testing.T) {
	o := NewObserver(3)
	for i := range 1000 {
		if err := o.Observe(fmt.Appendf(nil, `{"a":{"x":1},"b":2,"new %d":{"y":[{"z":3}]}}`, i)); err != nil {
			t.Fatal(err)
		}
	}
	if got := inferred(o.Shape()); got != "struct<a:struct<x:bigint>,b:bigint>" || o.More() != 1000 {
		t.Errorf("%s, %d more", got, o.More())
	}
	if n := o.Shape().Field("b").Values(); n != 1000 {
		t.Errorf("b has %d values", n)
	}
}
