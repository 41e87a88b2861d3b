package decode

import (
	"bytes"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"math/big"
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
	tree, err := readTree(d, record)
	if err != nil {
		return nil, err
	}
	if _, err := d.ReadToken(); !errors.Is(err, io.EOF) {
		return nil, errors.New("trailing bytes")
	}
	v, err := typed(schema.Type{Kind: schema.Struct, Fields: s.Fields()[4:]}, options, "", tree)
	if err != nil {
		return nil, err
	}
	row, ok := v.([]any)
	if !ok {
		return nil, errRefused
	}
	return row, nil
}

// node is a value with its text.
type node struct {
	value any
	text  string
}

func readTree(d *jsontext.Decoder, record []byte) (node, error) {
	from := d.InputOffset()
	v, err := readValue(d, record)
	return node{v, strings.TrimLeft(string(record[from:d.InputOffset()]), " \t\r\n,:")}, err
}

func readValue(d *jsontext.Decoder, record []byte) (any, error) {
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
		list := []node{}
		for d.PeekKind() != ']' {
			v, err := readTree(d, record)
			if err != nil {
				return nil, err
			}
			list = append(list, v)
		}
		_, err := d.ReadToken()
		return list, err
	case jsontext.KindBeginObject:
		m := map[string]node{}
		for d.PeekKind() != '}' {
			k, err := d.ReadToken()
			if err != nil {
				return nil, err
			}
			name := k.String()
			if m[name], err = readTree(d, record); err != nil {
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
	numberText = regexp.MustCompile(`^-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?$`)
	timeText   = regexp.MustCompile(`^(\d{4}-\d\d-\d\d)[Tt ]((?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d)(?:\.(\d+))?([Zz]|[+-](?:[01]\d|2[0-3]):[0-5]\d)?$`)
)

// typed returns the value of a tree for a type. path is the path of the column in options.
func typed(t schema.Type, options JSON, path string, n node) (any, error) {
	option := options.Columns[path]
	if t.Element != nil {
		option = ColumnOption{}
	}
	if option.Raw {
		return n.text, nil
	}
	switch v := n.value.(type) {
	case string:
		if t.Kind == schema.String {
			return v, nil
		}
		if t.Kind == schema.Binary {
			return oracleBinary(v, option.Encoding)
		}
		if t.Kind == schema.Decimal && numberText.MatchString(v) {
			return oracleNumber(t, option, v)
		}
		if t.Kind == schema.Date {
			at, err := time.Parse("2006-01-02", v)
			return at.Unix() / 86400, err
		}
		if t.Kind == schema.Timestamp && option.Epoch == "" {
			return oracleTime(v, option)
		}
	case bool:
		if t.Kind == schema.Boolean {
			return v, nil
		}
	case literal:
		return oracleNumber(t, option, string(v))
	case []node:
		if t.Kind != schema.Array {
			break
		}
		out := make([]any, len(v))
		for i, e := range v {
			var err error
			if out[i], err = typedField(*t.Element, t.ElementNullable, options, path, e); err != nil {
				return nil, err
			}
		}
		return out, nil
	case map[string]node:
		if t.Kind == schema.Map {
			out := map[string]any{}
			for name, e := range v {
				var err error
				if out[name], err = typedField(*t.Element, t.ElementNullable, options, path, e); err != nil {
					return nil, err
				}
			}
			return out, nil
		}
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
			if out[i], err = typedField(f.Type, f.Nullable, options, strings.TrimPrefix(path+"."+f.Name, "."), v[f.Name]); err != nil {
				return nil, err
			}
		}
		return out, nil
	}
	return nil, errRefused
}

func typedField(t schema.Type, nullable bool, options JSON, path string, n node) (any, error) {
	if n.value != nil {
		return typed(t, options, path, n)
	}
	if !nullable {
		return nil, errRefused
	}
	return nil, nil
}

var integerBits = [...]int{schema.Byte: 8, schema.Short: 16, schema.Integer: 32, schema.Long: 64, schema.Map: 0}

func oracleNumber(t schema.Type, option ColumnOption, text string) (any, error) {
	if t.Kind == schema.Double {
		return strconv.ParseFloat(text, 64)
	}
	if t.Kind == schema.Float {
		return strconv.ParseFloat(text, 32)
	}
	if t.Kind == schema.Decimal {
		return oracleDecimal(t, text)
	}
	if t.Kind == schema.Timestamp && option.Epoch != "" {
		return oracleEpoch(text, option)
	}
	v, ok := exactly(text)
	if bits := integerBits[t.Kind]; bits != 0 && ok && v.IsInt() {
		return strconv.ParseInt(v.Num().String(), 10, bits)
	}
	return nil, errRefused
}

// exactly returns a number as a fraction. It returns false if its exponent is too large for math/big; no column but
// those of floats takes such numbers, unless they are 0.
func exactly(text string) (*big.Rat, bool) {
	mantissa, exponent, _ := strings.Cut(strings.ToLower(text), "e")
	if strings.Trim(mantissa, "-0.") == "" {
		return new(big.Rat), true
	}
	if n, err := strconv.Atoi(exponent); exponent != "" && (err != nil || n > 10_000 || n < -10_000) {
		return nil, false
	}
	return new(big.Rat).SetString(text)
}

func oracleDecimal(t schema.Type, text string) (any, error) {
	v, ok := exactly(text)
	if !ok {
		return nil, errRefused
	}
	ten := func(n int) *big.Rat {
		return new(big.Rat).SetInt(new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(n)), nil))
	}
	v.Mul(v, ten(t.Scale))
	if !v.IsInt() || new(big.Rat).Abs(v).Cmp(ten(t.Precision)) >= 0 {
		return nil, errRefused
	}
	return v.Num().String(), nil
}

func oracleEpoch(text string, option ColumnOption) (any, error) {
	v, ok := exactly(text)
	if !ok {
		return nil, errRefused
	}
	perSecond := map[string]int64{"s": 1, "ms": 1e3, "us": 1e6, "ns": 1e9}[option.Epoch]
	v.Mul(v, big.NewRat(1_000_000, perSecond))
	if !v.IsInt() && option.Fraction == RefuseFraction {
		return nil, errRefused
	}
	if option.Fraction == RoundFraction {
		v.Add(v, big.NewRat(1, 2))
	}
	micros := new(big.Int).Div(v.Num(), v.Denom()) // rounds down, because the denominator is positive
	at := time.UnixMicro(micros.Int64()).UTC()
	if !micros.IsInt64() || at.Year() < 0 || at.Year() > 9999 {
		return nil, errRefused
	}
	return micros.Int64(), nil
}

var base64Text = regexp.MustCompile(`^[A-Za-z0-9+/]*={0,2}$`)

func oracleBinary(text string, e Encoding) (any, error) {
	if e == Hex {
		v, err := hex.DecodeString(text)
		return string(v), err
	}
	if e == Base64URL {
		if strings.ContainsAny(text, "+/") {
			return nil, errRefused
		}
		text = strings.NewReplacer("-", "+", "_", "/").Replace(text)
		if n := len(text) % 4; n > 1 && !strings.HasSuffix(text, "=") {
			text += strings.Repeat("=", 4-n)
		}
	}
	v, err := base64.StdEncoding.DecodeString(text)
	if err != nil || !base64Text.MatchString(text) || base64.StdEncoding.EncodeToString(v) != text {
		return nil, errRefused
	}
	return string(v), nil
}

func oracleTime(text string, option ColumnOption) (any, error) {
	m := timeText.FindStringSubmatch(text)
	if m == nil {
		return nil, errRefused
	}
	if m[4] == "" {
		if !option.UTC {
			return nil, errRefused
		}
		m[4] = "Z"
	}
	at, err := time.Parse(time.RFC3339, m[1]+"T"+m[2]+strings.ToUpper(m[4]))
	if err != nil {
		return nil, err
	}
	fraction := m[3] + "000000"
	if strings.Trim(fraction[6:], "0") != "" && option.Fraction == RefuseFraction {
		return nil, errRefused
	}
	micros, err := strconv.ParseInt(fraction[:6], 10, 64)
	if fraction[6:] >= "5" && option.Fraction == RoundFraction {
		micros++
	}
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
	case *array.Decimal128:
		return a.Value(i).BigInt().String()
	case *array.Binary:
		return string(a.Value(i))
	case *array.Map:
		from, to := a.ValueOffsets(i)
		out := map[string]any{}
		for k := int(from); k < int(to); k++ {
			out[valueOf(a.Keys(), k).(string)] = valueOf(a.Items(), k)
		}
		return out
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
	case *array.Map:
		if from, to := a.Offsets()[0], a.Offsets()[a.Len()]; from != 0 || int(to) != a.Keys().Len() || int(to) != a.Items().Len() {
			t.Fatal("map offsets", from, to, a.Keys().Len(), a.Items().Len())
		}
		valid(t, a.Keys())
		valid(t, a.Items())
		if a.Keys().NullN() > 0 || !a.DataType().(*arrow.MapType).ItemField().Nullable && a.Items().NullN() > 0 {
			t.Fatal("null keys, or null values where none may be")
		}
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
	case *array.Binary:
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
	case *arrow.MapType:
		f := plainFields([]arrow.Field{t.KeyField(), t.ItemField()})
		return arrow.MapOfFields(f[0], f[1])
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
	case *array.Map:
		size += sizeOf(a.Keys()) + sizeOf(a.Items())
	case *array.List:
		size += sizeOf(a.ListValues())
	case *array.Struct:
		for i := range a.NumField() {
			size += sizeOf(a.Field(i))
		}
	}
	return size
}
