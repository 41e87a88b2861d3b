//nolint:gosec // G115: bits of integers are moved into words on purpose; the ranges are checked where they matter.
package decode

import (
	"math"
	"time"

	"sluice/connector"
	"sluice/connector/schema"
	"sluice/idempotency"
)

// noTimestamp is Kafka's value for a record without a timestamp.
const noTimestamp = -1

// kafkaColumns are the columns beside those of the record's value: where the record is in Kafka, its timestamp, and its
// fingerprint.
type kafkaColumns struct {
	partition, offset, timestamp *column
	fingerprint                  *column // nil if the table has no such column
	ingested                     *column // nil if the table has no such column
	now                          func() time.Time
	extra                        keyHeaders
	topic, topicID, setBy        repeated

	name string              // topic of the last record
	id   idempotency.TopicID // the id of that topic
	by   connector.TimestampType
}

func (k *kafkaColumns) set(c *column) {
	switch c.name {
	case schema.KafkaTopic:
		k.topic.column = c
	case schema.KafkaPartition:
		k.partition = c
	case schema.KafkaOffset:
		k.offset = c
	case schema.KafkaTimestamp:
		k.timestamp = c
	case schema.KafkaTopicID:
		k.topicID.column = c
	case schema.KafkaFingerprint:
		k.fingerprint = c
	case schema.KafkaTimestampType:
		k.setBy.column = c
	case schema.KafkaIngestedAt:
		k.ingested = c
	case schema.KafkaKey:
		k.extra.key = c
	case schema.KafkaHeaders:
		k.extra.setHeaders(c)
	}
}

// fits reports whether the Kafka columns can have what the record has. Its timestamp may not fit, because milliseconds
// become microseconds and producers can set any timestamp.
func (k *kafkaColumns) fits(d *jsonDecoder, r *connector.Record) bool {
	switch {
	case r.Timestamp == noTimestamp && !k.timestamp.nullable:
		d.fail(RequiredMissing, 0)
	case r.Timestamp > math.MaxInt64/1000, r.Timestamp < math.MinInt64/1000:
		d.fail(OutOfRange, 0)
	case k.setBy.column != nil && r.SetBy == connector.TimestampUnknown && !k.setBy.column.nullable:
		d.fail(RequiredMissing, 0)
		d.inColumn(k.setBy.column)
		return false
	default:
		return k.extra.fits(d, r)
	}
	d.inColumn(k.timestamp)
	return false
}

// put fills the Kafka columns of a row, except the fingerprint. The builder calls it when the record can no longer be
// refused, so these columns are never rolled back.
func (k *kafkaColumns) put(p connector.Partition, r *connector.Record) {
	row := k.offset.n
	if p.Topic != k.name || p.TopicID != k.id || row == 0 {
		k.startRun(p, row)
	}
	if k.setBy.column != nil && (r.SetBy != k.by || row == 0) {
		k.setBy.end(row)
		k.setBy.start(r.SetBy.String(), row)
		k.by = r.SetBy
	}
	k.partition.put32(uint32(p.ID))
	k.offset.put64(uint64(r.Offset))
	if r.Timestamp != noTimestamp {
		k.timestamp.fillMissed(row)
		k.timestamp.put64(uint64(r.Timestamp * 1000))
	}
	k.extra.put(r, row)
	if k.ingested != nil {
		// Milliseconds, as for Kafka's timestamps: rows of one millisecond share a value, which takes less space.
		k.ingested.fillMissed(row)
		k.ingested.put64(uint64(k.now().UnixMilli() * 1000))
	}
}

// startRun notes that the rows from a row on have the topic of p. It fills the topic columns of the rows before.
func (k *kafkaColumns) startRun(p connector.Partition, row int) {
	k.topic.end(row)
	k.topicID.end(row)
	k.name, k.id = p.Topic, p.TopicID
	k.topic.start(p.Topic, row)
	id := ""
	if p.TopicID != (idempotency.TopicID{}) {
		id = p.TopicID.String()
	}
	k.topicID.start(id, row)
}

// endRun fills the columns of repeated texts of the rows before a row.
func (k *kafkaColumns) endRun(row int) {
	k.topic.end(row)
	k.topicID.end(row)
	k.setBy.end(row)
}

// repeated fills a column whose text seldom changes. It does not append a text for each row, but all equal texts at
// once, when the text changes or the chunk ends.
type repeated struct {
	column *column // nil: the table has none
	text   []byte  // with padding; nothing else for null
	from   int     // first row of the run that is not filled yet
}

func (r *repeated) start(text string, row int) {
	r.text, r.from = append(append(r.text[:0], text...), zeroPadding[:]...), row
}

func (r *repeated) end(row int) {
	n := len(r.text) - len(zeroPadding)
	if r.column == nil || n <= 0 || row <= r.from {
		return
	}
	r.column.fillMissed(r.from)
	r.column.putTexts(r.text, n, row-r.from)
	r.from = row
}
