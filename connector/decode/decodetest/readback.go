package decodetest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector/schema"
)

// Canonical returns a JSON record in a form that depends on its values only: without null fields, with sorted names, each
// integer in one spelling, and each number that a double takes as that double.
func Canonical(record []byte) (string, error) {
	tree, err := parsed(record)
	if err != nil {
		return "", err
	}
	text, err := json.Marshal(tree)
	return string(text), err
}

func parsed(text []byte) (any, error) {
	d := json.NewDecoder(bytes.NewReader(text))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, fmt.Errorf("%.200s: %w", text, err)
	}
	return canonical(tree), nil
}

func canonical(v any) any {
	switch v := v.(type) {
	case json.Number:
		return number(v.String())
	case []any:
		for i := range v {
			v[i] = canonical(v[i])
		}
	case map[string]any:
		for name, value := range v {
			if value == nil {
				delete(v, name)
				continue
			}
			v[name] = canonical(value)
		}
	}
	return v
}

// number returns a text that is the same for equal numbers.
func number(text string) string {
	switch k, _ := schema.NumberKind(text); k { //nolint:exhaustive // other texts stay as they are
	case schema.IntegerValue, schema.LongValue:
		if i, err := strconv.ParseInt(text, 10, 64); err == nil {
			return strconv.FormatInt(i, 10)
		}
		if f, err := strconv.ParseFloat(text, 64); err == nil && k == schema.IntegerValue {
			return strconv.FormatInt(int64(f), 10)
		}
	case schema.FractionValue:
		if f, err := strconv.ParseFloat(text, 64); err == nil {
			return double(f)
		}
	}
	return text
}

// double returns the text of a number that a double has.
func double(f float64) string {
	const limit = 1 << 63
	if f == math.Trunc(f) && math.Abs(f) < limit {
		return strconv.FormatInt(int64(f), 10)
	}
	return strconv.FormatFloat(f, 'g', -1, 64)
}

// ReadBack returns the records, in the form of [Canonical], of which a decoder has made rows: the values of the columns,
// and those in schema.Rescued. It takes columns of the types that are inferred.
func ReadBack(s *schema.Schema, rows arrow.RecordBatch) (records []string, err error) {
	fields := map[string]schema.Field{}
	for _, f := range s.Fields() {
		fields[f.Name] = f
	}
	for row := range int(rows.NumRows()) {
		record := map[string]any{}
		var rescued []byte
		for i, f := range rows.Schema().Fields() {
			column := rows.Column(i)
			switch {
			case column.IsNull(row), schema.IsKafkaColumn(f.Name):
			case f.Name == schema.Rescued:
				rescued = []byte(column.ValueStr(row))
			default:
				of, ok := fields[f.Name]
				if !ok {
					return nil, fmt.Errorf("column %s is not in the schema", f.Name)
				}
				if record[of.Source()], err = fieldAt(of, column, row); err != nil {
					return nil, err
				}
			}
		}
		if rescued != nil {
			err := schema.RescuedFields(rescued, func(path string, value []byte) error {
				steps, err := schema.ParseRescuedPath(path)
				if err != nil {
					return fmt.Errorf("%s: %w", path, err)
				}
				tree, err := parsed(value)
				if err != nil {
					return err
				}
				return put(record, steps, tree)
			})
			if err != nil {
				return nil, err
			}
		}
		text, err := json.Marshal(record)
		if err != nil {
			return nil, err
		}
		records = append(records, string(text))
	}
	return records, nil
}

// put sets the value at a path. The objects and lists on the way exist.
func put(in map[string]any, steps []schema.RescuedStep, value any) error {
	var at any = in
	for i, s := range steps {
		if s.Index >= 0 {
			list, ok := at.([]any)
			if !ok || s.Index >= len(list) {
				return fmt.Errorf("%v: there is no list with the element %d", steps, s.Index)
			}
			at = list[s.Index]
			continue
		}
		object, ok := at.(map[string]any)
		if !ok {
			return fmt.Errorf("%v: there is no object with the field %q", steps, s.Name)
		}
		if i == len(steps)-1 {
			if _, twice := object[s.Name]; twice {
				return fmt.Errorf("%v: the field has a value already", steps)
			}
			object[s.Name] = value
		}
		at = object[s.Name]
	}
	return nil
}

func fieldAt(f schema.Field, a arrow.Array, row int) (any, error) {
	if f.Raw() {
		return parsed([]byte(a.ValueStr(row)))
	}
	return valueAt(f.Type, a, row)
}

func valueAt(t schema.Type, a arrow.Array, row int) (any, error) {
	if a.IsNull(row) {
		return nil, nil
	}
	switch a := a.(type) {
	case *array.Boolean:
		return a.Value(row), nil
	case *array.Int64:
		return strconv.FormatInt(a.Value(row), 10), nil
	case *array.Int32:
		return strconv.FormatInt(int64(a.Value(row)), 10), nil
	case *array.Float64:
		return double(a.Value(row)), nil
	case *array.String, *array.Dictionary:
		return a.ValueStr(row), nil
	case *array.List:
		from, to := a.ValueOffsets(row)
		list := []any{}
		for i := from; i < to; i++ {
			v, err := valueAt(*t.Element, a.ListValues(), int(i))
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		return list, nil
	case *array.Map:
		from, to := a.ValueOffsets(row)
		object := map[string]any{}
		for i := int(from); i < int(to); i++ {
			v, err := valueAt(*t.Element, a.Items(), i)
			if err != nil {
				return nil, err
			}
			object[a.Keys().ValueStr(i)] = v
		}
		return object, nil
	case *array.Struct:
		fields, object := map[string]schema.Field{}, map[string]any{}
		for _, f := range t.Fields {
			fields[f.Name] = f
		}
		for i, f := range a.DataType().(*arrow.StructType).Fields() {
			of, ok := fields[f.Name]
			switch {
			case !ok:
				return nil, fmt.Errorf("field %s is not in the schema", f.Name)
			case a.Field(i).IsNull(row):
				continue
			}
			v, err := fieldAt(of, a.Field(i), row)
			if err != nil {
				return nil, err
			}
			object[of.Source()] = v
		}
		return object, nil
	}
	return nil, fmt.Errorf("a column of type %s", a.DataType())
}

// RandomRecord returns a record whose fields have kinds that other random records seldom contradict, hostile names among
// them.
func RandomRecord(r *rand.Rand) []byte {
	return []byte(randomObject(r, 3, names))
}

var names = []string{
	"a", "b", "c", "A", "", "a b", "a,b", "s.y", "l[0]", "`", "``x", "_rescued", "_RESCUED", "_kafka_offset", "_kafka_topic", "ü", "q\"uo\\te", "nul\x00",
	strings.Repeat("long", 80), "e", "d",
}

func randomObject(r *rand.Rand, depth int, names []string) string {
	var parts []string
	for _, i := range r.Perm(len(names))[:r.IntN(min(len(names), 7))] {
		name, _ := json.Marshal(names[i]) // a text
		parts = append(parts, string(name)+":"+randomValue(r, i, depth-1))
	}
	return "{" + strings.Join(parts, ",") + "}"
}

// randomValue returns a value of the kind that most values of the i-th field have, sometimes of another.
func randomValue(r *rand.Rand, i, depth int) string {
	kind := i % 9
	if r.IntN(12) == 0 {
		kind = r.IntN(9)
	}
	if r.IntN(8) == 0 {
		return "null"
	}
	if depth <= 0 && kind >= 5 {
		kind %= 5
	}
	switch kind {
	case 0:
		return strconv.FormatBool(r.IntN(2) == 0)
	case 1:
		return []string{"1e3", "7.0", "-0", strconv.FormatInt(r.Int64()-r.Int64(), 10), strconv.Itoa(r.IntN(100))}[r.IntN(5)]
	case 2:
		return []string{"1", "2.5", "-1.25e-3", "1e300"}[r.IntN(4)]
	case 3:
		return []string{`"text"`, `""`, `"2026-01-31"`, `"\u0000é"`}[r.IntN(4)]
	case 4:
		return []string{"12345678901234567890", "1e309", "9007199254740993", "0.5", "true", `"x"`}[r.IntN(6)]
	case 5, 6:
		return randomObject(r, depth, names[:6])
	}
	parts := make([]string, r.IntN(4))
	for n := range parts {
		parts[n] = randomValue(r, i+8, depth-1)
	}
	return "[" + strings.Join(parts, ", ") + "]"
}
