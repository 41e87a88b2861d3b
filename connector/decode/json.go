// Package decode turns the values of records into columns.
//
// JSON is parsed in one pass, directed by the schema of the table, straight into column buffers that become Arrow
// arrays: no tree, no map, no allocation per record. It accepts exactly RFC 8259 in UTF-8, one object per record.
// Everything that other parsers repair or guess is refused with a [Reason].
//
// Read json.go (a record, a chunk), walk.go (its fields), column.go (the columns). text.go, number.go and
// timestamp.go parse values; skip.go checks undeclared fields.
//
// Parsing functions return the position after what they read, or a negative one after [jsonDecoder.fail].
package decode

import (
	"cmp"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// Default limits of a record.
const (
	DefaultMaxBytes  = 16 << 20
	DefaultMaxDepth  = 64
	DefaultMaxValues = 1_000_000
)

// JSON is the decoder of JSON records. Its zero value is ready for use.
//
// A field of the record belongs to the column of exactly the same name. A missing field and null are null; in a NOT
// NULL column they are refused. Undeclared fields are checked, ignored and counted, refused with Strict, or kept with
// Rescue. A field named like a Kafka column counts as undeclared, because the value of a record never fills those
// columns. A null value becomes a row without fields.
//
//	string                   any string; \u0000 is data
//	tinyint to bigint        a number in range without a fraction, also 1.0 and 1e2
//	float, double            correctly rounded; too large is refused, too small is 0, -0 stays
//	decimal                  a number, or a string with one, that has no more digits than the type
//	boolean                  true, false
//	date                     "YYYY-MM-DD"
//	timestamp                RFC 3339 with any offset, to the microsecond
//	binary                   base64 with padding
//	struct, map              object
//	array                    array
//
// Columns has exceptions for single columns.
type JSON struct {
	MaxBytes int // limits the size of a record's value; DefaultMaxBytes if 0, at most 1 GiB
	MaxDepth int // limits the nesting, in which the record itself is level 1; DefaultMaxDepth if 0
	// Limits list elements plus values in undeclared fields (the schema limits all other values); DefaultMaxValues if
	// 0.
	MaxValues int

	// Columns says how records write the values of single columns. An option for a column of another type is a hold.
	Columns ColumnOptions

	// Strict refuses a record with an undeclared field instead of ignoring the field.
	Strict bool
	// Rescue keeps undeclared fields in the column schema.Rescued, which the table must have: a JSON object whose names
	// are the paths of the fields. It leaves out fields that are null.
	Rescue bool
	// NewColumns, unless nil, makes columns of undeclared fields, as many as it allows: see [JSON.Grow]. The builders
	// keep the fields in schema.Rescued, even if the table lacks it.
	NewColumns *schema.NewColumns
	// Declared has the columns of the configuration, nil for none. A value that does not fit one of these is refused.
	// Where undeclared fields are kept, so are values that do not fit a column that was made of such a field; with
	// NewColumns, also those that do not fit a column that another program has added.
	Declared *schema.Schema

	// Identity says which part of a record identifies it for its producer. With one, each row has a fingerprint entry.
	Identity idempotency.Identity
	// IDs adds the producer's own id to the entries: see [idempotency.Entry].
	IDs bool

	// Now returns the time at which a record is decoded, for tables that store it; time.Now if nil.
	Now func() time.Time

	// Spare gets the buffers of columns once the rows are released, and lends the buffers again; nil means Go's memory.
	Spare Spare
}

var _ connector.Decoder = JSON{}

// maxDistinct bounds the dictionary of a string column per chunk. With more distinct values a dictionary costs more
// than it saves.
const maxDistinct = 4096

// maxRecord is the largest allowed MaxBytes. It keeps the offsets of a chunk within 32 bits.
const maxRecord = 1 << 30

// Builder implements [connector.Decoder]. The schema must be a [schema.Schema] with Kafka columns. The rows have the
// columns of its method Written. A string column is an Arrow dictionary in chunks where its values repeat, and plain
// text in others.
func (j JSON) Builder(s connector.Schema) (connector.Builder, error) {
	d, err := j.newDecoder(s, maxDistinct)
	if err != nil {
		return nil, err // without it the result would be a nil *jsonDecoder in an interface that is not nil
	}
	return d, nil
}

// bare returns a decoder without columns.
func (j JSON) bare(distinct int) *jsonDecoder {
	j.MaxBytes = min(cmp.Or(j.MaxBytes, DefaultMaxBytes), maxRecord)
	j.MaxDepth = cmp.Or(j.MaxDepth, DefaultMaxDepth)
	if j.Spare == nil {
		j.Spare = heap{}
	}
	j.MaxValues = cmp.Or(j.MaxValues, DefaultMaxValues)
	return &jsonDecoder{spare: j.Spare, limits: j, maxDistinct: distinct, names: nameSet{seed: maphash.MakeSeed()}}
}

func (j JSON) newDecoder(s connector.Schema, distinct int) (*jsonDecoder, error) {
	table, ok := s.(*schema.Schema)
	if !ok {
		return nil, hold.New(hold.SchemaConflict, fmt.Sprintf("the decoder does not know a schema of type %T", s), nil)
	}
	if err := table.HasKafkaColumns(); err != nil {
		return nil, err
	}
	if j.Now == nil {
		j.Now = time.Now
	}
	written := table.Written()
	if j.NewColumns != nil {
		written = written.WithRescued()
	}
	if j.keeps() {
		if err := written.CanRescue(); err != nil {
			return nil, err
		}
	}
	d := j.bare(distinct)
	d.kafka.now = j.Now
	var err error
	if d.identities, err = newIdentities(j.Identity, j.IDs, table); err != nil {
		return nil, err
	}
	var h *hold.Error
	d.rescue.extra = len(written.Fields()) > len(table.Written().Fields())
	if err := d.layOut(written); errors.As(err, &h) {
		return nil, err
	} else if err != nil {
		return nil, hold.New(hold.SchemaConflict, "JSON records do not fit the table", err)
	}
	if err := d.parts.set(d, table); err != nil {
		return nil, err
	}
	return d, nil
}

// jsonDecoder is the builder of one lane.
type jsonDecoder struct {
	spare       Spare
	limits      JSON
	maxDistinct int // limits each dictionary; 0 means no dictionaries

	columns []*column // the columns of the batch, in order
	root    *object   // the columns of the record's value
	kafka   kafkaColumns
	parts   partitionSources
	identities
	open    bool // true while the buffers of the chunk are reserved
	rows    int
	fed     int // bytes of all records in the chunk that columns may have; no offset into a text exceeds it
	ignored ignoredFields
	rescue  rescuer
	sealed  int64 // size of the last batch in bytes

	// State of the current record.
	record  []byte
	copied  []byte // a copy of the record with padding
	scratch []byte // the last string with escapes after unescaping, with padding
	values  int    // number of values that count against MaxValues
	objects int    // number of objects with undeclared fields so far
	names   nameSet

	// Why and where the current record is refused:
	reason   Reason
	offset   int
	path     []string // the steps from the failure outwards: innermost column or element first
	failedIn *column  // innermost column, nil if the failure is in no column
	field    string   // name of the undeclared field that is the failure
}

// layOut makes the columns of a table: those of the record's value as members of the root object, and the Kafka
// columns.
func (d *jsonDecoder) layOut(s *schema.Schema) error {
	types := s.Arrow().Fields()
	var fields []schema.Field
	var fieldTypes []arrow.Field
	d.columns = make([]*column, len(types))
	for i, f := range s.Fields() {
		if !schema.IsKafkaColumn(f.Name) && !d.rescues(f.Name) {
			fields, fieldTypes = append(fields, f), append(fieldTypes, types[i])
			continue
		}
		c, err := d.newColumn(f.Type, types[i], nil, []string{f.Name}, f.Name, 1)
		if err != nil {
			return err
		}
		if f.Name == schema.KafkaFingerprint {
			c.plainChunks = math.MaxInt // fingerprints hardly repeat
		}
		d.columns[i] = c
		if d.rescues(f.Name) {
			d.rescue.column = c
		} else {
			d.kafka.set(c)
		}
	}
	var declared []schema.Field
	if d.limits.Declared != nil {
		declared = d.limits.Declared.Fields()
	}
	var err error
	if d.root, err = d.newObject(fields, fieldTypes, declared, nil, "", 1); err != nil {
		return err
	}
	if d.rescue.column != nil {
		d.root.locate(nil)
	}
	next := 0
	for i := range d.columns {
		if d.columns[i] == nil {
			d.columns[i] = d.root.members[next].column
			next++
		}
	}
	return nil
}

// Add implements [connector.Builder].
func (d *jsonDecoder) Add(p connector.Partition, r *connector.Record) error {
	d.start(r.Value)
	err := d.add(p, r)
	d.record = nil // a reference to the record would keep a whole fetch response in memory
	return err
}

func (d *jsonDecoder) add(p connector.Partition, r *connector.Record) error {
	switch {
	case r.Value != nil && len(r.Value) == 0:
		d.fail(NoValue, 0)
	case len(r.Value) > d.limits.MaxBytes:
		d.fail(TooLarge, 0)
	case d.rows > 0 && d.largest(r.Value)+d.kafka.extra.size(r) > math.MaxInt32-d.fed, d.rows == math.MaxInt32:
		return connector.ErrChunkFull
	case d.kafka.fits(d, r) && d.decode() && d.parts.take(d, r):
		d.kafka.put(p, r)
		if c := d.kafka.fingerprint; c != nil {
			d.print(c, d.rows, r)
		}
		d.fed += len(r.Value) + d.kafka.extra.size(r) + d.rescue.put(d.rows)
		d.rows++
		d.ignored.keep()
		return nil
	}
	return d.refuse()
}

// largest returns the largest number of bytes that a record adds to an offset of a column.
func (d *jsonDecoder) largest(value []byte) int {
	if d.rescue.column == nil {
		return len(value)
	}
	return len(value) + d.limits.MaxBytes
}

// start resets the state of the record. It reserves buffers at the first record of a chunk, so that an idle builder
// holds no memory.
func (d *jsonDecoder) start(value []byte) {
	if !d.open {
		for _, c := range d.columns {
			c.reserve()
		}
		d.open = true
	}
	d.record, d.values, d.objects = value, 0, 0
	if len(d.names.names) > 0 {
		d.names.reset()
	}
}

// decode parses the record into the columns of the root. It returns false, after a call of fail, if the record is
// refused.
func (d *jsonDecoder) decode() bool {
	if d.record == nil {
		return d.tombstone()
	}
	b := d.padded(d.record)
	p := space(b, 0)
	if b[p] == '{' {
		p = d.object(d.root, b, p+1, d.rows)
	} else {
		p = d.mismatch(b, p)
	}
	if p < 0 {
		return false
	}
	if p = space(b, p); p < len(d.record) {
		d.fail(TrailingBytes, p)
		return false
	}
	return true
}

// padded returns the record with padding after it. A record without headers that lies in a record batch is followed by
// a zero byte (its number of headers) and by more records: it is read in place, which saves 4 to 20 % of the time. The
// zero byte ends every loop; the bytes after it are loaded, but have no effect. Nothing may write them meanwhile,
// which [connector.Records] guarantees. A caller without that guarantee passes value[:n:n].
func (d *jsonDecoder) padded(record []byte) []byte {
	if n := len(record); cap(record) >= n+padding && record[:n+1][n] == 0 {
		return record[:n+padding]
	}
	d.copied = append(append(d.copied[:0], record...), zeroPadding[:]...)
	return d.copied
}

// fail records at which position and why the record is refused. It returns -1, which parsing functions return as the
// position.
func (d *jsonDecoder) fail(why Reason, p int) int {
	d.reason, d.offset = why, p
	return -1
}

// refuse removes what the refused record added to the columns, and returns the error that fail recorded.
func (d *jsonDecoder) refuse() error {
	d.root.truncate(d.rows)
	d.ignored.drop()
	d.rescue.drop()
	slices.Reverse(d.path)
	path := strings.TrimPrefix(strings.Join(d.path, ""), ".")
	e := &Error{Reason: d.reason, Path: path, Offset: d.offset, Field: d.field}
	if d.offset < len(d.record) {
		e.explain(d.failedIn, d.record[d.offset])
	}
	d.path, d.failedIn, d.field = d.path[:0], nil, ""
	return classify.Mark(e, classify.Poison)
}

// Rows implements [connector.Builder].
func (d *jsonDecoder) Rows() int { return d.rows }

// Bytes implements [connector.Builder]. Text counts without its dictionary: Seal may drop the dictionary, and the
// largest memory of the chunk must be known before.
func (d *jsonDecoder) Bytes() (size int64) {
	if !d.open {
		return 0
	}
	d.kafka.endRun(d.rows)
	for _, c := range d.columns {
		size += c.size(d.rows)
	}
	return size
}

// Allocated implements [connector.Builder].
func (d *jsonDecoder) Allocated() (size int64) {
	if !d.open {
		return 0
	}
	for _, c := range d.columns {
		size += c.allocated()
	}
	return size + int64(cap(d.copied)+cap(d.scratch)+cap(d.kafka.extra.padded)+cap(d.rescue.text)) + d.ids.Allocated() + d.parts.size(d.rows)
}

// Ignored implements [connector.Builder]. Fields of refused records do not count.
func (d *jsonDecoder) Ignored() connector.Ignored { return d.ignored.take() }

// Seal implements [connector.Builder].
func (d *jsonDecoder) Seal() arrow.RecordBatch {
	if d.sealed = 0; d.rows == 0 {
		return nil
	}
	d.kafka.endRun(d.rows)
	fields, arrays := make([]arrow.Field, 0, len(d.columns)), make([]arrow.Array, 0, len(d.columns))
	for _, c := range d.columns {
		unused := d.rescue.extra && c == d.rescue.column && c.n == 0
		f, data := c.finishField(d.rows)
		if unused {
			data.Release()
			continue
		}
		fields, arrays = append(fields, f), append(arrays, array.MakeFromData(data))
		d.sealed += allocatedBy(data)
		data.Release()
	}
	batch := array.NewRecordBatch(arrow.NewSchema(fields, nil), arrays, int64(d.rows))
	for _, a := range arrays {
		a.Release()
	}
	d.of(batch)
	d.sealed += idempotency.IDBytes(d.entries) + d.parts.size(d.rows)
	d.rows, d.fed, d.open = 0, 0, false
	d.trim()
	return batch
}

// Sealed implements [connector.Builder].
func (d *jsonDecoder) Sealed() int64 { return d.sealed }

// allocatedBy returns the memory of an array's buffers, including unused capacity.
func allocatedBy(data arrow.ArrayData) (size int64) {
	for _, b := range data.Buffers() {
		if b != nil {
			size += int64(cap(b.Buf()))
		}
	}
	for _, child := range data.Children() {
		size += allocatedBy(child)
	}
	if d, ok := data.Dictionary().(*array.Data); ok && d != nil {
		size += allocatedBy(d)
	}
	return size
}

// trim releases the buffers that an unusually large record left.
func (d *jsonDecoder) trim() {
	const usual = 64 << 10
	if cap(d.copied) > usual {
		d.copied = nil
	}
	if cap(d.scratch) > usual {
		d.scratch = nil
	}
	if cap(d.kafka.extra.padded) > usual {
		d.kafka.extra.padded = nil
	}
	if cap(d.rescue.text) > usual {
		d.rescue.text = nil
	}
}
