package schema

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/idempotency"
)

// WithFingerprint returns the schema of a table whose rows store their fingerprint, in an additional Kafka column.
func (s *Schema) WithFingerprint() *Schema {
	return s.withOptional(KafkaFingerprint, Type{Kind: String})
}

// Identifier computes the fingerprints of rows. It reads only columns of the table and not the Kafka record, so a row
// has the same fingerprint when it is built and when it is read back from the table. Only one goroutine may use it.
type Identifier struct {
	path   []string
	stored bool
	hasher *idempotency.Hasher
	of     []idempotency.Fingerprint // the fingerprints of the texts of a dictionary, by index

	keepIDs bool
	ids     idempotency.IDs
	id      []byte // the id of the current row
}

// KeepIDs makes the Identifier also set the id in each entry: the value of the identity column as text. If the identity
// comes from a header or from the whole content, no column has such a value, and the entries get no ids.
func (i *Identifier) KeepIDs() { i.keepIDs = !i.stored }

// Identifier returns the Identifier for an identity, or nil and no error for idempotency.ByNone. The error is a
// hold.Error with hold.SchemaConflict if the table lacks the column of the identity, or if values of its type cannot be
// an identity.
func (s *Schema) Identifier(id idempotency.Identity) (*Identifier, error) {
	i := &Identifier{path: []string{KafkaFingerprint}, stored: id.Stored(), hasher: idempotency.NewHasher(id)}
	switch {
	case id.By == idempotency.ByNone:
		return nil, nil //nolint:nilnil // no identity is not an error
	case !i.stored:
		i.path = strings.Split(id.Name, ".")
	}
	if slices.Contains(s.partitions, i.path[0]) {
		return nil, conflict("the identity %s is a partition column of the table: its empty texts are stored as null, so repetitions of them would not be found; choose another identity or other partition columns", id)
	}
	fields := s.fields
	for depth, name := range i.path {
		at := slices.IndexFunc(fields, func(f Field) bool { return f.Name == name })
		switch {
		case at < 0 && i.stored:
			return nil, conflict("the identity %s needs a column for fingerprints, which the table does not have: add it with ALTER TABLE … ADD COLUMNS (%s string), or let another table be created",
				id, KafkaFingerprint)
		case at < 0:
			return nil, conflict("the identity %s needs column %s, which the table does not have", id, strings.Join(i.path[:depth+1], "."))
		case depth < len(i.path)-1:
			if fields[at].Type.Kind != Struct {
				return nil, conflict("the identity %s leads through column %s, which is %s and has no fields", id, strings.Join(i.path[:depth+1], "."), fields[at].Type)
			}
			fields = fields[at].Type.Fields
			continue
		}
		if t := fields[at].Type; !identifies(t.Kind) || i.stored && t.Kind != String {
			return nil, conflict("the identity %s needs a column of texts, integers, doubles, booleans, dates or timestamps; %s is %s", id, strings.Join(i.path, "."), t)
		}
	}
	return i, nil
}

// identifies reports whether values of a kind can be an identity.
func identifies(k Kind) bool {
	switch k {
	case String, Long, Integer, Short, Byte, Double, Float, Boolean, Date, Timestamp:
		return true
	case Other, Decimal, Binary, Struct, Array, Map:
	}
	return false
}

// Path returns the path of the identity column: its names from the table's column down.
func (i *Identifier) Path() []string { return i.path }

// Of appends one entry for each row of a record batch, and returns all entries. The error means that the record batch
// lacks a column that the Identifier reads, or that values of its type cannot be an identity.
func (i *Identifier) Of(rows arrow.RecordBatch, to []idempotency.Entry) ([]idempotency.Entry, error) {
	find := func(name string) arrow.Array {
		if at := rows.Schema().FieldIndices(name); len(at) == 1 {
			return rows.Column(at[0])
		}
		return nil
	}
	values, nulls := find(i.path[0]), []arrow.Array(nil)
	for _, name := range i.path[1:] {
		parent, ok := values.(*array.Struct)
		if !ok {
			break
		}
		at, ok := parent.DataType().(*arrow.StructType).FieldIdx(name)
		if !ok {
			values = nil
			break
		}
		nulls, values = append(nulls, parent), parent.Field(at)
	}
	if values == nil || find(KafkaOffset) == nil || find(KafkaTimestamp) == nil {
		return to, fmt.Errorf("the rows have no columns %s, %s and %s", strings.Join(i.path, "."), KafkaOffset, KafkaTimestamp)
	}
	n := len(to)
	to, err := i.Entries(values, find(KafkaOffset), find(KafkaTimestamp), to)
	for _, parent := range nulls { // a field of a null struct is null, even if its own array has a value
		for row := range to[n:] {
			if parent.IsNull(row) {
				to[n+row].Fingerprint, to[n+row].ID = idempotency.Fingerprint{}, ""
			}
		}
	}
	return to, err
}

// Entries appends an entry for each row. The three arrays are columns of the same rows: the one that [Identifier.Path]
// names, the offsets, and the timestamps. A row without a timestamp gets an entry with time -1.
func (i *Identifier) Entries(values, offsets, timestamps arrow.Array, to []idempotency.Entry) ([]idempotency.Entry, error) {
	at, isOffset := offsets.(*array.Int64)
	stamps, isTime := timestamps.(*array.Timestamp)
	if !isOffset || !isTime {
		return to, fmt.Errorf("columns of %s and %s are no offsets and timestamps", offsets.DataType(), timestamps.DataType())
	}
	of, err := i.prints(values)
	if err != nil {
		return to, err
	}
	first := len(to)
	to = slices.Grow(to, values.Len())
	for row := range values.Len() {
		e := idempotency.Entry{Offset: at.Value(row), At: -1}
		if stamps.IsValid(row) {
			e.At = entryTime(int64(stamps.Value(row)))
		}
		if values.IsValid(row) {
			e.Fingerprint = of(row)
		}
		to = append(to, e)
	}
	if i.keepIDs {
		for row := range values.Len() {
			i.id = i.id[:0]
			if values.IsValid(row) {
				i.id = appendID(i.id, values, row)
			}
			i.ids.Add(i.id)
		}
		i.ids.MoveTo(to[first:])
	}
	return to, nil
}

// appendID appends a value of the identity column as text. Values with equal fingerprints get equal texts.
func appendID(to []byte, values arrow.Array, row int) []byte {
	text := func(s string) []byte {
		if len(s) > idempotency.MaxIDBytes {
			return to // the row has no id
		}
		return append(to, s...)
	}
	switch v := values.(type) {
	case *array.String:
		return text(v.Value(row))
	case *array.Dictionary:
		return text(v.Dictionary().(*array.String).Value(v.GetValueIndex(row)))
	case *array.Int64:
		return strconv.AppendInt(to, v.Value(row), 10)
	case *array.Int32:
		return strconv.AppendInt(to, int64(v.Value(row)), 10)
	case *array.Int16:
		return strconv.AppendInt(to, int64(v.Value(row)), 10)
	case *array.Int8:
		return strconv.AppendInt(to, int64(v.Value(row)), 10)
	case *array.Float64:
		return strconv.AppendFloat(to, v.Value(row)+0, 'g', -1, 64) // adding 0 makes -0 equal to 0
	case *array.Float32:
		return strconv.AppendFloat(to, float64(v.Value(row)+0), 'g', -1, 32)
	case *array.Boolean:
		return strconv.AppendBool(to, v.Value(row))
	case *array.Date32:
		return v.Value(row).ToTime().AppendFormat(to, time.DateOnly)
	case *array.Timestamp:
		return time.UnixMicro(int64(v.Value(row))).UTC().AppendFormat(to, time.RFC3339Nano)
	}
	return to
}

// entryTime converts the microseconds of a timestamp column to the milliseconds of an entry. Every time before 1970
// becomes -1, the value of a row without a timestamp.
func entryTime(micros int64) int64 {
	if micros < 0 {
		return -1
	}
	return micros / 1000
}

// prints returns a function that computes the fingerprint of a row from the column values. The error means that values
// of this type cannot be an identity.
func (i *Identifier) prints(values arrow.Array) (func(row int) idempotency.Fingerprint, error) {
	h := i.hasher
	text := func(s string) idempotency.Fingerprint { return h.Text([]byte(s)) }
	if i.stored {
		text = func(s string) idempotency.Fingerprint {
			f, err := idempotency.ParseFingerprint(s)
			if err != nil {
				return idempotency.Fingerprint{} // the row was written by another program
			}
			return f
		}
	}
	switch v := values.(type) {
	case *array.String:
		return func(row int) idempotency.Fingerprint { return text(v.Value(row)) }, nil
	case *array.Dictionary:
		words, ok := v.Dictionary().(*array.String)
		if !ok {
			break
		}
		i.of = i.of[:0]
		for n := range words.Len() {
			i.of = append(i.of, text(words.Value(n)))
		}
		return func(row int) idempotency.Fingerprint { return i.of[v.GetValueIndex(row)] }, nil
	case *array.Int64:
		return func(row int) idempotency.Fingerprint { return h.Integer(v.Value(row)) }, nil
	case *array.Int32:
		return func(row int) idempotency.Fingerprint { return h.Integer(int64(v.Value(row))) }, nil
	case *array.Int16:
		return func(row int) idempotency.Fingerprint { return h.Integer(int64(v.Value(row))) }, nil
	case *array.Int8:
		return func(row int) idempotency.Fingerprint { return h.Integer(int64(v.Value(row))) }, nil
	case *array.Float64:
		return func(row int) idempotency.Fingerprint { return h.Float(v.Value(row)) }, nil
	case *array.Float32:
		return func(row int) idempotency.Fingerprint { return h.Float(float64(v.Value(row))) }, nil
	case *array.Boolean:
		return func(row int) idempotency.Fingerprint { return h.Boolean(v.Value(row)) }, nil
	case *array.Date32:
		return func(row int) idempotency.Fingerprint { return h.Date(int32(v.Value(row))) }, nil
	case *array.Timestamp:
		return func(row int) idempotency.Fingerprint { return h.Time(int64(v.Value(row))) }, nil
	}
	return nil, fmt.Errorf("values of %s are no identity", values.DataType())
}
