package main

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
)

// A kind is a type without nested types. A new one is an entry in [kinds] and the methods that its values need in
// [appendValue].
//
// Values are nil, bool, int64 (integers, days, microseconds), float64, string (texts, and digits of a decimal), []byte,
// []any (the fields of a struct, the elements of an array) and pairs (of a map).
type kind struct {
	name string // the name in the DDL and in the report
	// special are the values at which engines and statistics differ.
	special []any
	random  func(*rand.Rand) any
	// text is the value as JSON in a record. ok is false if JSON cannot express it.
	text func(any) (text string, ok bool)
	// canon is the value as JSON in the expectation.
	canon func(any) any
}

// pairs are the keys and values of a map.
type pairs [][2]any

func integer(name string, bits int) kind {
	low, high := int64(-1)<<(bits-1), int64(1)<<(bits-1)-1
	return kind{
		name: name, special: []any{low, high, low + 1, high - 1, int64(0), int64(-1), int64(1)},
		random: func(r *rand.Rand) any { return int64(r.Uint64()) >> (64 - 1 - r.IntN(bits)) },
		text:   func(v any) (string, bool) { return strconv.FormatInt(v.(int64), 10), true },
		canon:  func(v any) any { return v },
	}
}

// quietNaN are the bits of NaN in most languages. Go's math.NaN has others, and DataFusion compares the bits.
const quietNaN = 0x7FF8000000000000

func floating(name string, bits int) kind {
	special := []any{
		0.0, math.Copysign(0, -1), 1.0, -1.0, 0.1, 1e10, -2.5, 9007199254740993.0,
		math.Float64frombits(quietNaN), math.Inf(1), math.Inf(-1),
	}
	random := func(r *rand.Rand) float64 { return math.Float64frombits(r.Uint64()) }
	if bits == 32 {
		special = append(special, math.SmallestNonzeroFloat32, -math.MaxFloat32, math.MaxFloat32)
		random = func(r *rand.Rand) float64 { return float64(math.Float32frombits(r.Uint32())) }
	} else {
		special = append(special, math.SmallestNonzeroFloat64, -math.MaxFloat64, math.MaxFloat64, 5e-310)
	}
	for i, v := range special {
		if bits == 32 {
			special[i] = float64(float32(v.(float64)))
		}
	}
	return kind{
		name: name, special: special,
		random: func(r *rand.Rand) any {
			if r.IntN(3) > 0 {
				return float64(r.IntN(2000)-1000) / 8
			}
			if v := random(r); !math.IsNaN(v) {
				return v
			}
			return 0.5
		},
		text: func(v any) (string, bool) {
			x := v.(float64)
			return strconv.FormatFloat(x, 'g', -1, bits), !math.IsNaN(x) && !math.IsInf(x, 0)
		},
		canon: func(v any) any {
			if math.IsNaN(v.(float64)) {
				return "nan"
			}
			return fmt.Sprintf("%016x", math.Float64bits(v.(float64)))
		},
	}
}

func text(v any) (string, bool) {
	b, err := json.Marshal(v)
	return string(b), err == nil
}

func same(v any) any { return v }

const (
	family   = "\U0001F468\u200d\U0001F469\u200d\U0001F467"
	last     = "\U0010FFFF"
	arabic   = "مرحبا"
	accented = "e\u0301clair"
)

var texts = kind{
	name: "string",
	special: func() []any {
		a31 := strings.Repeat("a", 31)
		return []any{
			"", "a", " ", "~", "null", "NaN", "__HIVE_DEFAULT_PARTITION__", "nul\x00char", "\x00", "\x7f", "quote'\"\\", "line\nend\t",
			a31, a31 + "b", a31 + "bc", a31 + "b~", a31 + "b\x7f", a31 + "b" + last, a31 + "b" + last + last + "c", a31 + family, a31 + last,
			strings.Repeat(last, 16), strings.Repeat(last, 17), strings.Repeat(last, 32), strings.Repeat(last, 40), strings.Repeat("\u00e9", 40),
			family, arabic, accented, "\ufeffbom", "\uffff", "\ue000", "\U00010000",
		}
	}(),
	random: func(r *rand.Rand) any {
		letters := []rune("abcXYZ019 _-%/é漢😀")
		s := make([]rune, r.IntN([]int{3, 12, 45}[r.IntN(3)]+1))
		for i := range s {
			s[i] = letters[r.IntN(len(letters))]
		}
		return string(s)
	},
	text: text, canon: same,
}

const microsPerDay = 86_400_000_000

func instant(text string) int64 {
	t, err := time.Parse(time.RFC3339Nano, text)
	if err != nil {
		panic(err)
	}
	return t.UnixMicro()
}

func day(text string) int64 { return instant(text+"T00:00:00Z") / microsPerDay }

var dates = kind{
	name: "date",
	special: []any{
		day("0000-03-01"), day("0001-01-01"), day("1582-10-04"), day("1582-10-15"), day("1969-12-31"), day("1970-01-01"), day("2000-02-29"), day("9999-12-31"),
	},
	random: func(r *rand.Rand) any { return int64(r.IntN(40000) - 5000) },
	text: func(v any) (string, bool) {
		return time.UnixMicro(v.(int64) * microsPerDay).UTC().Format(`"2006-01-02"`), true
	},
	canon: same,
}

func instants(name, layout string) kind {
	return kind{
		name: name,
		special: []any{
			instant("0000-01-01T00:00:00Z"), instant("0001-01-01T00:00:00Z"), instant("0001-01-01T00:00:00.000001Z"), instant("1582-10-04T23:59:59.999999Z"),
			instant("1969-12-31T23:59:59.999999Z"), int64(0), int64(1), int64(-1), int64(999), int64(1000), int64(-1001),
			instant("2025-03-30T00:59:59.999999Z"), instant("2025-03-30T01:00:00Z"), instant("2025-10-26T01:30:00Z"),
			instant("9999-12-31T23:59:59.999Z"), instant("9999-12-31T23:59:59.998001Z"), instant("9999-12-31T23:59:59.999999Z"),
		},
		random: func(r *rand.Rand) any {
			if r.IntN(2) == 0 {
				return instant("2025-06-01T12:00:00.123Z") + int64(r.IntN(5000)) // equal in milliseconds, different below
			}
			return r.Int64N(4e15) - 1e15
		},
		text:  func(v any) (string, bool) { return time.UnixMicro(v.(int64)).UTC().Format(layout), true },
		canon: same,
	}
}

var booleans = kind{
	name: "boolean", special: []any{true, false},
	random: func(r *rand.Rand) any { return r.IntN(2) == 0 },
	text:   text, canon: same,
}

var binaries = kind{
	name: "binary",
	special: func() []any {
		all := make([]byte, 256)
		for i := range all {
			all[i] = byte(i)
		}
		return []any{[]byte{}, []byte{0}, []byte{0xff}, []byte("text"), all}
	}(),
	random: func(r *rand.Rand) any {
		b := make([]byte, r.IntN(20))
		for i := range b {
			b[i] = byte(r.Uint32())
		}
		return b
	},
	text:  func(v any) (string, bool) { return text(base64.StdEncoding.EncodeToString(v.([]byte))) },
	canon: func(v any) any { return hex.EncodeToString(v.([]byte)) },
}

// decimals are numbers of precision digits, scale of them after the point.
func decimals(precision, scale int) kind {
	digits := func(n *big.Int) string {
		s := new(big.Int).Abs(n).String()
		if len(s) <= scale {
			s = strings.Repeat("0", scale+1-len(s)) + s
		}
		if scale > 0 {
			s = s[:len(s)-scale] + "." + s[len(s)-scale:]
		}
		if n.Sign() < 0 {
			s = "-" + s
		}
		return s
	}
	limit := new(big.Int).Exp(big.NewInt(10), big.NewInt(int64(precision)), nil)
	high := new(big.Int).Sub(limit, big.NewInt(1))
	return kind{
		name:    fmt.Sprintf("decimal(%d,%d)", precision, scale),
		special: []any{digits(high), digits(new(big.Int).Neg(high)), digits(big.NewInt(0)), digits(big.NewInt(1)), digits(big.NewInt(-1))},
		random: func(r *rand.Rand) any {
			n := new(big.Int).Lsh(new(big.Int).SetUint64(r.Uint64()), uint(r.IntN(64)))
			n.Mod(n, limit)
			if r.IntN(2) == 0 {
				n.Neg(n)
			}
			return digits(n)
		},
		text:  func(v any) (string, bool) { return v.(string), true },
		canon: same,
	}
}

// kinds are all kinds, also those that this version of the product does not write: those are reported and left out.
func kinds() []kind {
	return []kind{
		texts, integer("bigint", 64), integer("int", 32), integer("smallint", 16), integer("tinyint", 8),
		floating("double", 64), floating("float", 32), booleans, dates, instants("timestamp", `"2006-01-02T15:04:05.000000Z"`),
		instants("timestamp_ntz", `"2006-01-02T15:04:05.000000"`), binaries,
		decimals(1, 0), decimals(9, 2), decimals(18, 2), decimals(19, 0), decimals(38, 0), decimals(38, 18), decimals(38, 38),
	}
}

// A typ is the type of a column: of one kind, a struct, an array or a map.
type typ struct {
	kind    *kind
	fields  []column // of a struct
	element *typ     // of an array; the values of a map
	key     *typ     // of a map
}

type column struct {
	name     string // the field of a record
	typ      typ
	required bool
	table    string // the name in the table if it is not name
}

// col returns a nullable column.
func col(name string, t typ) column { return column{name: name, typ: t} }

// inTable is the name of the column in the table.
func (c column) inTable() string {
	if c.table != "" {
		return c.table
	}
	return c.name
}

func (c column) ddl() string {
	s := "`" + strings.ReplaceAll(c.name, "`", "``") + "` " + c.typ.ddl()
	if c.required {
		s += " not null"
	}
	if c.table != "" {
		s += " comment 'renamed'"
	}
	return s
}

func (t typ) ddl() string {
	switch {
	case t.kind != nil:
		return t.kind.name
	case t.key != nil:
		return "map<" + t.key.ddl() + ", " + t.element.ddl() + ">"
	case t.element != nil:
		return "array<" + t.element.ddl() + ">"
	}
	list := make([]string, len(t.fields))
	for i, f := range t.fields {
		list[i] = f.ddl()
	}
	return "struct<" + strings.Join(list, ", ") + ">"
}

// canon returns a value as in the expectation.
func (t typ) canon(v any) any {
	if v == nil {
		return nil
	}
	if t.kind != nil {
		return t.kind.canon(v)
	}
	list := []any{}
	switch v := v.(type) {
	case pairs:
		for _, p := range v {
			list = append(list, []any{t.key.canon(p[0]), t.element.canon(p[1])})
		}
		slices.SortFunc(list, func(a, b any) int {
			ka, _ := text(a.([]any)[0])
			kb, _ := text(b.([]any)[0])
			return strings.Compare(ka, kb)
		})
	case []any:
		for i, v := range v {
			if t.element != nil {
				list = append(list, t.element.canon(v))
			} else {
				list = append(list, t.fields[i].typ.canon(v))
			}
		}
	}
	return list
}

// appendValue appends a value to an Arrow array.
func appendValue(to array.Builder, v any) {
	if v == nil {
		to.AppendNull()
		return
	}
	switch b := to.(type) {
	case *array.BooleanBuilder:
		b.Append(v.(bool))
	case *array.Int8Builder:
		b.Append(int8(v.(int64)))
	case *array.Int16Builder:
		b.Append(int16(v.(int64)))
	case *array.Int32Builder:
		b.Append(int32(v.(int64)))
	case *array.Int64Builder:
		b.Append(v.(int64))
	case *array.Date32Builder:
		b.Append(arrow.Date32(v.(int64)))
	case *array.TimestampBuilder:
		b.Append(arrow.Timestamp(v.(int64)))
	case *array.Float32Builder:
		b.Append(float32(v.(float64)))
	case *array.Float64Builder:
		b.Append(v.(float64))
	case *array.StringBuilder:
		b.Append(v.(string))
	case *array.BinaryBuilder:
		b.Append(v.([]byte))
	case *array.Decimal128Builder:
		unscaled, ok := new(big.Int).SetString(strings.Replace(v.(string), ".", "", 1), 10)
		if !ok {
			panic("decimal " + v.(string))
		}
		b.Append(decimal128.FromBigInt(unscaled))
	case *array.StructBuilder:
		b.Append(true)
		for i, f := range v.([]any) {
			appendValue(b.FieldBuilder(i), f)
		}
	case *array.MapBuilder:
		b.Append(true)
		for _, p := range v.(pairs) {
			appendValue(b.KeyBuilder(), p[0])
			appendValue(b.ItemBuilder(), p[1])
		}
	case *array.ListBuilder:
		b.Append(true)
		for _, e := range v.([]any) {
			appendValue(b.ValueBuilder(), e)
		}
	default:
		panic(fmt.Sprintf("%T", to))
	}
}
