//nolint:gosec // G115: bits of integers are moved into words on purpose; the ranges are checked where they matter.
package decode

import (
	"math"

	"sluice/connector"
	"sluice/connector/schema"
)

// noTimestamp is Kafka's value for a record without a timestamp.
const noTimestamp = -1

// kafkaColumns are the columns beside those of the record's value: where the record is in Kafka, its timestamp, and its
// fingerprint.
type kafkaColumns struct {
	topic, partition, offset, timestamp *column
	fingerprint                         *column // nil if the table has no such column

	name string // topic of the last record
	text []byte // name with padding
}

func (k *kafkaColumns) set(c *column) {
	switch c.name {
	case schema.KafkaTopic:
		k.topic = c
	case schema.KafkaPartition:
		k.partition = c
	case schema.KafkaOffset:
		k.offset = c
	case schema.KafkaTimestamp:
		k.timestamp = c
	case schema.KafkaFingerprint:
		k.fingerprint = c
	}
}

// fits reports whether the record's timestamp fits its column, in which milliseconds become microseconds. It may not,
// because producers can set any timestamp.
func (k *kafkaColumns) fits(d *jsonDecoder, r *connector.Record) bool {
	switch {
	case r.Timestamp == noTimestamp && !k.timestamp.nullable:
		d.fail(RequiredMissing, 0)
	case r.Timestamp > math.MaxInt64/1000, r.Timestamp < math.MinInt64/1000:
		d.fail(OutOfRange, 0)
	default:
		return true
	}
	d.inColumn(k.timestamp)
	return false
}

// put fills the Kafka columns of a row. Append calls it last, when the record can no longer be refused, so these
// columns are never rolled back.
func (k *kafkaColumns) put(p connector.Partition, r *connector.Record) {
	if p.Topic != k.name || k.text == nil {
		k.name, k.text = p.Topic, append([]byte(p.Topic), zeroPadding[:]...)
	}
	k.topic.putText(k.text, 0, len(k.name))
	k.partition.put32(uint32(p.ID))
	k.offset.put64(uint64(r.Offset))
	if r.Timestamp != noTimestamp {
		k.timestamp.fillMissed(k.offset.n - 1)
		k.timestamp.put64(uint64(r.Timestamp * 1000))
	}
}
