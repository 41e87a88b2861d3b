package decode

import (
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"sluice/connector"
	"sluice/connector/schema"
)

// drawSchema draws a table's schema.
func drawSchema(t *rapid.T) *schema.Schema {
	kafka := strings.TrimSuffix(kafkaJSON, "]}")
	s, err := schema.FromDelta([]byte(kafka + "," + drawFields(t, 2) + "]}"))
	if err != nil {
		t.Fatal(err)
	}
	return s
}

var kafkaJSON = (&schema.Schema{}).WithKafkaColumns().DeltaJSON()

func drawFields(t *rapid.T, depth int) string {
	leaves := []string{"string", "string", "string", "long", "double", "boolean", "timestamp", "byte", "short", "integer", "float", "date", "decimal(7,3)", "decimal(38,20)", "binary"}
	var typ func(depth int) string
	typ = func(depth int) string {
		switch k := rapid.IntRange(0, 9).Draw(t, "kind"); {
		case depth > 0 && k < 2:
			return `{"type":"struct","fields":[` + drawFields(t, depth-1) + `]}`
		case depth > 0 && k < 4:
			return fmt.Sprintf(`{"type":"array","elementType":%s,"containsNull":%t}`, typ(depth-1), rapid.IntRange(0, 2).Draw(t, "containsNull") > 0)
		case depth > 0 && k < 5:
			return fmt.Sprintf(`{"type":"map","keyType":"string","valueType":%s,"valueContainsNull":%t}`, typ(depth-1), rapid.IntRange(0, 2).Draw(t, "valueContainsNull") > 0)
		}
		return `"` + rapid.SampledFrom(leaves).Draw(t, "leaf") + `"`
	}
	n := rapid.IntRange(1, 5).Draw(t, "columns")
	wide := rapid.IntRange(0, 15).Draw(t, "wide") == 0 // so many columns that the bits of seen fields need a second word
	var fields []string
	for i := range n {
		name := strings.Repeat("n", rapid.IntRange(0, 20).Draw(t, "name")) + fmt.Sprint(i)
		fields = append(fields, fmt.Sprintf(`{"name":"%s","type":%s,"nullable":%t}`, name, typ(depth), rapid.IntRange(0, 4).Draw(t, "nullable") > 0))
	}
	for i := range 70 {
		if wide {
			fields = append(fields, fmt.Sprintf(`{"name":"w%d","type":"byte","nullable":%t}`, i, i%9 > 0))
		}
	}
	return strings.Join(fields, ",")
}

// drawValue draws a valid JSON value of a type. distinct bounds the number of different strings.
func drawValue(t *rapid.T, k schema.Type, nullable bool, distinct int) string {
	if nullable && rapid.IntRange(0, 3).Draw(t, "null") == 0 {
		return "null"
	}
	number := func(upTo int) int { return rapid.IntRange(0, upTo).Draw(t, "number") }
	switch k.Kind {
	case schema.String:
		format := rapid.SampledFrom([]string{`"v%d"`, `"a longer text with %d in it"`, `"é%d"`, `"\u00e9\n%d"`, `"%d"`}).Draw(t, "format")
		return fmt.Sprintf(format, number(distinct-1))
	case schema.Boolean:
		return fmt.Sprint(number(1) == 0)
	case schema.Long:
		return fmt.Sprint(rapid.Int64().Draw(t, "long"))
	case schema.Byte:
		return fmt.Sprint(rapid.Int8().Draw(t, "byte"))
	case schema.Short:
		return fmt.Sprint(rapid.Int16().Draw(t, "short"))
	case schema.Integer:
		return fmt.Sprint(rapid.Int32().Draw(t, "integer"))
	case schema.Double:
		return fmt.Sprint(rapid.Float64().Draw(t, "double"))
	case schema.Float:
		return fmt.Sprint(rapid.Float32().Draw(t, "float"))
	case schema.Date:
		return fmt.Sprintf(`"%04d-%02d-%02d"`, number(9999), 1+number(11), 1+number(27))
	case schema.Timestamp:
		zone := rapid.SampledFrom([]string{"Z", "+05:30", "-23:59"}).Draw(t, "zone")
		return fmt.Sprintf(`"2026-%02d-%02dT%02d:00:59.%d%s"`, 1+number(11), 1+number(27), number(23), number(999_999), zone)
	case schema.Decimal:
		format := rapid.SampledFrom([]string{"%d.%03d", `"-%d.%03d"`, "%d.%03d00000000000000000000"}).Draw(t, "format")
		return fmt.Sprintf(format, number(9999), number(999))
	case schema.Binary:
		format := rapid.SampledFrom([]string{`"v%03d"`, `"a+longer\/text+with%03d+in+it1"`, `"\u00410%03d000"`}).Draw(t, "format")
		return fmt.Sprintf(format, number(min(distinct, 1000)-1))
	case schema.Map:
		var m []string
		for i := range number(4) {
			m = append(m, fmt.Sprintf(`"k%d": %s`, number(distinct)*5+i, drawValue(t, *k.Element, k.ElementNullable, distinct)))
		}
		return "{" + strings.Join(m, rapid.SampledFrom([]string{",", " , "}).Draw(t, "comma")) + "}"
	case schema.Array:
		e := make([]string, number(4))
		for i := range e {
			e[i] = drawValue(t, *k.Element, k.ElementNullable, distinct)
		}
		return "[" + strings.Join(e, rapid.SampledFrom([]string{",", ", "}).Draw(t, "comma")) + "]"
	case schema.Struct:
		return drawObject(t, k.Fields, distinct)
	case schema.Other:
	}
	panic(k)
}

func drawObject(t *rapid.T, fields []schema.Field, distinct int) string {
	var m []string
	colon := rapid.SampledFrom([]string{":", ": ", " :\n"}).Draw(t, "colon")
	for _, f := range fields {
		if !f.Nullable || rapid.IntRange(0, 4).Draw(t, "present") > 0 {
			m = append(m, `"`+f.Name+`"`+colon+drawValue(t, f.Type, f.Nullable, distinct))
		}
	}
	if rapid.IntRange(0, 9).Draw(t, "unknown") == 0 {
		m = append(m, `"unknown":[{"x":1,"y":"\"é"}]`)
	}
	if len(m) > 1 && rapid.IntRange(0, 2).Draw(t, "shuffle") == 0 {
		i := rapid.IntRange(1, len(m)-1).Draw(t, "with")
		m[0], m[i] = m[i], m[0]
	}
	return "{" + strings.Join(m, rapid.SampledFrom([]string{",", ", ", " ,\n    "}).Draw(t, "comma")) + "}"
}

// drawSpoiled changes one thing in a record. The result may still be valid.
func drawSpoiled(t *rapid.T, record string) string {
	i := rapid.IntRange(0, len(record)-1).Draw(t, "at")
	b := rapid.SampledFrom([]byte("{}[]\",:x9-.e \\\x00\xff")).Draw(t, "byte")
	switch rapid.IntRange(0, 3).Draw(t, "how") {
	case 0:
		return record[:i]
	case 1:
		return record[:i] + string([]byte{b}) + record[i+1:]
	case 2:
		return record[:len(record)-1] + `,"bad":}`
	}
	return record[:i] + string([]byte{b}) + record[i:]
}

// TestRollback: refused records between good ones leave nothing in the chunk, not even in dictionaries, and all values
// are those of the oracle.
func TestRollback(t *testing.T) {
	refused, lucky, dictionaries := 0, 0, 0
	rapid.Check(t, func(t *rapid.T) {
		s := drawSchema(t)
		distinct := rapid.SampledFrom([]int{0, 5, maxDistinct, maxDistinct}).Draw(t, "limit")
		clean, err := JSON{}.newDecoder(s, distinct)
		if err != nil {
			t.Fatal(err)
		}
		dirty, err := JSON{}.newDecoder(s, distinct)
		if err != nil {
			t.Fatal(err)
		}
		for range 2 { // two chunks of one decoder
			var rows [][]any
			good := func(text string, want []any) {
				if err := clean.addValue([]byte(text)); err != nil {
					t.Fatal(err)
				}
				rows = append(rows, want)
			}
			values := rapid.SampledFrom([]int{1, 2, 3, 20}).Draw(t, "values")
			for range rapid.IntRange(0, 12).Draw(t, "records") {
				record := drawObject(t, s.Fields()[4:], values)
				for range rapid.IntRange(0, 2).Draw(t, "spoiled") {
					bad := drawSpoiled(t, record)
					if rapid.Bool().Draw(t, "other") { // spoils another record instead, whose values are new
						bad = drawSpoiled(t, drawObject(t, s.Fields()[4:], 1_000_000))
					}
					want, err := oracle(s, JSON{}, []byte(bad))
					if got := dirty.addValue([]byte(bad)); (got == nil) != (err == nil) {
						t.Fatalf("%s\n   got: %v\noracle: %v", bad, got, err)
					}
					if err != nil {
						refused++
						continue
					}
					good(bad, want)
					lucky++
				}
				want, err := oracle(s, JSON{}, []byte(record))
				if err != nil {
					t.Fatalf("%s: %v", record, err)
				}
				if err := dirty.addValue([]byte(record)); err != nil {
					t.Fatalf("%s: %v", record, err)
				}
				good(record, want)
			}
			if clean.Rows() != dirty.Rows() || !reflect.DeepEqual(clean.Ignored(), dirty.Ignored()) {
				t.Fatal("counts differ")
			}
			a, b := clean.Seal(), dirty.Seal()
			if a == nil || b == nil {
				if len(rows) > 0 || a != nil || b != nil {
					t.Fatal("no rows")
				}
				continue
			}
			// With a limit of 5 distinct values, a refused record may be the one at which the dictionary is dropped.
			// Then the chunks have equal values, but not equal types.
			if distinct != 5 && (!array.RecordEqual(a, b) || fmt.Sprint(a) != fmt.Sprint(b)) {
				t.Fatalf("chunks differ\n%v\n%v", a, b)
			}
			for i, want := range rows {
				if got := rowOf(b, i)[4:]; !same(got, want) {
					t.Fatalf("row %d\n got %v\nwant %v", i, got, want)
				}
			}
			for _, c := range b.Columns() {
				valid(t, c)
				if c.DataType().ID() == arrow.DICTIONARY {
					dictionaries++
				}
			}
		}
	})
	t.Logf("%d refused, %d spoiled and still good, %d dictionary columns", refused, lucky, dictionaries)
	if refused == 0 || lucky == 0 || dictionaries == 0 {
		t.Error("the property was not tried")
	}
}

// TestRollbackOfLargeRecord: a refused large record does not add to the size that the builder reports.
func TestRollbackOfLargeRecord(t *testing.T) {
	d := open(t, parse(t, "s string, l array<string>"), JSON{}, maxDistinct)
	if err := d.addValue([]byte(`{"s":"x"}`)); err != nil {
		t.Fatal(err)
	}
	before := d.Bytes()
	large := `{"s":"` + strings.Repeat("y", 100_000) + `","l":[` + strings.Repeat(`"zzzzzzzzzzzzzzzzzzzzzzzzzzzzzzz",`, 10_000) + `}`
	if err := d.addValue([]byte(large)); err == nil || d.Bytes() != before {
		t.Fatalf("%v, %d bytes instead of %d", err, d.Bytes(), before)
	}
	var b connector.Builder = d
	if b.Seal().NumRows() != 1 {
		t.Fatal("rows")
	}
}
