//nolint:gosec // G115: lengths and rows fit 32 bits by ErrChunkFull, and words are taken apart on purpose.
package decode

import (
	"encoding/binary"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/connector/schema"
)

// column collects one column of a chunk in plain Go slices, which Seal turns into Arrow buffers.
//
// A column may lag behind the rows of its parent: rows that it missed are null and cost nothing until its next value
// or the end of the chunk. So a null, a missing field and all columns below a missing struct are free. A row is
// rolled back by truncating every column.
type column struct {
	name     string
	source   string // name of the record's field that fills the column
	lenient  bool   // true if a value that does not fit goes to the column for rescued fields
	kind     schema.Kind
	form     schema.Kind // how records write the values: the kind, or rawForm or epochForm
	nullable bool
	width    int // bytes per value in fixed, but 1 for booleans; 0 for kinds that do not use fixed
	field    arrow.Field
	option   ColumnOption
	minute   minute  // the cached minute, only used by a timestamp column
	decimal  decimal // only used by a decimal column
	shift    int     // makes microseconds of the numbers of a timestamp column: see [number.scale]
	spare    Spare
	depth    int     // nesting level of an object or array that is a value of the column
	object   *object // the members of a struct column
	elem     *column // the element column of a list column, or the value column of a map column
	key      *column // the key column of a map column

	n       int     // number of rows written
	nulls   []span  // ranges of null rows
	fixed   []byte  // the values, width bytes each; one bit each for booleans
	offsets []int32 // row i is [offsets[i], offsets[i+1]) of elem and key, or of the bytes of all texts as if they were plain
	data    []byte
	dict    *interner // the dictionary of the chunk; nil if the column is plain text
	indices []int32   // per row, the index of its text in dict
	elems   int       // number of list elements or map entries so far; elem may have fewer rows, because it lags behind
	first   int       // index of the first element of the last list
	entry   []byte    // name of the current map entry, if undeclared fields are rescued

	// What the column has learned from earlier chunks: see learn.
	rows, bytes int // capacities to reserve: rows, and bytes of plain text
	dictLimit   int
	plainChunks int // number of chunks that stay plain text before the column tries a dictionary again
}

// The forms that differ from the kind of their column.
const (
	rawForm   schema.Kind = schema.Map + 1 + iota // a string column with the text of any JSON value
	epochForm                                     // a timestamp column with numbers
	exactForm                                     // a double column that takes only integers that it holds exactly
)

// decimal bounds the values of a decimal column.
type decimal struct {
	precision, scale int
	hi, lo           uint64 // 10^precision
}

func (c *column) isText() bool { return c.kind == schema.String || c.kind == schema.Binary }
func (c *column) isList() bool { return c.kind == schema.Array || c.kind == schema.Map }

// span is the range of rows [start, end).
type span struct{ start, end int }

const (
	// retryDictionary is the number of chunks after which a column with too many distinct values tries a dictionary
	// again.
	retryDictionary = 16
	// teachingRows is the smallest number of rows with which a chunk of a text column changes what the column expects of
	// its next chunks: how many bytes of text to reserve, and whether a dictionary is worth a try.
	teachingRows = 1024
	// longText is the size above which a text is not looked up in the dictionary.
	longText = 4 << 10
)

// fillTo appends nulls until the column has row rows. At least one must be missing.
func (c *column) fillTo(row int) {
	missed := row - c.n
	c.nulls = append(c.nulls, span{c.n, row})
	switch {
	case c.kind == schema.Boolean:
		c.fixed = append(c.fixed, make([]byte, (row+7)/8-len(c.fixed))...)
	case c.width > 0:
		c.fixed = append(c.fixed, make([]byte, missed*c.width)...)
	case c.isText(), c.isList():
		last := c.offsets[len(c.offsets)-1]
		for range missed {
			c.offsets = append(c.offsets, last)
		}
	}
	if c.dict != nil {
		c.indices = append(c.indices, make([]int32, missed)...)
	}
	c.n = row
}

func (c *column) put64(v uint64) {
	c.fixed = binary.LittleEndian.AppendUint64(c.fixed, v)
	c.n++
}

func (c *column) put32(v uint32) {
	c.fixed = binary.LittleEndian.AppendUint32(c.fixed, v)
	c.n++
}

// putInteger appends v in the column's width, which is less than 8 bytes. It returns false if v does not fit.
func (c *column) putInteger(v int64) bool {
	if v != v<<(64-8*c.width)>>(64-8*c.width) {
		return false
	}
	switch c.width {
	case 4:
		c.fixed = binary.LittleEndian.AppendUint32(c.fixed, uint32(v))
	case 2:
		c.fixed = binary.LittleEndian.AppendUint16(c.fixed, uint16(v))
	default:
		c.fixed = append(c.fixed, byte(v))
	}
	c.n++
	return true
}

// putBool appends a boolean. The bits after the last row are always 0.
func (c *column) putBool(v byte) {
	if c.n&7 == 0 {
		c.fixed = append(c.fixed, v)
	} else {
		c.fixed[len(c.fixed)-1] |= v << (c.n & 7)
	}
	c.n++
}

// putText appends the text b[start:end]; b is padded.
func (c *column) putText(b []byte, start, end int) {
	switch {
	case c.dict == nil:
		c.putPlain(b, start, end)
	case end-start > longText: // such a long text will hardly repeat
		c.putIndex(-1, b, start, end)
	case end-start <= shortText:
		c.putIndex(c.dict.short(load64(b, start), load64(b, start+8), end-start, c.n), b, start, end)
	default:
		c.putIndex(c.dict.long(b[start:end], c.n), b, start, end)
	}
}

// putIndex appends the index of b[start:end], or the text itself if the dictionary refused it.
func (c *column) putIndex(i int32, b []byte, start, end int) {
	if i < 0 {
		c.dropDictionary()
		c.putPlain(b, start, end)
		return
	}
	c.indices = append(c.indices, i)
	c.offsets = append(c.offsets, c.offsets[len(c.offsets)-1]+int32(end-start))
	c.n++
}

// putTexts appends the text b[:end] to count rows; b is padded.
func (c *column) putTexts(b []byte, end, count int) {
	c.putText(b, 0, end)
	if c.dict == nil {
		for range count - 1 {
			c.putPlain(b, 0, end)
		}
		return
	}
	index, at := c.indices[len(c.indices)-1], c.offsets[len(c.offsets)-1]
	c.indices, c.offsets = slices.Grow(c.indices, count-1), slices.Grow(c.offsets, count-1)
	for range count - 1 {
		at += int32(end)
		c.indices, c.offsets = append(c.indices, index), append(c.offsets, at)
	}
	c.n += count - 1
}

// putPlain appends b[start:end]; b is padded.
func (c *column) putPlain(b []byte, start, end int) {
	n := len(c.data)
	if end-start <= shortText && n+shortText <= cap(c.data) {
		// Copying two words is cheaper than a call of memmove.
		d := c.data[n : n+shortText]
		store64(d, 0, load64(b, start))
		store64(d, 8, load64(b, start+8))
		c.data = c.data[:n+end-start]
	} else {
		c.data = append(c.data, b[start:end]...)
	}
	c.endText()
}

// endText ends the row whose text was appended to data.
func (c *column) endText() {
	c.offsets = append(c.offsets, int32(len(c.data)))
	c.n++
}

// dropDictionary converts the column to plain text, for this chunk and the next retryDictionary ones.
func (c *column) dropDictionary() {
	c.data = c.bytesOf(max(c.text(), c.bytes) + shortText)
	for row, i := range c.indices {
		if c.offsets[row] < c.offsets[row+1] { // the text is neither null nor empty
			c.data = append(c.data, c.dict.value(int(i))...)
		}
	}
	c.keep(c.indices)
	c.dict, c.indices = nil, nil
	c.plainChunks = retryDictionary
}

// text returns the number of bytes of all values, as if they were plain text.
func (c *column) text() int { return int(c.offsets[len(c.offsets)-1]) }

// textOf returns the text of a row, empty if it is null or not written yet.
func (c *column) textOf(row int) []byte {
	if row >= c.n || c.offsets[row] == c.offsets[row+1] {
		return nil
	}
	if c.dict != nil {
		return c.dict.value(int(c.indices[row]))
	}
	return c.data[c.offsets[row]:c.offsets[row+1]]
}

// truncate removes the rows from n on.
func (c *column) truncate(n int) {
	n = min(n, c.n)
	c.n = n
	for len(c.nulls) > 0 {
		last := &c.nulls[len(c.nulls)-1]
		if last.start < n {
			last.end = min(last.end, n)
			break
		}
		c.nulls = c.nulls[:len(c.nulls)-1]
	}
	switch {
	case c.kind == schema.Boolean:
		c.fixed = c.fixed[:(n+7)/8]
		if n&7 != 0 {
			c.fixed[n/8] &= 1<<(n&7) - 1
		}
	case c.width > 0:
		c.fixed = c.fixed[:n*c.width]
	case c.isText():
		c.offsets = c.offsets[:n+1]
		if c.dict != nil {
			c.indices = c.indices[:n]
			c.dict.truncate(n)
		} else {
			c.data = c.data[:c.text()]
		}
	case c.isList():
		c.offsets = c.offsets[:n+1]
		c.elems = int(c.offsets[n])
		c.elem.truncate(c.elems)
		if c.key != nil {
			c.key.truncate(c.elems)
		}
	case c.kind == schema.Struct:
		c.object.truncate(n)
	}
}

// size returns the bytes of the Arrow buffers for n rows. Text counts without its dictionary, which may still be
// dropped.
func (c *column) size(n int) int64 {
	size := 0
	if c.nullable && (len(c.nulls) > 0 || c.n < n) {
		size = (n + 7) / 8
	}
	switch {
	case c.kind == schema.Boolean:
		size += (n + 7) / 8
	case c.width > 0:
		size += n * c.width
	case c.isText():
		size += 4*(n+1) + c.text()
	case c.isList():
		size += 4 * (n + 1)
		below := c.elem.size(c.elems)
		if c.key != nil {
			below += c.key.size(c.elems)
		}
		return int64(size) + below
	case c.kind == schema.Struct:
		return int64(size) + c.object.size(n)
	}
	return int64(size)
}

// allocated returns the memory of the column in bytes, including unused capacity.
func (c *column) allocated() int64 {
	const offset, row = 4, 16 // offset is the bytes of an int32, row those of a span
	size := cap(c.fixed) + cap(c.data) + offset*(cap(c.offsets)+cap(c.indices)) + row*cap(c.nulls)
	if c.dict != nil {
		size += c.dict.allocated()
	}
	if c.key != nil {
		return int64(size) + c.key.allocated() + c.elem.allocated()
	}
	if c.elem != nil {
		return int64(size) + c.elem.allocated()
	}
	if c.object != nil {
		return int64(size) + c.object.allocated()
	}
	return int64(size)
}

// reserve prepares an empty column for a chunk of the usual size.
func (c *column) reserve() {
	const slack = 64 // the column writes whole words beyond the last byte, and chunks of equally many rows differ in bytes
	switch {
	case c.kind == schema.Struct:
		c.object.reserve()
	case c.kind == schema.String && c.plainChunks == 0:
		c.dict = newInterner(c.dictLimit)
		c.indices = c.int32sOf(c.rows)
		c.offsets = append(c.int32sOf(c.rows+1), 0)
	case c.isText():
		c.plainChunks--
		c.data = c.bytesOf(c.bytes + c.bytes/32 + slack)
		c.offsets = append(c.int32sOf(c.rows+1), 0)
	case c.isList():
		c.offsets = append(c.int32sOf(c.rows+1), 0)
		c.elem.reserve()
		if c.key != nil {
			c.key.reserve()
		}
	case c.kind == schema.Boolean:
		c.fixed = c.bytesOf(c.rows/8 + 1)
	default:
		c.fixed = c.bytesOf(c.rows * c.width)
	}
}

// finish returns the column as Arrow data of n rows and empties it.
func (c *column) finish(n int) arrow.ArrayData {
	if c.n < n {
		c.fillTo(n)
	}
	nulls, validity := c.validity()
	if c.dict != nil && (c.dict.count() == 0 || 2*c.dict.count() > n-nulls) {
		// The column has no value at all, or its texts hardly repeat.
		retry := c.plainChunks
		c.dropDictionary()
		if n < teachingRows {
			c.plainChunks = retry
		}
	}
	c.learn(n)
	typ, buffers := c.field.Type, []*memory.Buffer{validity}
	var children []arrow.ArrayData
	var dictionary *array.Data
	switch {
	case c.width > 0:
		buffers = append(buffers, c.buffer(c.fixed))
	case c.dict != nil:
		typ = &arrow.DictionaryType{IndexType: arrow.PrimitiveTypes.Int32, ValueType: typ}
		buffers = append(buffers, c.int32Buffer(c.indices))
		text := []*memory.Buffer{nil, c.int32Buffer(c.dict.offsets), c.buffer(c.dict.data)}
		dictionary = array.NewData(c.field.Type, c.dict.count(), text, nil, 0, 0)
		release(text)
		c.keep(c.offsets)
	case c.isText():
		buffers = append(buffers, c.int32Buffer(c.offsets), c.buffer(c.data))
	case c.kind == schema.Array:
		buffers = append(buffers, c.int32Buffer(c.offsets))
		children = []arrow.ArrayData{c.elem.finish(c.elems)}
		elem := c.elem.field
		elem.Type = children[0].DataType()
		typ = arrow.ListOfField(elem)
	case c.kind == schema.Map:
		buffers = append(buffers, c.int32Buffer(c.offsets))
		key, keys := c.key.finishField(c.elems)
		value, values := c.elem.finishField(c.elems)
		entries := array.NewData(arrow.StructOf(key, value), c.elems, []*memory.Buffer{nil}, []arrow.ArrayData{keys, values}, 0, 0)
		keys.Release()
		values.Release()
		children = []arrow.ArrayData{entries}
		typ = arrow.MapOfFields(key, value)
	case c.kind == schema.Struct:
		var fields []arrow.Field
		fields, children = c.object.finish(n)
		typ = arrow.StructOf(fields...)
	}
	c.n, c.elems, c.nulls, c.fixed, c.offsets, c.data, c.dict, c.indices = 0, 0, c.nulls[:0], nil, nil, nil, nil, nil
	defer release(buffers) // the Arrow data holds references of its own
	if dictionary != nil {
		defer dictionary.Release()
		return array.NewDataWithDictionary(typ, n, buffers, nulls, 0, dictionary)
	}
	data := array.NewData(typ, n, buffers, children, nulls, 0)
	for _, child := range children {
		child.Release()
	}
	return data
}

// learn updates what the column expects of its next chunk. The capacities fall by an eighth per chunk, so that one
// unusually large chunk does not reserve its size for ever. A chunk of fewer than teachingRows rows never raises the
// capacity for text.
func (c *column) learn(n int) {
	fade := func(size int) int { return size - size/8 }
	c.rows = max(n, fade(c.rows))
	if c.isText() && c.dict == nil {
		if c.bytes = fade(c.bytes); n >= teachingRows {
			c.bytes = max(c.bytes, len(c.data))
		}
	}
}

func release(buffers []*memory.Buffer) {
	for _, b := range buffers {
		if b != nil {
			b.Release()
		}
	}
}

// validity returns the number of nulls and the bitmap of the rows that are not null, nil if there are no nulls.
func (c *column) validity() (nulls int, bitmap *memory.Buffer) {
	if len(c.nulls) == 0 || !c.nullable {
		// A NOT NULL column has gaps only below a null parent.
		return 0, nil
	}
	bits := make([]byte, (c.n+7)/8)
	from := 0
	for _, s := range c.nulls {
		setBits(bits, from, s.start)
		from = s.end
		nulls += s.end - s.start
	}
	setBits(bits, from, c.n)
	return nulls, memory.NewBufferBytes(bits)
}

func setBits(bits []byte, from, to int) {
	for ; from < to && from&7 != 0; from++ {
		bits[from/8] |= 1 << (from & 7)
	}
	for ; from+8 <= to; from += 8 {
		bits[from/8] = math.MaxUint8
	}
	for ; from < to; from++ {
		bits[from/8] |= 1 << (from & 7)
	}
}
