//nolint:gosec // G115: lengths and rows fit 32 bits by ErrChunkFull, and words are taken apart on purpose.
package decode

import (
	"encoding/binary"
	"math"
	"math/bits"
	"strconv"

	"sluice/connector/schema"
)

// object reads the fields of an object, whose opening brace is at p-1, into a row of its columns.
func (d *jsonDecoder) object(o *object, b []byte, p, row int) int {
	if o.seen[0] = 0; len(o.seen) > 1 {
		clear(o.seen)
	}
	if b[p] <= ' ' {
		p = space(b, p)
	}
	if b[p] == '}' {
		return d.complete(o, p)
	}
	serial := 0 // the serial number of the object in the record, set at its first undeclared field
	for predicted := &o.first; ; {
		m, at := *predicted, p
		if m.at(b, p) {
			p += m.length
			if b[p] <= ' ' {
				p = space(b, p)
			}
		} else {
			if m, serial, p = d.unpredicted(o, b, p, serial); p < 0 {
				return p
			}
			if m != nil {
				*predicted = m
			}
		}
		if m != nil {
			seen := &o.seen[m.word]
			if *seen&m.bit != 0 {
				d.inColumn(m.column)
				return d.fail(DuplicateKey, at)
			}
			*seen |= m.bit
			if p = d.value(m.column, b, p, row); p < 0 {
				if p = d.rescueValue(o, m, b, at, row); p < 0 {
					d.inColumn(m.column)
					return p
				}
			}
			predicted = &m.next
		}
		if b[p] <= ' ' {
			p = space(b, p)
		}
		switch b[p] {
		case ',':
			if p++; b[p] <= ' ' {
				p = space(b, p)
			}
		case '}':
			return d.complete(o, p)
		default:
			return d.unexpected(p)
		}
	}
}

// unpredicted reads the name at p, which is not the predicted one. It returns the declared field and the start of its
// value, or no field and the end of the value of an undeclared one. serial is the object's number, 0 if it had no
// undeclared field before.
func (d *jsonDecoder) unpredicted(o *object, b []byte, p, serial int) (m *member, serialNow, end int) {
	name, end := d.name(b, p)
	if end < 0 {
		return nil, serial, end
	}
	if i, declared := o.index[string(name)]; declared {
		return &o.members[i], serial, end
	}
	if serial == 0 {
		d.objects++
		serial = d.objects
	}
	return nil, serial, d.undeclared(o, b, p, end, serial, name)
}

// complete refuses an object that lacks one of its NOT NULL columns; its closing brace is at p. It returns the position
// after the brace.
func (d *jsonDecoder) complete(o *object, p int) int {
	for w, required := range o.required {
		if missing := required &^ o.seen[w]; missing != 0 {
			d.inColumn(o.members[w*64+bits.TrailingZeros64(missing)].column)
			return d.fail(RequiredMissing, p)
		}
	}
	return p + 1
}

// inColumn adds a column to the path of a failure, which is built from the inside out.
func (d *jsonDecoder) inColumn(c *column) {
	d.inElement(c)
	d.path = append(d.path, "."+c.name)
}

// inElement records c as the column of a failure, unless a column inside of c is recorded already.
func (d *jsonDecoder) inElement(c *column) {
	if d.failedIn == nil {
		d.failedIn = c
	}
}

// fillMissed adds nulls for the rows before row that the column has missed.
func (c *column) fillMissed(row int) {
	if c.n != row {
		c.fillTo(row)
	}
}

// value reads the value at p into a row of a column.
func (d *jsonDecoder) value(c *column, b []byte, p, row int) int {
	if b[p] == 'n' {
		return d.null(c, b, p) // adds no row: the column lags behind until its next value
	}
	c.fillMissed(row)
	switch c.form {
	case schema.String:
		return d.string(c, b, p)
	case schema.Long:
		v, end, why := parseInt(b, p)
		if why != 0 {
			return d.badNumber(b, p, end, why)
		}
		c.put64(uint64(v))
		return end
	case schema.Double:
		v, end, why := parseDouble(b, p)
		if why != 0 {
			return d.badNumber(b, p, end, why)
		}
		c.put64(math.Float64bits(v))
		return end
	case schema.Timestamp:
		return d.timestamp(c, b, p)
	case schema.Boolean:
		return d.boolean(c, b, p)
	case schema.Struct:
		if b[p] != '{' {
			return d.mismatch(b, p)
		}
		c.n++
		return d.object(c.object, b, p+1, row)
	case schema.Array:
		if b[p] != '[' {
			return d.mismatch(b, p)
		}
		return d.list(c, b, p+1)
	case schema.Integer, schema.Short, schema.Byte:
		v, end, why := parseInt(b, p)
		if why == 0 && !c.putInteger(v) {
			why = OutOfRange
		}
		if why != 0 {
			return d.badNumber(b, p, end, why)
		}
		return end
	case schema.Float:
		v, end, why := parseFloat(b, p, 32)
		if why != 0 {
			return d.badNumber(b, p, end, why)
		}
		c.put32(math.Float32bits(float32(v)))
		return end
	case schema.Date:
		return d.date(c, b, p)
	case schema.Decimal:
		return d.decimal(c, b, p)
	case schema.Binary:
		return d.binary(c, b, p)
	case schema.Map:
		if b[p] != '{' {
			return d.mismatch(b, p)
		}
		return d.mapping(c, b, p+1)
	case rawForm:
		return d.raw(c, b, p)
	case epochForm:
		return d.epoch(c, b, p)
	case exactForm:
		return d.exact(c, b, p)
	case schema.Other:
	}
	panic("decode: column of a type that is not written")
}

// string reads the value of a string column. Most strings are short, of random length and plain ASCII, so the first
// two words are examined without a branch.
func (d *jsonDecoder) string(c *column, b []byte, p int) int {
	if b[p] != '"' {
		return d.mismatch(b, p)
	}
	start := p + 1
	lo, hi := load64(b, start), load64(b, start+8)
	n := bits.TrailingZeros64(special(lo)) >> 3
	if n == 8 {
		n += bits.TrailingZeros64(special(hi)) >> 3
	}
	if n == shortText {
		n = plainEnd(b, start+shortText) - start
	}
	end := start + n
	switch {
	case b[end] != '"':
		return d.escapedString(c, b, p, end)
	case c.dict == nil:
		c.putPlain(b, start, end)
	case n <= shortText:
		c.putIndex(c.dict.short(lo, hi, n, c.n), b, start, end)
	default:
		c.putIndex(c.dict.long(b[start:end], c.n), b, start, end)
	}
	return end + 1
}

// escapedString reads the string whose opening quote is at p. stop is the position of its first byte that is an
// escape, not ASCII, or not allowed.
func (d *jsonDecoder) escapedString(c *column, b []byte, p, stop int) int {
	if b[stop] == '\\' && c.dict == nil {
		data, next := d.unescape(c.data, b, p+1, stop)
		if next >= 0 {
			c.data = data
			c.endText()
		}
		return next
	}
	buf, start, end, next := d.text(b, p)
	if next >= 0 {
		c.putText(buf, start, end)
	}
	return next
}

func (d *jsonDecoder) timestamp(c *column, b []byte, p int) int {
	if b[p] != '"' {
		return d.mismatch(b, p)
	}
	v, end, why := c.minute.parseTimestamp(b, p+1, &c.option)
	if why == 0 && b[end] == '"' {
		c.put64(uint64(v))
		return end + 1
	}
	// The value is a string with an escape or an error, or it is not a timestamp.
	buf, start, stop, next := d.text(b, p)
	if next < 0 {
		return next
	}
	if v, end, why = c.minute.parseTimestamp(buf, start, &c.option); why == 0 && end != stop {
		why = BadTimestamp
	}
	if why != 0 {
		return d.fail(why, p)
	}
	c.put64(uint64(v))
	return next
}

func (d *jsonDecoder) date(c *column, b []byte, p int) int {
	if b[p] != '"' {
		return d.mismatch(b, p)
	}
	buf, start, stop, next := d.text(b, p)
	if next < 0 {
		return next
	}
	v, ok := parseDate(buf, start)
	if !ok || stop != start+len("YYYY-MM-DD") {
		return d.fail(BadTimestamp, p)
	}
	c.put32(uint32(v))
	return next
}

func (d *jsonDecoder) boolean(c *column, b []byte, p int) int {
	switch w := uint32(load64(b, p)); {
	case w == 't'|'r'<<8|'u'<<16|'e'<<24:
		c.putBool(1)
		return p + 4
	case w == 'f'|'a'<<8|'l'<<16|'s'<<24 && b[p+4] == 'e':
		c.putBool(0)
		return p + 5
	}
	return d.mismatch(b, p)
}

// list reads the elements of the list whose opening bracket is at p-1.
func (d *jsonDecoder) list(c *column, b []byte, p int) int {
	first, values := c.elems, d.values
	c.first = first
	if b[p] <= ' ' {
		p = space(b, p)
	}
	if b[p] == ']' {
		return c.endList(p)
	}
	for {
		if d.values++; d.values > d.limits.MaxValues {
			return d.fail(TooManyValues, p)
		}
		if p = d.value(c.elem, b, p, c.elems); p < 0 {
			d.inElement(c.elem)
			d.path = append(d.path, "["+strconv.Itoa(c.elems-first)+"]")
			d.values = values // they count once if the list is rescued
			return p
		}
		c.elems++
		if b[p] <= ' ' {
			p = space(b, p)
		}
		switch b[p] {
		case ',':
			if p++; b[p] <= ' ' {
				p = space(b, p)
			}
		case ']':
			return c.endList(p)
		default:
			return d.unexpected(p)
		}
	}
}

// endList adds the list whose closing bracket is at p to the column and returns the position after it.
func (c *column) endList(p int) int {
	c.offsets = append(c.offsets, int32(c.elems))
	c.n++
	return p + 1
}

// mapping reads the fields of an object into the map column c; its opening brace is at p-1.
func (d *jsonDecoder) mapping(c *column, b []byte, p int) int {
	if p = space(b, p); b[p] == '}' {
		return c.endList(p)
	}
	d.objects++
	serial, values := d.objects, d.values // serial has the names of this object in d.names
	for {
		if d.values++; d.values > d.limits.MaxValues {
			return d.fail(TooManyValues, p)
		}
		if b[p] != '"' {
			return d.unexpected(p)
		}
		buf, start, end, next := d.text(b, p)
		if next < 0 {
			return next
		}
		if name := buf[start:end]; d.names.add(serial, d.names.hash(name), name) {
			return d.fail(DuplicateKey, p)
		}
		if d.rescue.column != nil {
			c.entry = append(c.entry[:0], buf[start:end]...)
		}
		c.key.putText(buf, start, end)
		if p = space(b, next); b[p] != ':' {
			return d.unexpected(p)
		}
		if p = d.value(c.elem, b, space(b, p+1), c.elems); p < 0 {
			d.inElement(c.elem)
			d.path = append(d.path, "{}") // not the name, which is a value of the record
			d.values = values             // they count once if the map is rescued
			return p
		}
		c.elems++
		switch p = space(b, p); b[p] {
		case ',':
			p = space(b, p+1)
		case '}':
			return c.endList(p)
		default:
			return d.unexpected(p)
		}
	}
}

// exact reads a number into the double column c, unless it is an integer that no double holds.
func (d *jsonDecoder) exact(c *column, b []byte, p int) int {
	v, end, why := parseDouble(b, p)
	if why != 0 {
		return d.badNumber(b, p, end, why)
	}
	const exactDigits = 15 // each integer of so many digits is exact
	if end-p > exactDigits {
		if k, _ := schema.NumberKind(string(b[p:end])); k != schema.IntegerValue && k != schema.FractionValue {
			return d.fail(OutOfRange, p)
		}
	}
	c.put64(math.Float64bits(v))
	return end
}

// raw reads any value into the string column c, as it is written in the record.
func (d *jsonDecoder) raw(c *column, b []byte, p int) int {
	end := d.skip(b, p, c.depth)
	if end >= 0 {
		c.putText(b, p, end)
	}
	return end
}

// decimal reads a number, or a string that is the text of a number, into the decimal column c.
func (d *jsonDecoder) decimal(c *column, b []byte, p int) int {
	buf, start := b, p
	x, next, ok := scanNumber(b, p)
	switch {
	case b[p] == '"':
		var stop, end int
		if buf, start, stop, next = d.text(b, p); next < 0 {
			return next
		}
		if x, end, ok = scanNumber(buf, start); !ok || end != stop {
			return d.fail(TypeMismatch, p)
		}
	case !ok:
		return d.badNumber(b, p, next, Syntax)
	}
	s := x.scale(buf, start, c.decimal.scale)
	if !s.below(c.decimal.hi, c.decimal.lo) {
		return d.fail(OutOfRange, p)
	}
	if s.rest != nothing {
		return d.fail(TooPrecise, p)
	}
	hi, lo := s.words()
	c.fixed = binary.LittleEndian.AppendUint64(c.fixed, lo)
	c.put64(hi)
	return next
}

// epoch reads a number of units since 1970 into the timestamp column c.
func (d *jsonDecoder) epoch(c *column, b []byte, p int) int {
	x, end, ok := scanNumber(b, p)
	if !ok {
		return d.badNumber(b, p, end, Syntax)
	}
	s := x.scale(b, p, c.shift)
	if !s.round(c.option.Fraction) {
		return d.fail(TooPrecise, p)
	}
	v, ok := s.integer()
	if !ok || v < minMicros || v > maxMicros {
		return d.fail(OutOfRange, p)
	}
	c.put64(uint64(v))
	return end
}

// binary reads a string into the binary column c.
func (d *jsonDecoder) binary(c *column, b []byte, p int) int {
	if b[p] != '"' {
		return d.mismatch(b, p)
	}
	buf, start, stop, next := d.text(b, p)
	if next < 0 {
		return next
	}
	data, ok := c.option.Encoding.append(c.data, buf[start:stop])
	if !ok {
		return d.fail(BadBinary, p)
	}
	c.data = data
	c.endText()
	return next
}

func (d *jsonDecoder) null(c *column, b []byte, p int) int {
	end := d.literal(b, p, "null")
	if end >= 0 && !c.nullable {
		return d.fail(RequiredMissing, p)
	}
	return end
}

// unexpected refuses the byte at p, which cannot stand there: as Truncated at the end of the record, else as Syntax.
func (d *jsonDecoder) unexpected(p int) int {
	if p >= len(d.record) {
		return d.fail(Truncated, len(d.record))
	}
	return d.fail(Syntax, p)
}

// mismatch refuses the value at p, whose first byte does not fit the column: as TypeMismatch, or as Syntax if no JSON
// value begins so.
func (d *jsonDecoder) mismatch(b []byte, p int) int {
	end := p
	switch c := b[p]; {
	case c == '"' || c == '{' || c == '[' || c == '-' || c-'0' <= 9:
	case c == 't':
		end = d.literal(b, p, "true")
	case c == 'f':
		end = d.literal(b, p, "false")
	case c == 'n':
		end = d.literal(b, p, "null")
	default:
		return d.unexpected(p)
	}
	if end < 0 {
		return end
	}
	return d.fail(TypeMismatch, p)
}

// badNumber refuses the text at p, where a number should be. end and why are results of the parser.
func (d *jsonDecoder) badNumber(b []byte, p, end int, why Reason) int {
	switch {
	case b[p] != '-' && b[p]-'0' > 9:
		return d.mismatch(b, p)
	case why == Syntax:
		return d.unexpected(end)
	}
	return d.fail(why, p)
}
