package decode

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/connector/schema"
)

// object is the record itself, a struct column, or the struct element of a list or map.
type object struct {
	depth    int    // nesting level; the record is at 1
	path     string // path of the struct column, "" for the record
	pathHash uint64
	members  []member
	index    map[string]int
	seen     []uint64 // one bit per member that the current object had so far
	required []uint64 // one bit per member that is NOT NULL
	first    *member  // the member that is predicted to come first
	steps    []step   // path of the object, if undeclared fields are rescued
}

// member is a declared field. next is the field that followed it in the last object and is predicted to follow again:
// producers write fields in a fixed order.
type member struct {
	key
	*column
	next *member
	word int // index of the member's word in seen and required
	bit  uint64
}

// key is the text `"name":` in words of eight bytes, so that two or three comparisons find it.
type key struct {
	head, mask, tail uint64
	middle           string // the text between the first and the last word, if the key has more than 16 bytes
	tailAt, length   int
}

func newKey(name string) key {
	text := `"` + name + `":`
	if strings.ContainsFunc(name, func(r rune) bool { return r < ' ' || r == '"' || r == '\\' }) {
		return key{head: 1} // JSON can spell such a name in several ways, so it is never predicted
	}
	k := key{mask: math.MaxUint64, length: len(text), tailAt: max(len(text)-8, 0)}
	b := append([]byte(text), zeroPadding[:]...)
	k.head, k.tail = load64(b, 0), load64(b, k.tailAt)
	if len(text) < 8 {
		k.mask = 1<<(8*len(text)) - 1
	} else if len(text) > 16 {
		k.middle = text[8:k.tailAt]
	}
	return k
}

// at reports whether the key is at p.
func (k *key) at(b []byte, p int) bool {
	if load64(b, p)&k.mask != k.head {
		return false
	}
	return k.length <= 8 || load64(b, p+k.tailAt) == k.tail && (k.middle == "" || string(b[p+8:p+k.tailAt]) == k.middle)
}

// newObject makes the columns of a struct. declared are the fields of the struct that the configuration has. at has the
// names that lead to the struct, path also says where elements of arrays and values of maps are.
func (d *jsonDecoder) newObject(fields []schema.Field, types []arrow.Field, declared []schema.Field, at []string, path string, depth int) (*object, error) {
	if depth > d.limits.MaxDepth {
		return nil, d.tooDeep(path)
	}
	if len(fields) == 0 && d.limits.NewColumns == nil {
		return nil, errors.New("no column can be filled")
	}
	words := len(fields)/64 + 1
	o := &object{
		depth: depth, path: path, pathHash: d.names.hash([]byte(path)) * hashFactor, index: make(map[string]int, len(fields)), members: make([]member, len(fields)),
		seen: make([]uint64, words), required: make([]uint64, words),
	}
	if o.first = new(member{key: key{head: 1}}); len(fields) > 0 { // this key is nowhere
		o.first = &o.members[0]
	}
	for i, f := range fields {
		own := slices.IndexFunc(declared, func(d schema.Field) bool { return d.Name == f.Name })
		var inside *schema.Type
		if own >= 0 {
			inside = &declared[own].Type
		}
		c, err := d.newColumn(f.Type, types[i], inside, append(slices.Clip(at), f.Name), strings.TrimPrefix(path+"."+f.Name, "."), depth)
		if err != nil {
			return nil, err
		}
		c.source, c.lenient = f.Source(), own < 0 && d.lenient(f)
		if f.Raw() && c.form == schema.String {
			c.form = rawForm
		}
		for e := c; c.lenient && f.Inferred() && e != nil; e = e.elem {
			if e.form == schema.Double {
				e.form = exactForm
			}
		}
		if other, twice := o.index[c.source]; twice {
			return nil, fmt.Errorf("columns %s and %s are filled from the same field %q", o.members[other].name, f.Name, c.source)
		}
		if !f.Nullable {
			o.required[i/64] |= 1 << (i % 64)
		}
		o.members[i] = member{newKey(c.source), c, &o.members[(i+1)%len(fields)], i / 64, 1 << (i % 64)}
		o.index[c.source] = i
	}
	return o, nil
}

// newColumn makes a column of a type; f is its Arrow field. declared is the type that the configuration has for it, nil
// if it has none. at and path are those of newObject.
func (d *jsonDecoder) newColumn(t schema.Type, f arrow.Field, declared *schema.Type, at []string, path string, depth int) (*column, error) {
	option, err := d.limits.Columns.of(at, t)
	if err != nil {
		return nil, misfit(err)
	}
	c := &column{
		spare: d.spare, name: f.Name, kind: t.Kind, form: t.Kind, field: f, nullable: f.Nullable, option: option, depth: depth + 1,
	}
	switch {
	case option.Raw:
		c.form = rawForm
	case option.Epoch != "":
		c.form, c.shift = epochForm, option.shift()
	}
	if fixed, ok := f.Type.(arrow.FixedWidthDataType); ok {
		c.width = (fixed.BitWidth() + 7) / 8
	}
	switch arrowType := f.Type.(type) {
	case *arrow.StringType:
		c.setDictionary(d.maxDistinct)
	case *arrow.BinaryType:
		c.plainChunks = math.MaxInt
	case *arrow.Decimal128Type:
		c.decimal = decimal{precision: t.Precision, scale: t.Scale}
		c.decimal.hi, c.decimal.lo = power(t.Precision)
	case *arrow.TimestampType:
		c.minute = newMinute()
	case *arrow.StructType:
		var fields []schema.Field
		if declared != nil {
			fields = declared.Fields
		}
		c.object, err = d.newObject(t.Fields, arrowType.Fields(), fields, at, path, depth+1)
	case *arrow.ListType:
		if depth >= d.limits.MaxDepth {
			return nil, d.tooDeep(path)
		}
		c.elem, err = d.newColumn(*t.Element, arrowType.ElemField(), elementOf(declared), at, path+"[]", depth+1)
	case *arrow.MapType:
		if depth >= d.limits.MaxDepth {
			return nil, d.tooDeep(path)
		}
		c.key = &column{spare: d.spare, name: "key", kind: schema.String, form: schema.String, field: arrowType.KeyField()}
		c.key.setDictionary(d.maxDistinct)
		c.elem, err = d.newColumn(*t.Element, arrowType.ItemField(), elementOf(declared), at, path+"{}", depth+1)
	}
	return c, err
}

// elementOf returns the type of the elements of a declared list or map, nil for nil.
func elementOf(declared *schema.Type) *schema.Type {
	if declared == nil {
		return nil
	}
	return declared.Element
}

func (d *jsonDecoder) tooDeep(path string) error {
	return fmt.Errorf("column %s is nested deeper than MaxDepth, which is %d", path, d.limits.MaxDepth)
}

// setDictionary bounds the dictionary of a string column; 0 means that it has none.
func (c *column) setDictionary(distinct int) {
	c.dictLimit = distinct
	if distinct == 0 {
		c.plainChunks = math.MaxInt
	}
}

func (o *object) truncate(n int) {
	for i := range o.members {
		o.members[i].truncate(n)
	}
}

func (o *object) reserve() {
	for i := range o.members {
		o.members[i].reserve()
	}
}

func (o *object) size(n int) (size int64) {
	for i := range o.members {
		size += o.members[i].size(n)
	}
	return size
}

func (o *object) allocated() (size int64) {
	for i := range o.members {
		size += o.members[i].allocated()
	}
	return size
}

// finish returns the columns as Arrow data of n rows and empties them. Each field has the type that its column has in
// this chunk.
func (o *object) finish(n int) ([]arrow.Field, []arrow.ArrayData) {
	fields, data := make([]arrow.Field, len(o.members)), make([]arrow.ArrayData, len(o.members))
	for i := range o.members {
		fields[i], data[i] = o.members[i].finishField(n)
	}
	return fields, data
}

// finishField returns the column's field and its Arrow data of n rows, and empties the column. The type of the field is
// that of this chunk: a string column may be a dictionary.
func (c *column) finishField(n int) (arrow.Field, arrow.ArrayData) {
	data := c.finish(n)
	f := c.field
	f.Type = data.DataType()
	return f, data
}
