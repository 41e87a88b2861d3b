package decode

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"sync/atomic"
	"time"
	"unicode/utf8"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
	"sluice/reliability/deadletter"
	"sluice/reliability/hold"
)

// DeadLetterDDL declares the columns of a letter table after its Kafka columns, which locate the dead letter's own
// record. The names are those of the JSON rendering of a dead letter. A key, value or header that is not UTF-8 is
// stored in base64, and the column beside it says so: no byte of the record is lost.
const DeadLetterDDL = `original_topic string comment 'topic of the record', ` +
	`original_partition int comment 'its partition', ` +
	`original_offset bigint comment 'its offset', ` +
	`original_timestamp timestamp comment 'its timestamp, when it was enqueued; null if it is of no year from 1 to 9999', ` +
	`original_timestamp_ms bigint comment 'its timestamp as Kafka has it; -1 if it has none', ` +
	`cluster string comment 'id of its cluster', ` +
	`topic_id string comment 'id of its topic', ` +
	`message_id string comment 'its coordinates in one text: the same in each repeat of the letter', ` +
	`reason string comment 'code of why it cannot become a row', ` +
	`class string comment 'class of the error', ` +
	`error_reason string comment 'the code in words', ` +
	`error_message string comment 'what is wrong and where', ` +
	`error_class string, ` +
	`exception_class string, ` +
	`retry_count int comment 'attempts before it was given up', ` +
	`worker_instance string comment 'member that gave it up', ` +
	`first_failure_at timestamp, ` +
	`last_failure_at timestamp, ` +
	`dlq_timestamp timestamp comment 'when the dead letter was written to its topic', ` +
	`dlq_version string, ` +
	`correlation_id string comment 'in the log lines about the letter', ` +
	`batch_id string comment 'in the log lines about its batch', ` +
	`original_key string comment 'key of the record', ` +
	`original_key_encoding string comment 'base64, or null for the text itself', ` +
	`original_value string comment 'value of the record; null also if it lies where original_value_link says', ` +
	`original_value_encoding string comment 'base64, or null for the text itself', ` +
	`original_headers array<struct<key: string, key_encoding: string, value: string, value_encoding: string>> comment 'headers of the record, in order', ` +
	`error_stack_trace string, ` +
	`original_value_link struct<key: string, bytes: bigint, sha256: string, holds: string> comment 'object in the bucket that holds what was too large for the letter'`

// DeadLetters is the decoder for records of dead-letter topics, in either envelope. Each dead letter becomes a row with
// the columns of [DeadLetterDDL]. A record that is not a dead letter is refused as Poison. A null value is valid: the
// original record had none, or its value is in an object to which the dead letter has a link. The zero value is ready
// for use.
type DeadLetters struct{}

var _ connector.Decoder = DeadLetters{}

// NotALetter is the code of a record in a dead-letter topic that is not a dead letter.
const NotALetter deadletter.Reason = "not_a_letter"

// Builder implements [connector.Decoder]. Columns of the table that no dead letter has stay null.
func (DeadLetters) Builder(s connector.Schema) (connector.Builder, error) {
	table, ok := s.(*schema.Schema)
	if !ok {
		return nil, hold.New(hold.SchemaConflict, fmt.Sprintf("the decoder does not know a schema of type %T", s), nil)
	}
	letters, err := schema.ParseDDL(DeadLetterDDL)
	if err != nil {
		return nil, fmt.Errorf("columns of a letter: %w", err)
	}
	if err := table.Fits(letters.WithKafkaColumns()); err != nil {
		return nil, err
	}
	return &letterBuilder{table: table.Arrow()}, nil
}

// letterBuilder is the builder of one lane.
type letterBuilder struct {
	table  *arrow.Schema
	memory *counted
	rows   *array.RecordBuilder // nil before the first row of a chunk, so that an idle builder holds no memory
	fed    int                  // bytes of all texts in the chunk; no offset into a text exceeds it
	sealed int64
}

// maxLetters keeps the offsets of a chunk within 32 bits.
const maxLetters = math.MaxInt32 / 2

// Add implements [connector.Builder].
func (b *letterBuilder) Add(p connector.Partition, r *connector.Record) error {
	letter, err := ParseLetter(r)
	if err != nil {
		return err
	}
	row := letterRow(&letter)
	row.kafka = kafkaRow{p.Topic, p.TopicID, p.ID, r.Offset, r.Timestamp}
	size := row.size()
	switch {
	case size > maxLetters:
		return notALetter("it is larger than a chunk may be")
	case size > maxLetters-b.fed:
		return connector.ErrChunkFull
	}
	if b.rows == nil {
		b.memory = &counted{}
		b.rows = array.NewRecordBuilder(b.memory, b.table)
	}
	for i, f := range b.table.Fields() {
		row.put(f.Name, b.rows.Field(i))
	}
	b.fed += size
	return nil
}

// ParseLetter returns the dead letter in a record of a dead-letter topic, see [deadletter.Parse]. It shares the
// memory of the record. The error is Poison and has the code [NotALetter].
func ParseLetter(r *connector.Record) (deadletter.Letter, error) {
	headers := make([]deadletter.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = deadletter.Header(h)
	}
	letter, err := deadletter.Parse(deadletter.Record{Timestamp: r.Timestamp, Key: r.Key, Value: r.Value, Headers: headers})
	if err != nil {
		return letter, notALetter(err.Error())
	}
	return letter, nil
}

// LetterError means that a record of a dead-letter topic is not a dead letter. Its class is Poison. It never holds
// bytes of the record.
type LetterError struct{ Detail string }

func notALetter(detail string) error { return classify.Mark(&LetterError{detail}, classify.Poison) }

// Code returns [NotALetter].
func (e *LetterError) Code() string { return string(NotALetter) }

func (e *LetterError) Error() string { return "dead letter: " + e.Detail }

// Rows implements [connector.Builder].
func (b *letterBuilder) Rows() int {
	if b.rows == nil {
		return 0
	}
	return b.rows.Field(0).Len()
}

// Bytes implements [connector.Builder].
func (b *letterBuilder) Bytes() int64 { return b.Allocated() }

// Allocated implements [connector.Builder].
func (b *letterBuilder) Allocated() int64 {
	if b.rows == nil {
		return 0
	}
	return b.memory.bytes.Load()
}

// Seal implements [connector.Builder].
func (b *letterBuilder) Seal() arrow.RecordBatch {
	if b.sealed = 0; b.rows == nil {
		return nil
	}
	batch := b.rows.NewRecordBatch()
	b.rows.Release()
	b.sealed = b.memory.bytes.Load()
	b.rows, b.memory, b.fed = nil, nil, 0
	return batch
}

// Sealed implements [connector.Builder].
func (b *letterBuilder) Sealed() int64 { return b.sealed }

// Ignored implements [connector.Builder]. It is always empty: every part of a dead letter has its column.
func (b *letterBuilder) Ignored() connector.Ignored { return connector.Ignored{} }

// counted allocates from Go's memory and counts the bytes of one chunk. The count is atomic, because other goroutines
// release the rows.
type counted struct {
	memory.GoAllocator
	bytes atomic.Int64
}

// Allocate implements [memory.Allocator].
func (c *counted) Allocate(n int) []byte {
	c.bytes.Add(int64(n))
	return c.GoAllocator.Allocate(n)
}

// Reallocate implements [memory.Allocator].
func (c *counted) Reallocate(n int, b []byte) []byte {
	c.bytes.Add(int64(n - len(b)))
	return c.GoAllocator.Reallocate(n, b)
}

// Free implements [memory.Allocator].
func (c *counted) Free(b []byte) {
	c.bytes.Add(int64(-len(b)))
	c.GoAllocator.Free(b)
}

// row is a dead letter in the form of the columns. A nil text becomes null.
type row struct {
	kafka   kafkaRow
	letter  *deadletter.Letter
	said    rendered
	key     encoded
	value   encoded
	headers []encodedHeader
}

// kafkaRow has the coordinates of the dead letter's own record.
type kafkaRow struct {
	topic     string
	topicID   idempotency.TopicID
	partition int32
	offset    int64
	timestamp int64 // in milliseconds since 1970
}

// rendered has the fields of a dead letter that only its JSON rendering names. They are parsed from that rendering, so
// that table and rendering always agree.
type rendered struct {
	ErrorReason     string `json:"error_reason"`
	ErrorMessage    string `json:"error_message"`
	ErrorClass      string `json:"error_class"`
	ErrorStackTrace string `json:"error_stack_trace"`
	ErrorDetails    struct {
		ExceptionClass string `json:"exception_class"`
	} `json:"error_details"`
	DLQVersion string `json:"dlq_version"`
	ValueLink  *struct {
		Key    string `json:"key"`
		Bytes  int64  `json:"bytes"`
		SHA256 string `json:"sha256"`
		Holds  string `json:"holds"`
	} `json:"original_value_link"`
}

// encoded is a text as string columns hold it: text is nil for null, and encoding is "base64" or nil.
type encoded struct {
	text, encoding *string
}

type encodedHeader struct{ key, value encoded }

func letterRow(l *deadletter.Letter) row {
	r := row{letter: l, key: encode(l.Key), value: encode(l.Value)}
	for _, h := range l.Headers {
		r.headers = append(r.headers, encodedHeader{encode([]byte(h.Key)), encode(h.Value)})
	}
	context := *l
	context.Key, context.Value, context.Headers = nil, nil, nil
	if err := json.Unmarshal(context.JSON(), &r.said); err != nil {
		panic(err) // cannot happen: the JSON was just rendered by this program
	}
	return r
}

// encode returns UTF-8 bytes unchanged and others in base64.
func encode(b []byte) encoded {
	if b == nil {
		return encoded{}
	}
	text := string(b)
	if utf8.Valid(b) {
		return encoded{text: &text}
	}
	text, encoding := base64.StdEncoding.EncodeToString(b), "base64"
	return encoded{&text, &encoding}
}

// size returns an upper bound for the text of the row.
func (r *row) size() int {
	const others = 8 << 10 // more than all texts with a length limit take together
	n := others + len(r.letter.Member) + len(r.letter.Correlation) + len(r.letter.Batch) + len(r.letter.Source.Cluster)
	add := func(e encoded) {
		if e.text != nil {
			n += len(*e.text) + len("base64")
		}
	}
	add(r.key)
	add(r.value)
	for _, h := range r.headers {
		add(h.key)
		add(h.value)
	}
	return n
}

// microseconds converts a timestamp for a column. ok is false if its year is not in 1 to 9999, because common readers
// refuse such timestamps.
func microseconds(t time.Time) (arrow.Timestamp, bool) {
	return arrow.Timestamp(t.UnixMicro()), t.Year() >= 1 && t.Year() <= 9999
}
