package kafka

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/connector/kafka/recordbatch"
	"sluice/idempotency"
)

// The supported versions of Fetch. The newest one names topics by id (KIP-516) and exists since Kafka 3.1. Older ones
// name topics, so a broker cannot tell a topic from a deleted one of the same name: see byname.go.
const (
	fetchVersion = 13
	fetchEpochs  = 12 // first version in which a broker compares the epoch of the position (KIP-320), Kafka 2.7
	fetchOldest  = 11 // first version with a rack (KIP-392), Kafka 2.3
)

// fetchRequest requests committed records of partitions from one broker, without a fetch session (KIP-227). A broker
// fills the response in the order of the request. The first partition with data gets a whole batch even if it exceeds
// the sizes of the request (KIP-74).
type fetchRequest struct {
	broker   int32
	minBytes int
	maxBytes int                         // the target size of the response; the first batch may exceed it
	limit    int                         // the largest allowed size of the response
	room     func(n int) ([]byte, error) // returns the buffer for a response of n bytes
	wait     time.Duration
	rack     string
	spans    []fetchSpan // the name of a topic is sent once for adjacent spans of it
}

// fetchSpan is a partition to fetch and the position to fetch from.
type fetchSpan struct {
	topic idempotency.TopicID
	name  string // the name of the topic
	id    int32
	// leaderEpoch is the epoch in the metadata that named the broker. A broker in another epoch refuses the partition.
	leaderEpoch int32
	// lastEpoch is the leader epoch of the last consumed batch, -1 if unknown. From version fetchEpochs on, the
	// broker uses it to report a log that was truncated below offset (KIP-320).
	lastEpoch int32
	offset    int64
	maxBytes  int
}

// fetchResponse is a decoded response. Its buffers are reused by the next fetch.
type fetchResponse struct {
	version  int16 // the version of Fetch that was used
	throttle time.Duration
	parts    []fetchPart
	x        *exchange
}

// bytes returns the size of the response.
func (f *fetchResponse) bytes() int { return len(f.x.in) }

// forget drops all references to the buffer of the response, so that it can be freed.
func (f *fetchResponse) forget() {
	if f.x != nil {
		f.x.in, f.x.room = nil, nil
	}
	for i := range f.parts {
		f.parts[i].records = nil
	}
}

// fetchPart is the response for one partition.
type fetchPart struct {
	index         int // the index in fetchRequest.spans
	err           kafka.Error
	highWatermark int64
	lastStable    int64
	logStart      int64
	preferred     int32 // the replica to read from next; -1 for the broker that responded (KIP-392)
	divergedAt    int64 // the offset from which the log differs from the records read before; -1 if it does not
	unchecked     bool  // true if this version of Fetch does not compare epochs
	aborted       []recordbatch.Aborted
	records       []byte // whole batches; the last one may be cut off; shares memory with the response
}

// fetch sends req and decodes the response into f. The records stay valid until f is used again. A partition whose
// topic is no longer the requested one gets an error, in every version of the protocol.
func (c *Client) fetch(ctx context.Context, req *fetchRequest, f *fetchResponse) error {
	version, err := c.version(ctx, req.broker, protocol.Fetch, fetchOldest, fetchVersion)
	if err != nil {
		return err
	}
	x := f.x
	f.x, f.parts, f.version = nil, f.parts[:0], version // an exchange that has failed must not be used again
	if x == nil {
		x = &exchange{}
	}
	x.limit, x.room = req.limit, req.room
	e := c.begin(x, req.broker, protocol.Fetch, version, version >= fetchEpochs)
	encodeFetch(&e, req, version)
	if err := c.send(ctx, x, &e, req.wait); err != nil {
		return err
	}
	f.x = x
	if err := f.decode(x.in, req); err != nil {
		if errors.Is(err, kafka.UnsupportedVersion) {
			c.forget(req.broker)
		}
		return err
	}
	if version < fetchVersion {
		return c.compareTopics(ctx, req, f)
	}
	return nil
}

func encodeFetch(e *encoder, req *fetchRequest, version int16) {
	e.i32(-1) // replica id: a consumer
	e.size(int(req.wait.Milliseconds()))
	e.size(req.minBytes)
	e.size(req.maxBytes)
	e.i8(1)   // read_committed
	e.i32(0)  // no fetch session
	e.i32(-1) // no fetch session
	topics := 0
	for i := range req.spans {
		if i == 0 || req.spans[i-1].topic != req.spans[i].topic {
			topics++
		}
	}
	e.array(topics)
	for i := 0; i < len(req.spans); {
		n := i + 1
		for n < len(req.spans) && req.spans[n].topic == req.spans[i].topic {
			n++
		}
		if version >= fetchVersion {
			e.uuid(req.spans[i].topic)
		} else {
			e.str(req.spans[i].name)
		}
		e.array(n - i)
		for ; i < n; i++ {
			p := &req.spans[i]
			e.i32(p.id)
			e.i32(p.leaderEpoch)
			e.i64(p.offset)
			if version >= fetchEpochs {
				e.i32(p.lastEpoch)
			}
			e.i64(-1) // log start: for followers
			e.size(p.maxBytes)
			e.tags()
		}
		e.tags()
	}
	e.array(0) // forgotten topics: for sessions
	e.str(req.rack)
	e.tags()
}

func (f *fetchResponse) decode(b []byte, req *fetchRequest) error {
	d := decoder{b: b, flexible: f.version >= fetchEpochs}
	d.tags() // response header v1, or v0 where the body is not flexible
	f.throttle = time.Duration(d.i32()) * time.Millisecond
	code := kafka.Error(d.i16())
	d.i32() // session id
	if d.err == nil && code != 0 {
		return code
	}
	at := 0 // brokers usually respond in the order of the request, so the search begins here
	for n := d.array(); n > 0 && d.err == nil; n-- {
		var topic idempotency.TopicID
		var name string
		if f.version >= fetchVersion {
			topic = d.uuid()
		} else {
			name = d.str()
		}
		for n := d.array(); n > 0 && d.err == nil; n-- {
			id, p := f.decodePart(&d)
			if d.err != nil {
				break
			}
			for tries := 0; ; tries, at = tries+1, at+1 {
				if tries == len(req.spans) {
					return fmt.Errorf("%w: partition %d of topic %v%q was not asked for", errMalformed, id, topic, name)
				}
				if at >= len(req.spans) {
					at = 0
				}
				if a := &req.spans[at]; a.id == id && (a.topic == topic && name == "" || a.name == name && name != "") {
					break
				}
			}
			p.index = at
		}
		d.tags()
	}
	return d.err
}

func (f *fetchResponse) decodePart(d *decoder) (id int32, p *fetchPart) {
	p = f.grow()
	id = d.i32()
	p.err = kafka.Error(d.i16())
	p.highWatermark, p.lastStable, p.logStart = d.i64(), d.i64(), d.i64()
	for n := d.array(); n > 0 && d.err == nil; n-- {
		p.aborted = append(p.aborted, recordbatch.Aborted{Producer: d.i64(), First: d.i64()})
		d.tags()
	}
	p.preferred = d.i32()
	p.records = d.bytes()
	d.eachTag(func(tag uint64, v *decoder) {
		if tag == 0 { // diverging epoch
			v.i32()
			p.divergedAt = v.i64()
		}
	})
	return id, p
}

// grow adds a part to the response. It reuses the slice of aborted transactions that an earlier response allocated.
func (f *fetchResponse) grow() *fetchPart {
	n := len(f.parts)
	if n < cap(f.parts) {
		f.parts = f.parts[:n+1]
	} else {
		f.parts = append(f.parts, fetchPart{})
	}
	p := &f.parts[n]
	*p = fetchPart{aborted: p.aborted[:0], divergedAt: -1, unchecked: f.version < fetchEpochs}
	return p
}
