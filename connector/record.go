package connector

import (
	"errors"

	"github.com/apache/arrow-go/v18/arrow"

	"sluice/idempotency"
)

// Records are the records of one answer, parsed as they are read. The bytes of a record stay valid and unwritten until
// Release.
type Records interface {
	// Read parses the next records into block, which it fills from the start. It returns 0 and io.EOF at the end, and
	// n > 0 with an error for those before a damaged one; that error is a hold.Error with hold.CorruptBatch.
	Read(block []Record) (n int, err error)
	// Release gives the memory of the answer back, from any goroutine, once. No record of it may be touched afterwards,
	// nor its keys, values and headers.
	Release()
}

// Record is a Kafka record. Key and Value are nil if they are null.
type Record struct {
	Offset    int64
	Timestamp int64 // milliseconds since 1970, by the producer or the broker
	Key       []byte
	Value     []byte
	Headers   []Header
}

// Header is a header of a record. Names may repeat.
type Header struct {
	Key   string
	Value []byte
}

// Decoder turns records into rows. One exists for each table.
type Decoder interface {
	// Builder makes the columns for one lane. An error means that no row of this schema can be built (a hold.Error
	// with hold.SchemaConflict).
	Builder(Schema) (Builder, error)
}

// Builder fills the columns of one chunk after the other. It belongs to one lane.
type Builder interface { //nolint:interfacebloat // what goes in, what comes out, and four numbers about it
	// Add appends the record as one row. A Poison error leaves the chunk as it was; its text says what is wrong and
	// where, never with bytes of the record. ErrChunkFull asks for Seal and says nothing of the record.
	Add(Partition, *Record) error
	// Rows and Bytes tell what Seal would return; Bytes counts the column buffers.
	Rows() int
	Bytes() int64
	// Allocated is what the chunk that fills takes in memory now, its unused capacity included; 0 before its first row.
	Allocated() int64
	// Seal returns the rows and starts the next chunk. The caller releases them. nil if there are none.
	Seal() arrow.RecordBatch
	// Sealed is what the rows of the last Seal take in memory.
	Sealed() int64
	// Ignored returns the fields that Add ignored since the last call, because the schema does not have them.
	Ignored() Ignored
}

// Identifier is a [Builder] of rows that have an identity, if the table declares one.
type Identifier interface {
	// Entries are those of the rows of the last Seal, one for each: nil if the table declares no identity. The caller owns
	// them.
	Entries() []idempotency.Entry
}

// ErrChunkFull says that a chunk has no room for one more row of this size.
var ErrChunkFull = errors.New("chunk is full")

// IDDecoder is a [Decoder] whose builders can set the producer's ids of entries. They take memory, so only a store that
// keeps them asks for them.
type IDDecoder interface {
	Decoder
	// WithIDs returns the same decoder, whose builders set ids.
	WithIDs() Decoder
}

// MaxIgnoredNames bounds the names of ignored fields that are kept per topic: producers choose how many there are.
const MaxIgnoredNames = 100

// Ignored counts the fields that a [Builder] ignored because the schema does not have them.
type Ignored struct {
	Fields int64
	// Names are those of the fields, each once, at most MaxIgnoredNames. Bytes of a record, bounded in length by the builder.
	Names []string
	// More is true if there were other names.
	More bool
}
