package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/reliability"
	"sluice/reliability/deadletter"
)

// produceVersion is the last version of Produce without flexible encoding. Every broker that can be read from supports
// it, and its response has the reason of a refusal as text (KIP-467).
const produceVersion = 8

// allReplicas makes the broker respond only when all in-sync replicas have the batch. At least min.insync.replicas of
// them must exist.
const allReplicas int16 = -1

// produceBatch is one encoded record batch for one partition.
type produceBatch struct {
	partition int32
	records   []byte
}

// produced is the response for one batch.
type produced struct {
	err    kafka.Error
	detail string // the broker's text about the error; "" if there is none
	offset int64  // the offset of the first record; -1 if the broker does not return it
}

// produce sends batches of one topic to the leader of their partitions, at most one for a partition, and waits until
// all in-sync replicas have them. The responses have the order of batches. After an error it is unknown which batches
// were stored.
func (c *Client) produce(ctx context.Context, leader int32, topic string, batches []produceBatch) ([]produced, error) {
	if _, err := c.version(ctx, leader, protocol.Produce, produceVersion, produceVersion); err != nil {
		return nil, err
	}
	x := &exchange{}
	e := c.begin(x, leader, protocol.Produce, produceVersion, false)
	e.i16(-1) // no transaction
	e.i16(allReplicas)
	e.size(int(c.timeout() / 2 / time.Millisecond)) // the broker must give up earlier than this client
	e.array(1)
	e.str(topic)
	e.array(len(batches))
	for _, b := range batches {
		e.i32(b.partition)
		e.size(len(b.records))
		e.b = append(e.b, b.records...)
	}
	if err := c.send(ctx, x, &e, 0); err != nil {
		return nil, err
	}
	answers, throttle, err := decodeProduced(x.in, topic, batches)
	if err != nil {
		return nil, err
	}
	return answers, reliability.Wait(ctx, throttle)
}

func decodeProduced(in []byte, topic string, batches []produceBatch) ([]produced, time.Duration, error) {
	answers, open := make([]produced, len(batches)), make(map[int32]int, len(batches))
	for i, b := range batches {
		open[b.partition] = i
	}
	d := decoder{b: in}
	for n := d.array(); n > 0 && d.err == nil; n-- {
		name := d.str()
		for n := d.array(); n > 0 && d.err == nil; n-- {
			id, a := d.i32(), produced{err: kafka.Error(d.i16())}
			a.offset = d.i64()
			d.take(2 * 8) // log append time, log start offset
			for n := d.array(); n > 0 && d.err == nil; n-- {
				d.i32() // index of a record
				d.str() // the message for this record's error
			}
			a.detail = d.str()
			if i, ok := open[id]; ok && name == topic && d.err == nil {
				answers[i] = a
				delete(open, id)
			}
		}
	}
	throttle := time.Duration(d.i32()) * time.Millisecond
	if d.err == nil && len(open) > 0 {
		return nil, 0, fmt.Errorf("%w: %d of %d partitions were not answered", errMalformed, len(open), len(batches))
	}
	return answers, throttle, d.err
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendBatch appends a record batch (magic 2) as a producer sends it: uncompressed, not idempotent, without a
// transaction.
func appendBatch(b []byte, records []deadletter.Record) []byte {
	start := len(b)
	first, newest := int64(0), int64(math.MinInt64)
	for i, r := range records {
		if i == 0 {
			first = r.Timestamp
		}
		newest = max(newest, r.Timestamp)
	}
	e := encoder{b: b}
	e.i64(0)  // base offset
	e.i32(0)  // length, below
	e.i32(-1) // leader epoch
	e.i8(2)   // magic
	e.i32(0)  // CRC, below
	e.i16(0)  // attributes
	e.size(len(records) - 1)
	e.i64(first)
	e.i64(newest)
	e.i64(-1) // producer id
	e.i16(-1) // producer epoch
	e.i32(-1) // sequence
	e.size(len(records))
	var body []byte
	for i, r := range records {
		body = append(body[:0], 0) // attributes
		body = binary.AppendVarint(body, r.Timestamp-first)
		body = binary.AppendVarint(body, int64(i))
		body = appendSized(body, r.Key)
		body = appendSized(body, r.Value)
		body = binary.AppendVarint(body, int64(len(r.Headers)))
		for _, h := range r.Headers {
			body = binary.AppendVarint(body, int64(len(h.Key)))
			body = append(body, h.Key...)
			body = appendSized(body, h.Value)
		}
		e.b = binary.AppendVarint(e.b, int64(len(body)))
		e.b = append(e.b, body...)
	}
	batch := e.b[start:]
	be.PutUint32(batch[8:], uint32(len(batch)-12)) //nolint:gosec // below the limit of a topic
	be.PutUint32(batch[17:], crc32.Checksum(batch[21:], castagnoli))
	return e.b
}

// appendSized appends bytes after their length, which is -1 for null.
func appendSized(b, v []byte) []byte {
	if v == nil {
		return binary.AppendVarint(b, -1)
	}
	return append(binary.AppendVarint(b, int64(len(v))), v...)
}
