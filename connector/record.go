package connector

import (
	"errors"
	"fmt"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/idempotency"
)

// Records are the records of one fetch result, parsed while they are read. The bytes of a record stay valid and
// unchanged until Release.
type Records interface {
	// Read parses the next records into block, from its first element on, and returns their number. At the end it
	// returns 0 and io.EOF. If a record is damaged, it returns the records before that one, perhaps none, and a
	// [hold.Error] with hold.CorruptBatch.
	Read(block []Record) (n int, err error)
	// Release returns the memory of the fetch result. It must be called once, from any goroutine. Afterwards no
	// record, key, value or header of the result may be used.
	Release()
}

// Record is a Kafka record. A null Key or Value is nil.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970, set as SetBy says
	SetBy     TimestampType
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Size returns the bytes of the key, the value and the headers.
func (r *Record) Size() int {
	n := len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

// TimestampType says who set the timestamp of a record [timestamp.type].
type TimestampType uint8

// The types of timestamps. Those of records from dead letters are unknown, because dead letters do not keep the type.
const (
	TimestampUnknown TimestampType = iota
	CreateTime                     // the producer
	LogAppendTime                  // the broker
)

// String returns Kafka's name of the type, "" if it is unknown.
func (t TimestampType) String() string {
	switch t {
	case CreateTime:
		return "CreateTime"
	case LogAppendTime:
		return "LogAppendTime"
	case TimestampUnknown:
	}
	return ""
}

// Header is a header of a record. Keys may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Decoder turns records into rows of one table.
type Decoder interface {
	// Builder returns a builder for one lane. It fails with a [hold.Error] (hold.SchemaConflict) if no row of this
	// schema can be built.
	Builder(Schema) (Builder, error)
}

// Builder fills the columns of one chunk after another. One lane owns it.
type Builder interface { //nolint:interfacebloat // what goes in, what comes out, and four numbers about it
	// Add appends the record as one row. If the record is bad, the error has class Poison and the chunk is unchanged;
	// the text of the error says what is wrong and where, and contains no bytes of the record. [ErrChunkFull] says
	// nothing about the record: the caller must call Seal and then Add again.
	Add(Partition, *Record) error
	// Rows and Bytes return the size of the open chunk; Bytes counts the column buffers.
	Rows() int
	Bytes() int64
	// Allocated returns the memory of the open chunk in bytes, including unused capacity and the buffers that a refused
	// record has left. It is 0 from Seal to the next Add.
	Allocated() int64
	// Seal returns the rows and starts the next chunk. The caller must release them. It returns nil if there are no
	// rows.
	Seal() arrow.RecordBatch
	// Sealed returns the memory in bytes of the rows that the last Seal returned.
	Sealed() int64
	// Ignored returns the fields that Add ignored since the last call because the schema does not have them.
	Ignored() Ignored
}

// IdentityBuilder is a [Builder] that returns the fingerprints of its rows. Duplicates are found only in tables whose
// decoder makes such builders.
type IdentityBuilder interface {
	// Entries returns the fingerprint entry of each row of the last Seal, nil if the table declares no identity. The
	// caller owns them.
	Entries() []idempotency.Entry
}

// ErrChunkFull means that the open chunk has no room for a row of this size.
var ErrChunkFull = errors.New("chunk is full")

// IDDecoder is a [Decoder] that can also make builders which set the producer's ids in entries. The ids take memory, so
// only tables whose store keeps them use such builders.
type IDDecoder interface {
	Decoder
	// WithIDs returns the same decoder with builders that set the ids.
	WithIDs() Decoder
}

// Grower is a [Decoder] whose builders keep the fields of records that have no column, and that makes columns of them
// once a batch is sealed. Rows of its builders may have a column that the schema lacks, so they are staged only for a
// snapshot that [Grow] has returned.
type Grower interface {
	Decoder
	// Grow returns what pieces need to be staged for a table with this schema. It is pure, except that it uses now.
	Grow(s Schema, pieces []Piece, now time.Time) (Growth, error)
}

// Growth is what [Grower.Grow] has found.
type Growth struct {
	// Schema is that of the table, extended by columns for the fields that were kept. It is the same value if the
	// pieces need no column.
	Schema Schema
	// Fit fills the columns of Schema from the fields that were kept: see [Snapshot.Fit]. It is nil if there is nothing to
	// fill.
	Fit func(arrow.RecordBatch) (arrow.RecordBatch, error)
	// Full is true if fields got no column because the configuration allows no more of them.
	Full bool
}

// Grow returns the snapshot for which pieces are staged: s itself, or a copy of it whose schema has further columns. full
// is that of [Growth].
func Grow(d Decoder, s *Snapshot, pieces []Piece) (staged *Snapshot, full bool, err error) {
	g, ok := d.(Grower)
	if !ok {
		return s, false, nil
	}
	grown, err := g.Grow(s.Schema, pieces, time.Now())
	if err != nil {
		return nil, false, fmt.Errorf("columns for new fields: %w", err)
	}
	if grown.Schema == s.Schema && grown.Fit == nil {
		return s, grown.Full, nil
	}
	next := *s
	next.Schema, next.Fit = grown.Schema, grown.Fit
	return &next, grown.Full, nil
}

// MaxIgnoredNames bounds the names of ignored fields that are kept per topic, because producers choose how many
// there are.
const MaxIgnoredNames = 100

// Ignored counts the fields that a [Builder] ignored because the schema does not have them.
type Ignored struct {
	Fields int64
	// Names are the distinct names of the fields, at most [MaxIgnoredNames]. They are bytes of a record; the
	// builder bounds their length.
	Names []string
	// More is true if there were names beyond MaxIgnoredNames.
	More bool
}
