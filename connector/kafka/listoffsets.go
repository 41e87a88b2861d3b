package kafka

import (
	"context"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/reliability"
)

// Versions that every Kafka from 2.8 on supports: the first flexible ones, which carry leader epochs (KIP-320).
const (
	listOffsetsVersion    = 6
	offsetForEpochVersion = 4
)

// end is a place in a partition's log for which ListOffsets returns the offset: an end of the log, or the first record
// whose timestamp is at least a given one.
type end struct {
	timestamp int64
	committed bool // true if only committed records count
}

var (
	endLogStart      = end{timestamp: -2}
	endLastStable    = end{timestamp: -1, committed: true}
	endHighWatermark = end{timestamp: -1}
)

// ledPartition is a partition together with the leader epoch that the metadata name. If the broker's leader epoch
// differs, it refuses the request.
type ledPartition struct {
	topic       string
	id          int32
	leaderEpoch int32
}

// offsetAt is the answer for one partition: an offset and its leader epoch.
type offsetAt struct {
	err    kafka.Error
	offset int64
	epoch  int32
}

// listOffsets requests the offset of one end of each partition in parts from their leader, in the order of parts. In
// parts, partitions of one topic must be adjacent, and none may occur twice.
func (c *Client) listOffsets(ctx context.Context, broker int32, which end, parts []ledPartition) ([]offsetAt, error) {
	return c.requestOffsets(ctx, broker, protocol.ListOffsets, listOffsetsVersion, parts, func(e *encoder) {
		e.i32(-1) // replica id: a consumer
		if which.committed {
			e.i8(1)
		} else {
			e.i8(0)
		}
	}, func(e *encoder, _ int) {
		e.i64(which.timestamp)
	}, func(d *decoder) (id int32, a offsetAt) {
		id, a.err = d.i32(), kafka.Error(d.i16())
		d.i64() // timestamp
		a.offset, a.epoch = d.i64(), d.i32()
		return id, a
	})
}

// offsetsForEpochs asks a leader where leader epochs end in its log. The response for a part has the largest epoch in
// the log that is at most the requested one, and the offset after its last record; -1 and -1 if there is none.
func (c *Client) offsetsForEpochs(ctx context.Context, broker int32, parts []ledPartition, epochs []int32) ([]offsetAt, error) {
	return c.requestOffsets(ctx, broker, protocol.OffsetForLeaderEpoch, offsetForEpochVersion, parts, func(e *encoder) {
		e.i32(-1) // replica id: a consumer
	}, func(e *encoder, i int) {
		e.i32(epochs[i])
	}, func(d *decoder) (id int32, a offsetAt) {
		a.err, id = kafka.Error(d.i16()), d.i32()
		a.epoch, a.offset = d.i32(), d.i64()
		return id, a
	})
}

// requestOffsets sends a ListOffsets or OffsetForLeaderEpoch request, which have the same form, and returns the answers
// in the order of parts. head encodes the fields before the topics, question the fields of parts[i], and answer decodes
// one partition of the response.
func (c *Client) requestOffsets(ctx context.Context, broker int32, key protocol.ApiKey, version int16, parts []ledPartition,
	head func(*encoder), question func(*encoder, int), answer func(*decoder) (int32, offsetAt),
) ([]offsetAt, error) {
	if _, err := c.version(ctx, broker, key, version, version); err != nil {
		return nil, err
	}
	x := &exchange{}
	e := c.begin(x, broker, key, version, true)
	head(&e)
	topics := 0
	for i := range parts {
		if i == 0 || parts[i].topic != parts[i-1].topic {
			topics++
		}
	}
	e.array(topics)
	for i := 0; i < len(parts); {
		n := i + 1
		for n < len(parts) && parts[n].topic == parts[i].topic {
			n++
		}
		e.str(parts[i].topic)
		e.array(n - i)
		for ; i < n; i++ {
			e.i32(parts[i].id)
			e.i32(parts[i].leaderEpoch)
			question(&e, i)
			e.tags()
		}
		e.tags()
	}
	e.tags()
	if err := c.send(ctx, x, &e, 0); err != nil {
		return nil, err
	}

	type place struct {
		topic string
		id    int32
	}
	index := make(map[place]int, len(parts))
	for i, p := range parts {
		index[place{p.topic, p.id}] = i
	}
	d := decoder{b: x.in, flexible: true}
	d.tags() // response header v1
	throttle := time.Duration(d.i32()) * time.Millisecond
	answers := make([]offsetAt, len(parts))
	for n := d.array(); n > 0 && d.err == nil; n-- {
		topic := d.str()
		for n := d.array(); n > 0 && d.err == nil; n-- {
			id, a := answer(&d)
			d.tags()
			if i, ok := index[place{topic, id}]; ok && d.err == nil {
				answers[i] = a
				if a.err == kafka.UnsupportedVersion {
					c.forget(broker)
				}
				delete(index, place{topic, id})
			}
		}
		d.tags()
	}
	if d.err == nil && len(index) > 0 {
		return nil, fmt.Errorf("%w: %d of %d partitions were not answered", errMalformed, len(index), len(parts))
	}
	if d.err != nil {
		return nil, d.err
	}
	return answers, reliability.Wait(ctx, throttle)
}
