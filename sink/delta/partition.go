package delta

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"strconv"
	"strings"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"sluice/connector/schema"
	"sluice/sink/delta/datafile"
)

// partitioner computes the values of partition columns, and numbers the different ones in the order in which they come.
// It implements [datafile.Partitioner] for one call of the encoder.
type partitioner struct {
	expressions []schema.Expression
	columns     []string // names of the partition columns
	numbers     map[string]int32
	values      []map[string]*string // the values of each table partition, as an add has them
}

var _ datafile.Partitioner = (*partitioner)(nil)

// newPartitioner returns nil for a table without partitions.
func newPartitioner(table *schema.Schema) (*partitioner, error) {
	if len(table.Partitions()) == 0 {
		return nil, nil //nolint:nilnil // no partitions are not an error
	}
	expressions, err := table.Expressions()
	if err != nil {
		return nil, err
	}
	return &partitioner{expressions: expressions, columns: table.Partitions(), numbers: map[string]int32{}}, nil
}

// Columns implements [datafile.Partitioner].
func (p *partitioner) Columns() []string { return p.columns }

// Of implements [datafile.Partitioner].
func (p *partitioner) Of(rows arrow.RecordBatch) ([]int32, error) {
	texts := make([]textOf, len(p.expressions))
	for i, e := range p.expressions {
		at := rows.Schema().FieldIndices(e.Source)
		if len(at) == 0 { // rows of an older schema lack the column
			texts[i] = func(int) ([]byte, error) { return nil, nil }
			continue
		}
		var err error
		if texts[i], err = textsOf(e, rows.Column(at[0])); err != nil {
			return nil, err
		}
	}
	numbers := make([]int32, rows.NumRows())
	var key, last []byte
	for row := range numbers {
		key = key[:0]
		for i := range texts {
			text, err := texts[i](row)
			if err == nil && string(text) == schema.NullPartition {
				err = fmt.Errorf("the text %s", text)
			}
			if err != nil {
				return nil, fmt.Errorf("row %d: %w cannot be a value of partition column %s", row, err, p.columns[i])
			}
			if len(text) == 0 { // by the protocol the empty text is null
				key = append(key, 0)
				continue
			}
			key = append(binary.AppendUvarint(append(key, 1), uint64(len(text))), text...)
		}
		if row > 0 && string(key) == string(last) {
			numbers[row] = numbers[row-1]
			continue
		}
		number, known := p.numbers[string(key)]
		if !known {
			number = int32(len(p.values)) //nolint:gosec // at most one for each row of a batch
			p.numbers[string(key)] = number
			p.values = append(p.values, p.valuesOf(key))
		}
		numbers[row] = number
		key, last = last, key
	}
	return numbers, nil
}

// valuesOf decodes the key of a table partition.
func (p *partitioner) valuesOf(key []byte) map[string]*string {
	values := make(map[string]*string, len(p.columns))
	for _, name := range p.columns {
		valued := key[0] == 1
		if key = key[1:]; !valued {
			values[name] = nil
			continue
		}
		n, size := binary.Uvarint(key)
		text := string(key[size : size+int(n)])      //nolint:gosec // a length that Of has written
		values[name], key = &text, key[size+int(n):] //nolint:gosec // as above
	}
	return values
}

// textOf computes the value of a row, as the log has it ("Partition Value Serialization" of the protocol). It is empty
// for null, and valid until the next call. The error names a value that a partition column cannot have.
type textOf func(row int) ([]byte, error)

// textsOf returns the function for an expression and the column of its source.
func textsOf(e schema.Expression, a arrow.Array) (textOf, error) {
	var b []byte
	valid := func(text func(row int) []byte) textOf {
		return func(row int) ([]byte, error) {
			if a.IsNull(row) {
				return nil, nil
			}
			b = text(row)
			return b, nil
		}
	}
	timed := func(times *array.Timestamp, layout string) textOf {
		return func(row int) ([]byte, error) {
			v := int64(times.Value(row))
			switch {
			case a.IsNull(row):
				return nil, nil
			case !schema.IsPartitionTime(v):
				return nil, fmt.Errorf("the timestamp %d", v)
			}
			b = time.UnixMicro(v).UTC().AppendFormat(b[:0], layout)
			return b, nil
		}
	}
	switch e.Function {
	case schema.DateOf, schema.HourOf:
		times, ok := a.(*array.Timestamp)
		if !ok {
			return nil, fmt.Errorf("%s: the rows have %s", e, a.DataType())
		}
		if e.Function == schema.HourOf {
			return timed(times, "2006-01-02-15"), nil
		}
		return timed(times, time.DateOnly), nil
	case schema.BucketOf:
		hash, err := hashOf(a)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", e, err)
		}
		return valid(func(row int) []byte {
			return strconv.AppendInt(b[:0], int64(hash(row)&0x7fffffff)%int64(e.Buckets), 10)
		}), nil
	case schema.AsIs:
	}
	if texts := stringsOf(a); texts != nil {
		return valid(func(row int) []byte { return append(b[:0], texts(row)...) }), nil
	}
	if integer := integersOf(a); integer != nil {
		return valid(func(row int) []byte { return strconv.AppendInt(b[:0], integer(row), 10) }), nil
	}
	switch v := a.(type) {
	case *array.Boolean:
		return valid(func(row int) []byte { return strconv.AppendBool(b[:0], v.Value(row)) }), nil
	case *array.Date32:
		return func(row int) ([]byte, error) {
			switch {
			case a.IsNull(row):
				return nil, nil
			case !schema.IsPartitionDate(int32(v.Value(row))):
				return nil, fmt.Errorf("the date %d", v.Value(row))
			}
			b = v.Value(row).ToTime().AppendFormat(b[:0], time.DateOnly)
			return b, nil
		}, nil
	case *array.Timestamp:
		return timed(v, "2006-01-02T15:04:05.000000Z"), nil
	}
	return nil, fmt.Errorf("values of %s cannot be those of a partition column", a.DataType())
}

// stringsOf returns a function that returns the text of a row, nil for an array of another type.
func stringsOf(a arrow.Array) func(row int) string {
	switch v := a.(type) {
	case *array.String:
		return v.Value
	case *array.Dictionary:
		if words, ok := v.Dictionary().(*array.String); ok {
			return func(row int) string { return words.Value(v.GetValueIndex(row)) }
		}
	}
	return nil
}

// integersOf returns a function that returns the integer of a row, nil for an array of another type.
func integersOf(a arrow.Array) func(row int) int64 {
	switch v := a.(type) {
	case *array.Int64:
		return v.Value
	case *array.Int32:
		return func(row int) int64 { return int64(v.Value(row)) }
	case *array.Int16:
		return func(row int) int64 { return int64(v.Value(row)) }
	case *array.Int8:
		return func(row int) int64 { return int64(v.Value(row)) }
	}
	return nil
}

// hashOf returns a function that hashes a value as the bucket transform of Iceberg does (its specification, appendix
// B): numbers, days and microseconds as 8 bytes, texts as UTF-8.
func hashOf(a arrow.Array) (func(row int) uint32, error) {
	if texts := stringsOf(a); texts != nil {
		return func(row int) uint32 { return murmur3([]byte(texts(row))) }, nil
	}
	integer := integersOf(a)
	switch v := a.(type) {
	case *array.Date32:
		integer = func(row int) int64 { return int64(v.Value(row)) }
	case *array.Timestamp:
		integer = func(row int) int64 { return int64(v.Value(row)) }
	}
	if integer == nil {
		return nil, fmt.Errorf("values of %s have no hash", a.DataType())
	}
	return func(row int) uint32 {
		return murmur3(binary.LittleEndian.AppendUint64(nil, uint64(integer(row)))) //nolint:gosec // the bits of the number
	}, nil
}

// murmur3 is the 32-bit MurmurHash3 for x86 with seed 0.
func murmur3(data []byte) uint32 {
	const c1, c2 = 0xcc9e2d51, 0x1b873593
	h, n := uint32(0), uint32(len(data)) //nolint:gosec // the hash takes the length modulo 2^32
	for ; len(data) >= 4; data = data[4:] {
		k := bits.RotateLeft32(binary.LittleEndian.Uint32(data)*c1, 15) * c2
		h = bits.RotateLeft32(h^k, 13)*5 + 0xe6546b64
	}
	if len(data) > 0 {
		var tail [4]byte
		copy(tail[:], data)
		h ^= bits.RotateLeft32(binary.LittleEndian.Uint32(tail[:])*c1, 15) * c2
	}
	h ^= n
	h = (h ^ h>>16) * 0x85ebca6b
	h = (h ^ h>>13) * 0xc2b2ae35
	return h ^ h>>16
}

const (
	// maxSegment is the largest size of a directory's name that is not a hash: most file systems allow no more.
	maxSegment = 255
	// maxDirectory is the size from which on all directories of a file are one that is named by a hash. The rest of the
	// 1024 bytes of a key is for the prefix of the table and the name of the file.
	maxDirectory = 512
)

// directory returns the directory of the files of a table partition, with a slash at its end, or "" if the table has no
// partitions. It follows Hive's convention, such as country=DE/day=2026-01-31/. If a name would be too long, the
// directory is named by a hash. Readers take the values from the log, so its name decides nothing. Polars takes them from
// the name: it would return null for a name without "=", and refuses the table for a column that the table cannot have.
func directory(columns []string, values map[string]*string) string {
	var b strings.Builder
	plain := true
	for _, name := range columns {
		segment := escapeName(name) + "="
		if v := values[name]; v != nil {
			segment += escapeValue(*v)
		} else {
			segment += schema.NullPartition
		}
		plain = plain && len(segment) <= maxSegment
		b.WriteString(segment + "/")
	}
	if plain && b.Len() <= maxDirectory {
		return b.String()
	}
	sum := sha256.Sum256([]byte(b.String()))
	return "(hash)=" + hex.EncodeToString(sum[:16]) + "/"
}

// escapeName escapes the name of a column for a directory as Hive does. Polars compares it with the name as it is.
func escapeName(text string) string {
	return escape(text, func(c byte) bool { return c < ' ' || strings.IndexByte("\"#%'*/:=?\\{[]^\x7f", c) >= 0 })
}

// escapeValue escapes a value for a directory. Beside what Hive escapes it escapes all that URLs escape: Polars reads no
// keys of S3 with such characters.
func escapeValue(text string) string {
	return escape(text, func(c byte) bool {
		plain := c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c >= 'a' && c <= 'z' || strings.IndexByte("!$&()+,-.;@_~", c) >= 0
		return !plain
	})
}

func escape(text string, special func(c byte) bool) string {
	var b strings.Builder
	for i := range len(text) {
		if c := text[i]; special(c) {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	return b.String()
}
