package decode

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/go-json-experiment/json/jsontext"

	"sluice/connector/schema"
)

// The oracle parses a record into a tree with another strict parser and applies the rules of this package to the tree
// with the standard library, slowly.

// literal is the text of a number.
type literal string

var errRefused = errors.New("refused")

// oracle returns the values that the record's row should have, without the Kafka columns, or the error for which the
// decoder should refuse the record.
func oracle(s *schema.Schema, options JSON, record []byte) ([]any, error) {
	d := jsontext.NewDecoder(bytes.NewReader(record)) // refuses repeated names and invalid UTF-8 by default
	tree, err := readTree(d)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing bytes")
	}
	v, err := typed(schema.Type{Kind: schema.Struct, Fields: s.Fields()[4:]}, options, tree)
	if err != nil {
		return nil, err
	}
	row, ok := v.([]any)
	if !ok {
		return nil, errRefused
	}
	return row, nil
}

func readTree(d *jsontext.Decoder) (any, error) {
	t, err := d.ReadToken()
	if err != nil {
		return nil, err
	}
	switch t.Kind() {
	case jsontext.KindNull:
		return nil, nil
	case jsontext.KindTrue, jsontext.KindFalse:
		return t.Bool(), nil
	case jsontext.KindString:
		return t.String(), nil
	case jsontext.KindNumber:
		return literal(t.String()), nil
	case jsontext.KindBeginArray:
		list := []any{}
		for d.PeekKind() != ']' {
			v, err := readTree(d)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.ReadToken()
		return list, err
	case jsontext.KindBeginObject:
		m := map[string]any{}
		for d.PeekKind() != '}' {
			k, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			name := k.String()
			if m[name], err = readTree(d); err != nil {
				return nil, err
			}
		}
		_, err := d.ReadToken()
		return m, err
	case jsontext.KindInvalid, jsontext.KindEndObject, jsontext.KindEndArray:
	}
	return nil, errRefused
}

var (
	integerText = regexp.MustCompile(`^-?[0-9]+$`)
	timeText    = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d+))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)$`)
)

func typed(t schema.Type, options JSON, v any) (any, error) {
	switch v := v.(type) {
	case string:
		if t.Kind == schema.String {
			return v, nil
		}
		if t.Kind == schema.Date {
			at, err := time.Parse("2006-01-02", v)
			return at.Unix() / 86400, err
		}
		if t.Kind == schema.Timestamp {
			return oracleTime(v, options.TruncateTime)
		}
	case bool:
		if t.Kind == schema.Boolean {
			return v, nil
		}
	case literal:
		return oracleNumber(t.Kind, string(v))
	case []any:
		if t.Kind != schema.Array {
			break
		}
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = typedField(*t.Element, t.ElementNullable, options, e); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]any:
		if t.Kind != schema.Struct {
			break
		}
		for name := range v {
			if options.Strict && !slices.ContainsFunc(t.Fields, func(f schema.Field) bool { return f.Name == name }) {
				return nil, errRefused
			}
		}
		out := make([]any, len(t.Fields))
		for i, f := range t.Fields {
			var err error
			if out[i], err = typedField(f.Type, f.Nullable, options, v[f.Name]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, errRefused
}

func typedField(t schema.Type, nullable bool, options JSON, v any) (any, error) {
	if v != nil {
		return typed(t, options, v)
	}
	if !nullable {
		return nil, errRefused
	}
	return nil, nil
}

var integerBits = [...]int{schema.Byte: 8, schema.Short: 16, schema.Integer: 32, schema.Long: 64, schema.Array: 0}

func oracleNumber(k schema.Kind, text string) (any, error) {
	if k == schema.Double {
		return strconv.ParseFloat(text, 64)
	}
	if k == schema.Float {
		return strconv.ParseFloat(text, 32)
	}
	if integerBits[k] == 0 || !integerText.MatchString(text) {
		return nil, errRefused
	}
	return strconv.ParseInt(text, 10, integerBits[k])
}

func oracleTime(text string, truncate bool) (any, error) {
	m := timeText.FindStringSubmatch(text)
	if m == nil {
		return nil, errRefused
	}
	at, err := time.Parse(time.RFC3339, m[1]+"T"+m[2]+strings.ToUpper(m[4]))
	if err != nil {
		return nil, err
	}
	fraction := m[3] + "000000"
	if strings.Trim(fraction[6:], "0") != "" && !truncate {
		return nil, errRefused
	}
	micros, err := strconv.ParseInt(fraction[:6], 10, 64)
	return at.Unix()*1e6 + micros, err
}

// rowOf returns row i of a batch, including the Kafka columns.
func rowOf(batch arrow.RecordBatch, i int) []any {
	row := make([]any, batch.NumCols())
	for c := range row {
		row[c] = valueOf(batch.Column(c), i)
	}
	return row
}

func valueOf(a arrow.Array, i int) any {
	if a.IsNull(i) {
		return nil
	}
	switch a := a.(type) {
	case *array.String:
		return a.Value(i)
	case *array.Dictionary:
		return a.Dictionary().(*array.String).Value(a.GetValueIndex(i))
	case *array.Boolean:
		return a.Value(i)
	case *array.Int8:
		return int64(a.Value(i))
	case *array.Int16:
		return int64(a.Value(i))
	case *array.Int32:
		return int64(a.Value(i))
	case *array.Int64:
		return a.Value(i)
	case *array.Float32:
		return float64(a.Value(i))
	case *array.Float64:
		return a.Value(i)
	case *array.Date32:
		return int64(a.Value(i))
	case *array.Timestamp:
		return int64(a.Value(i))
	case *array.List:
		from, to := a.ValueOffsets(i)
		out := make([]any, to-from)
		for k := range out {
			out[k] = valueOf(a.ListValues(), int(from)+k)
		}
		return out
	case *array.Struct:
		out := make([]any, a.NumField())
		for k := range out {
			out[k] = valueOf(a.Field(k), i)
		}
		return out
	}
	panic(fmt.Sprintf("%T", a))
}

// same is reflect.DeepEqual, except that it takes -0 and 0 for different.
func same(a, b []any) bool {
	return reflect.DeepEqual(a, b) && fmt.Sprint(a...) == fmt.Sprint(b...)
}

// valid checks what Arrow's own constructors do not check: offsets, lengths of children, null counts and UTF-8.
func valid(t interface {
	Helper()
	Fatal(args ...any)
}, a arrow.Array,
) {
	t.Helper()
	nulls := 0
	for i := range a.Len() {
		if a.IsNull(i) {
			nulls++
		}
	}
	if nulls != a.NullN() {
		t.Fatal("null count", a.NullN(), "has", nulls)
	}
	switch a := a.(type) {
	case *array.Dictionary:
		if a.Dictionary().Len() == 0 || a.Dictionary().NullN() > 0 {
			t.Fatal("dictionary without entries or with null")
		}
		for i := range a.Len() {
			if v := a.GetValueIndex(i); v < 0 || v >= a.Dictionary().Len() {
				t.Fatal("index out of range")
			}
		}
		valid(t, a.Dictionary())
	case *array.List:
		if from, to := a.Offsets()[0], a.Offsets()[a.Len()]; from != 0 || int(to) != a.ListValues().Len() {
			t.Fatal("list offsets", from, to, a.ListValues().Len())
		}
		valid(t, a.ListValues())
		if !a.DataType().(*arrow.ListType).ElemField().Nullable && a.ListValues().NullN() > 0 {
			t.Fatal("null elements where none may be")
		}
	case *array.Struct:
		for i := range a.NumField() {
			if a.Field(i).Len() != a.Len() {
				t.Fatal("length of a struct field")
			}
			// Below a null struct a NOT NULL field has no value and no null of its own.
			if !a.DataType().(*arrow.StructType).Field(i).Nullable && a.Field(i).NullN() > 0 {
				t.Fatal("null fields where none may be")
			}
			valid(t, a.Field(i))
		}
	case *array.String:
		for i := range a.Len() {
			_ = a.Value(i)
		}
	}
}

// checkSchema compares a batch with the table's Arrow schema. A dictionary counts as the type of its values.
func checkSchema(t *testing.T, s *schema.Schema, batch arrow.RecordBatch) {
	t.Helper()
	want := s.Arrow()
	if got := arrow.NewSchema(plainFields(batch.Schema().Fields()), nil); !got.Equal(want) {
		t.Fatalf("rows have\n%v\nwant\n%v", got, want)
	}
}

func plainFields(fields []arrow.Field) []arrow.Field {
	out := make([]arrow.Field, len(fields))
	for i, f := range fields {
		f.Type = plainType(f.Type)
		out[i] = f
	}
	return out
}

func plainType(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.DictionaryType:
		return t.ValueType
	case *arrow.StructType:
		return arrow.StructOf(plainFields(t.Fields())...)
	case *arrow.ListType:
		return arrow.ListOfField(plainFields([]arrow.Field{t.ElemField()})[0])
	}
	return t
}

// sizeOf returns the length of all buffers of an array and its children.
func sizeOf(a arrow.Array) (size int64) {
	for _, b := range a.Data().Buffers() {
		if b != nil {
			size += int64(b.Len())
		}
	}
	switch a := a.(type) {
	case *array.Dictionary:
		size += sizeOf(a.Dictionary())
	case *array.List:
		size += sizeOf(a.ListValues())
	case *array.Struct:
		for i := range a.NumField() {
			size += sizeOf(a.Field(i))
		}
	}
	return size
}
