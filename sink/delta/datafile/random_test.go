package datafile

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/connector"
)

// random makes schemas, rows and pieces. It assembles arrays from buffers, so that they can have what builders never
// make: values below null structs, elements in null lists, offsets, and dictionary entries that are unused or repeated.
type random struct {
	*rand.Rand
	nulls    float64 // the share of nulls in nullable columns
	distinct uint64  // the largest number of distinct values of a column
	broken   bool    // true if strings may be invalid UTF-8
}

func newRandom(seed uint64) *random {
	r := &random{Rand: rand.New(rand.NewPCG(seed, 1))}
	r.nulls = []float64{0, 0.1, 0.5, 0.95, 1}[r.IntN(5)]
	r.distinct = []uint64{1, 3, 50, 1 << 62}[r.IntN(4)]
	r.broken = r.IntN(8) == 0
	return r
}

func (r *random) chance(oneIn int) bool { return r.IntN(oneIn) == 0 }

var (
	timestamp    = &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	timestampNTZ = &arrow.TimestampType{Unit: arrow.Microsecond}
)

func (r *random) schema() *arrow.Schema { return arrow.NewSchema(r.fields(1+r.IntN(6), 3), nil) }

// statistics selects statistics for the leaves of a schema: all, those of the first three, or any.
func (r *random) statistics(sc *arrow.Schema) func([]string) Statistics {
	switch r.IntN(3) {
	case 0:
		return nil
	case 1:
		return firstLeaves(sc, 3)
	}
	selected := map[string]Statistics{}
	for _, l := range leavesOf(sc, nil) {
		selected[strings.Join(l.path, "\x00")] = Statistics(r.IntN(3))
	}
	return func(path []string) Statistics { return selected[strings.Join(path, "\x00")] }
}

func (r *random) fields(n, depth int) []arrow.Field {
	var fields []arrow.Field
	for i := range n {
		fields = append(fields, arrow.Field{Name: string(rune('a' + i)), Type: r.typ(depth), Nullable: !r.chance(3)})
	}
	if n > 1 && r.chance(10) {
		fields[0].Name = "b.a" // if b is a struct with a field a, its dotted path is the same
	}
	return fields
}

func (r *random) typ(depth int) arrow.DataType {
	leaves := []arrow.DataType{
		arrow.FixedWidthTypes.Boolean, arrow.PrimitiveTypes.Int8, arrow.PrimitiveTypes.Int16, arrow.PrimitiveTypes.Int32,
		arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Float32, arrow.PrimitiveTypes.Float64, arrow.BinaryTypes.String,
		arrow.BinaryTypes.String, arrow.BinaryTypes.Binary, arrow.FixedWidthTypes.Date32, timestamp, timestampNTZ,
	}
	k := r.IntN(len(leaves) + 1)
	if depth > 0 {
		k = r.IntN(len(leaves) + 6)
	}
	switch {
	case k < len(leaves):
		return leaves[k]
	case k == len(leaves):
		p := 1 + r.Int32N(38)
		return &arrow.Decimal128Type{Precision: p, Scale: r.Int32N(p + 1)}
	case k < len(leaves)+3:
		return arrow.StructOf(r.fields(1+r.IntN(3), depth-1)...)
	case k < len(leaves)+5:
		return arrow.ListOfField(arrow.Field{Name: "element", Type: r.typ(depth - 1), Nullable: !r.chance(3)})
	default:
		return arrow.MapOfFields(arrow.Field{Name: "key", Type: arrow.BinaryTypes.String},
			arrow.Field{Name: "value", Type: r.typ(depth - 1), Nullable: !r.chance(3)})
	}
}

// column makes an array of n values of type t, with nulls only if nullable is true. Struct fields may be in another
// order than in t, and nullable fields may be left out.
func (r *random) column(t arrow.DataType, nullable bool, n int) arrow.Array {
	switch t := t.(type) {
	case *arrow.StructType:
		fields, children := r.row(t.Fields(), n)
		rows := r.validity(nullable, n)
		data := make([]arrow.ArrayData, len(children))
		for i, c := range children {
			data[i] = c.Data()
			if rows != nil && data[i].Buffers()[0] == nil && data[i].Offset() == 0 && r.chance(2) {
				// Builders make null structs in this way: all of their fields are null, also the required ones.
				buffers := append([]*memory.Buffer{rows}, data[i].Buffers()[1:]...)
				below := array.NewData(c.DataType(), n, buffers, data[i].Children(), array.UnknownNullCount, 0)
				if d, ok := c.(*array.Dictionary); ok {
					below.SetDictionary(d.Dictionary().Data())
				}
				data[i] = below
			}
			if !fields[i].Nullable && nullable && r.chance(2) {
				fields[i].Nullable = true // the array may declare a required field nullable, as long as it has no null
			}
		}
		return fromData(arrow.StructOf(fields...), n, []*memory.Buffer{rows}, data, array.UnknownNullCount)
	case *arrow.ListType:
		offsets, total := r.offsets(n)
		element := t.ElemField()
		values := r.maybeDictionary(r.column(element.Type, element.Nullable, total))
		element.Type = values.DataType()
		if r.chance(2) {
			element.Name = "item"
		}
		buffers := []*memory.Buffer{r.validity(nullable, n), offsets}
		return fromData(arrow.ListOfField(element), n, buffers, []arrow.ArrayData{values.Data()}, array.UnknownNullCount)
	case *arrow.MapType:
		offsets, total := r.offsets(n)
		keys := r.maybeDictionary(r.column(str, false, total))
		items := r.maybeDictionary(r.column(t.ItemType(), t.ItemField().Nullable, total))
		key, item := t.KeyField(), t.ItemField()
		key.Type, item.Type = keys.DataType(), items.DataType()
		below := []arrow.ArrayData{keys.Data(), items.Data()}
		kv := fromData(arrow.StructOf(key, item), total, []*memory.Buffer{nil}, below, 0)
		buffers := []*memory.Buffer{r.validity(nullable, n), offsets}
		m := arrow.MapOfFields(key, item)
		return fromData(m, n, buffers, []arrow.ArrayData{kv.Data()}, array.UnknownNullCount)
	}
	b := array.NewBuilder(memory.DefaultAllocator, t)
	for range n {
		if nullable && r.Float64() < r.nulls {
			b.AppendNull()
		} else {
			r.value(b)
		}
	}
	return b.NewArray()
}

// row makes the columns of a struct or of a batch, with n values each. It returns their fields as well.
func (r *random) row(want []arrow.Field, n int) ([]arrow.Field, []arrow.Array) {
	var fields []arrow.Field
	var columns []arrow.Array
	for _, f := range want {
		if f.Nullable && len(want) > 1 && r.chance(12) {
			continue
		}
		c := r.maybeDictionary(r.column(f.Type, f.Nullable, n))
		f.Type = c.DataType()
		fields, columns = append(fields, f), append(columns, c)
	}
	if len(fields) == 0 {
		return r.row(want, n)
	}
	if r.chance(10) {
		r.Shuffle(len(fields), func(i, j int) {
			fields[i], fields[j] = fields[j], fields[i]
			columns[i], columns[j] = columns[j], columns[i]
		})
	}
	return fields, columns
}

func (r *random) validity(nullable bool, n int) *memory.Buffer {
	if !nullable || r.chance(3) {
		return nil
	}
	v := newValid(n)
	for i := range n {
		if r.Float64() >= r.nulls {
			v[i/8] |= 1 << (i % 8)
		}
	}
	return memory.NewBufferBytes(v)
}

func (r *random) offsets(n int) (*memory.Buffer, int) {
	offsets := make([]int32, n+1)
	longest := []int{1, 2, 5}[r.IntN(3)]
	for i := range n {
		offsets[i+1] = offsets[i] + r.Int32N(int32(longest))
	}
	return memory.NewBufferBytes(arrow.Int32Traits.CastToBytes(offsets)), int(offsets[n])
}

// maybeDictionary turns some text columns into dictionary arrays, with every type of index.
func (r *random) maybeDictionary(a arrow.Array) arrow.Array {
	if id := a.DataType().ID(); id != arrow.STRING && id != arrow.BINARY || r.chance(2) {
		return a
	}
	index := []arrow.DataType{arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Uint16, i64}[r.IntN(3)]
	first, entries := map[string]int{}, array.NewBuilder(memory.DefaultAllocator, a.DataType())
	n, repeats, nullEntry := 0, r.chance(4), -1
	add := func(s string) int {
		switch b := entries.(type) {
		case *array.StringBuilder:
			b.Append(s)
		case *array.BinaryBuilder:
			b.Append([]byte(s))
		}
		n++
		return n - 1
	}
	if r.chance(3) {
		add("unused, and before all others")
		add("\U0010FFFFunused")
	}
	if r.chance(4) {
		entries.AppendNull()
		nullEntry, n = n, n+1
	}
	indices := array.NewBuilder(memory.DefaultAllocator, index)
	for i := range a.Len() {
		if a.IsNull(i) && (nullEntry < 0 || r.chance(2)) {
			indices.AppendNull()
			continue
		}
		k := nullEntry
		if a.IsValid(i) {
			s := a.ValueStr(i)
			if b, ok := a.(*array.Binary); ok {
				s = string(b.Value(i))
			}
			var known bool
			if k, known = first[s]; !known || repeats && r.chance(9) {
				k = add(s)
				first[s] = k
			}
		}
		if err := indices.AppendValueFromString(fmt.Sprint(k)); err != nil {
			panic(err)
		}
	}
	dict := entries.NewArray()
	if r.chance(4) { // the same dictionary entries, in a slice that does not begin at the start of its buffers
		more, err := array.Concatenate([]arrow.Array{a, dict}, memory.DefaultAllocator)
		if err != nil {
			panic(err)
		}
		dict = array.NewSlice(more, int64(a.Len()), int64(more.Len()))
	}
	t := &arrow.DictionaryType{IndexType: index, ValueType: a.DataType()}
	return array.NewDictionaryArray(t, indices.NewArray(), dict)
}

func (r *random) value(b array.Builder) {
	x := r.Uint64N(r.distinct) * 0x9E3779B97F4A7C15
	signed := int64(x) >> (x % 60)
	edge := r.chance(50) && r.distinct > 100
	switch b := b.(type) {
	case *array.BooleanBuilder:
		b.Append(x>>63 == 1)
	case *array.Int8Builder:
		b.Append(int8(x))
	case *array.Int16Builder:
		b.Append(int16(x))
	case *array.Int32Builder:
		b.Append(int32(signed))
	case *array.Int64Builder:
		b.Append(signed)
	case *array.Date32Builder:
		v := arrow.Date32(signed % 40_000)
		if edge {
			v = []arrow.Date32{math.MinInt32, math.MaxInt32, -719162, -719163, 2932896, 2932897}[r.IntN(6)]
		}
		b.Append(v)
	case *array.TimestampBuilder:
		v := signed % 4e15
		if edge {
			v = []int64{
				math.MinInt64, math.MaxInt64, -62135596800_000000, -62135596800_000001,
				253402300799_999000, 253402300799_999001,
			}[r.IntN(6)]
		}
		b.Append(arrow.Timestamp(v))
	case *array.Float32Builder:
		b.Append(float32(r.float(x, edge)))
	case *array.Float64Builder:
		b.Append(r.float(x, edge))
	case *array.StringBuilder:
		b.Append(r.text(x))
	case *array.BinaryBuilder:
		b.Append([]byte(r.text(x)))
	case *array.Decimal128Builder:
		p := int64(b.Type().(*arrow.Decimal128Type).Precision)
		bound := new(big.Int).Exp(big.NewInt(10), big.NewInt(p), nil)
		v := new(big.Int).Mul(big.NewInt(signed), big.NewInt(1_000_000_007))
		v.Mul(v, v.Abs(v)).Rem(v, bound)
		if x%2 == 0 {
			v.Neg(v)
		}
		b.Append(decimal128.FromBigInt(v))
	default:
		panic(fmt.Sprintf("%T", b))
	}
}

func (r *random) float(x uint64, edge bool) float64 {
	if edge {
		return []float64{math.NaN(), math.Inf(1), math.Inf(-1), 0, math.Copysign(0, -1), math.MaxFloat64, 5e-324}[r.IntN(7)]
	}
	switch x % 3 {
	case 0:
		return float64(x%1000) / 100
	case 1:
		return -float64(x) * 1e-30
	}
	return float64(int64(x)) * 1e10
}

// text makes strings whose first difference lies near the length at which bounds are shortened. Their characters sort
// differently in UTF-8 and UTF-16, or are close to those that bounds end with.
func (r *random) text(x uint64) string {
	var b strings.Builder
	alphabet := []string{
		"a", "b", "~", "\x7f", "\u0080", "é", "\u07ff", "日", "\ufffd", "\uffff", "😀", "\U0010FFFE", "\U0010FFFF",
		"\x00", "\"", "<",
	}
	if r.broken {
		alphabet = append(alphabet, "\xff", "\xf0\x9f", "\xed\xa0\x80")
	}
	if x%5 == 0 {
		return alphabet[x/5%uint64(len(alphabet))]
	}
	b.WriteString(strings.Repeat(alphabet[x%uint64(len(alphabet))], []int{0, 14, 15, 30, 31, 32, 33, 62, 65}[x/7%9]))
	for y := x; y > 1<<56; y /= uint64(len(alphabet)) {
		b.WriteString(alphabet[y%uint64(len(alphabet))])
	}
	return b.String()
}

// batch makes n rows. Now and then they are a slice of a larger batch.
func (r *random) batch(sc *arrow.Schema, n int) arrow.RecordBatch {
	extra := r.IntN(2) * 7
	fields, columns := r.row(sc.Fields(), n+extra)
	b := array.NewRecordBatch(arrow.NewSchema(fields, nil), columns, int64(n+extra))
	if extra > 0 {
		b = b.NewSlice(3, int64(3+n))
	}
	return b
}

func (r *random) pieces(sc *arrow.Schema) []connector.Piece {
	var pieces []connector.Piece
	for range r.IntN(6) {
		b := r.batch(sc, []int{0, 1, 10, 64, 300, 1500}[r.IntN(6)])
		n := b.NumRows()
		switch r.IntN(3) {
		case 0:
			pieces = append(pieces, connector.Piece{Rows: b, To: n})
		default:
			for at := int64(0); at < n && len(pieces) < 30; {
				to := min(n, at+r.Int64N(n+1))
				if !r.chance(3) { // otherwise the piece is left out, as Decide leaves rows of an earlier session out
					pieces = append(pieces, connector.Piece{Rows: b, From: at, To: to})
				}
				at = to
			}
		}
	}
	return pieces
}
