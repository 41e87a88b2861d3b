package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/segmentio/kafka-go"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka/recordbatch"
	"sluice/reliability/hold"
)

// Batch describes a record batch without delivering its records, for an operator who wants to skip it.
type Batch struct {
	recordbatch.Extent
	// Unreadable is the reason why none of its records can be read, nil if they can. It is a [hold.Error] with
	// hold.CorruptBatch or hold.Oversize.
	Unreadable error
	// Record is the first committed record at or after the requested offset, nil if the batch has none or is
	// unreadable.
	Record *connector.Record
}

// largestBatch bounds the response, in bytes, when one record batch is examined. A broker always sends a whole batch.
const largestBatch = 1 << 30

// BatchAt examines the record batch that holds an offset: where it begins and ends, and whether its records can be
// read within the limits of this Log. It does not retry. The error is a [hold.Error] if the offset is outside of the
// log, if the partition no longer exists, or if not even the bounds of the batch can be read.
func (q *questions) BatchAt(ctx context.Context, p connector.Partition, offset int64) (Batch, error) {
	part, err := q.batchAt(ctx, p, offset, q.cfg.PartitionBytes, largestBatch)
	if err != nil {
		return Batch{}, err
	}
	b := Batch{}
	if b.Extent, err = recordbatch.ExtentOf(part.records, offset); err != nil {
		return Batch{}, err
	}
	// The limit for opening the batch is the memory that a fetch would have: the fetch pool without the buffer of the
	// response, whose size is rounded up.
	if memory := recordbatch.Bounded(int(q.cfg.Memory.Size()) - b.Size*5/4); b.Size > q.largest() {
		b.Unreadable = q.oversizeAt(b.Base, "has %d bytes, the limit is %d", b.Size, q.largest())
	} else {
		b.Unreadable = recordbatch.Readable(part.records, b.Extent, q.cfg.Limits, memory)
	}
	if b.Unreadable == nil {
		b.Record, err = recordAt(part, b.Extent, offset, q.cfg.Limits)
	}
	return b, err
}

// batchAt sends one fetch request from an offset on. The response has at least one whole batch, and more up to
// maxBytes; a response larger than limit is an error.
func (q *questions) batchAt(ctx context.Context, p connector.Partition, offset int64, maxBytes, limit int) (*fetchPart, error) {
	const doing = "reading a record batch"
	m, err := q.client.metadata(ctx, p.Topic)
	if err != nil {
		return nil, AsHold(doing, err)
	}
	led, r := placed(connector.Position{Partition: p, Next: offset, Epoch: -1}, m)
	if r.hold != nil {
		return nil, r.hold
	}
	if r.err != nil {
		return nil, AsHold(doing, fmt.Errorf("%v: %w", p, r.err))
	}
	var f fetchResponse
	err = q.client.fetch(ctx, &fetchRequest{
		broker: led.Leader, minBytes: 1, maxBytes: maxBytes, limit: limit, wait: q.cfg.MaxWait,
		spans: []fetchSpan{{topic: p.TopicID, name: p.Topic, id: p.ID, leaderEpoch: led.Epoch, lastEpoch: -1, offset: offset, maxBytes: maxBytes}},
	}, &f)
	if err == nil && len(f.parts) != 1 {
		err = errMalformed
	}
	if err != nil {
		return nil, AsHold(doing, fmt.Errorf("%v: %w", p, err))
	}
	part := &f.parts[0]
	// An old broker sends no bounds with this error, so they are requested.
	if part.err == kafka.OffsetOutOfRange && part.logStart < 0 {
		bounds, err := q.Bounds(ctx, []connector.Position{{Partition: p, Next: -1, Epoch: -1}})
		if err != nil {
			return nil, err
		}
		part.logStart = bounds[p].LogStart
	}
	switch {
	case part.err == kafka.OffsetOutOfRange && offset < part.logStart:
		return nil, hold.New(hold.BehindLogStart, fmt.Sprintf("offset %d was deleted, the log starts at %d", offset, part.logStart), nil)
	case part.err == kafka.OffsetOutOfRange, part.err == 0 && len(part.records) == 0:
		return nil, hold.New(hold.AheadOfLogEnd, fmt.Sprintf("there is no committed record at offset %d or behind it", offset), nil)
	case part.err != 0:
		return nil, AsHold(doing, fmt.Errorf("%v: %w", p, part.err))
	}
	return part, nil
}

// errNoMemory means that the fetch pool has no room now. The caller may try again later.
var errNoMemory = classify.Mark(errors.New("no memory for it now"), classify.Transient)

// TimeAt returns the newest timestamp of the record batch at an offset, to the millisecond. Brokers keep the batch for
// at least the topic's retention time after that timestamp. largest is the size limit of batches of the topic in bytes.
// That much of the fetch pool is taken for the duration of the call; the error is Transient if it is not free. The call
// does not retry. Other errors are [hold.Error]s as for [Log.BatchAt].
func (q *questions) TimeAt(ctx context.Context, p connector.Partition, offset, largest int64) (time.Time, error) {
	limit := min(largest, int64(q.largest())) + 64<<10 // also has room for the framing around the batch
	if !q.cfg.Memory.TryAcquire(limit) {
		return time.Time{}, errNoMemory
	}
	defer q.cfg.Memory.Release(limit)
	part, err := q.batchAt(ctx, p, offset, 1, int(limit))
	if err != nil {
		return time.Time{}, err
	}
	ms, ok := recordbatch.NewestOf(part.records)
	if !ok {
		return time.Time{}, hold.New(hold.CorruptBatch, fmt.Sprintf("record batch at offset %d: its header has no time", offset), nil)
	}
	return time.UnixMilli(ms), nil
}

// recordAt returns the first committed record of a readable batch at or after an offset, nil if there is none.
func recordAt(part *fetchPart, e recordbatch.Extent, offset int64, limits recordbatch.Limits) (*connector.Record, error) {
	opened, err := recordbatch.NewOpener(limits, nil).Open(part.records[:e.Size], offset, part.aborted)
	if err != nil {
		return nil, err
	}
	var first [1]connector.Record
	n, err := opened.Read(first[:])
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, err
	}
	if n == 0 {
		return nil, nil
	}
	return &first[0], nil
}
