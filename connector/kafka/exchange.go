package kafka

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"

	"sluice/classify"
	"sluice/connector/kafka/frame"
)

// errVersion means that a broker is too old.
var errVersion = errors.New("broker too old")

// errResponseSize means that a response exceeds its limit. The connection is closed.
var errResponseSize = errors.New("response too large")

// anyBroker sends a request to the first broker that answers.
const anyBroker int32 = -1

// smallResponse is the limit for responses without records, in bytes. The largest is metadata: 16 MiB hold about
// 350,000 partitions.
const smallResponse = 16 << 20

// own reports whether package kafka itself decodes the responses of an API in a version. kafka-go decodes all others,
// and the connection checks them first.
func own(key protocol.ApiKey, version int16) bool {
	switch key {
	case protocol.Produce:
		return version == produceVersion
	case protocol.Fetch:
		return version >= fetchOldest && version <= fetchVersion
	case protocol.ListOffsets:
		return version == listOffsetsVersion
	case protocol.Metadata:
		return version == metadataVersion
	case protocol.CreateTopics:
		return version == createTopicsVersion
	case protocol.OffsetForLeaderEpoch:
		return version == offsetForEpochVersion
	default:
		return false
	}
}

type versionRange struct{ min, max int16 }

// exchange is one encoded request and its response. kafka-go's transport routes it by its broker
// ([protocol.BrokerMessage]) and calls RawExchange with the authenticated connection ([protocol.RawExchanger]).
//
// After an error the caller must not use the exchange again. If ctx ended first, the goroutine of the connection may
// still write into the field in.
type exchange struct {
	key    protocol.ApiKey
	broker int32
	corr   int32
	limit  int // the largest size of in, in bytes
	// room returns the buffer for a response of n bytes. If nil, the buffer grows as bytes arrive.
	room func(n int) ([]byte, error)
	out  []byte // the whole request, with its size
	in   []byte // the response, after its correlation id
}

var (
	_ protocol.RawExchanger  = (*exchange)(nil)
	_ protocol.BrokerMessage = (*exchange)(nil)
)

// ApiKey returns the number of the API in Kafka's protocol.
func (x *exchange) ApiKey() protocol.ApiKey { return x.key } //nolint:revive // kafka-go's spelling

// Required returns true, which makes kafka-go's transport call RawExchange.
func (x *exchange) Required(map[protocol.ApiKey]int16) bool { return true }

// Broker names the broker to send to by its id; the transport uses nothing else.
func (x *exchange) Broker(protocol.Cluster) (protocol.Broker, error) {
	return protocol.Broker{ID: x.broker}, nil
}

// RawExchange writes the request and reads the response.
func (x *exchange) RawExchange(rw io.ReadWriter) (protocol.Message, error) {
	if _, err := rw.Write(x.out); err != nil {
		return nil, err
	}
	var h [8]byte
	if _, err := io.ReadFull(rw, h[:]); err != nil {
		return nil, err
	}
	d := decoder{b: h[:]}
	n, corr := int(d.i32())-4, d.i32()
	if n < 0 || n > x.limit {
		return nil, fmt.Errorf("%w: %d bytes, limit %d", errResponseSize, n, x.limit)
	}
	if corr != x.corr {
		return nil, fmt.Errorf("%w: correlation id %d, want %d", errMalformed, corr, x.corr)
	}
	if x.room == nil {
		in, err := frame.Read(rw, n)
		if err != nil {
			return nil, err
		}
		x.in = in
		return x, nil
	}
	in, err := x.room(n)
	if err != nil {
		return nil, err
	}
	x.in = in[:n]
	if _, err := io.ReadFull(rw, x.in); err != nil {
		return nil, err
	}
	return x, nil
}

// begin starts a request to a broker: space for the size, then header v1, or v2 if the body is flexible.
func (c *Client) begin(x *exchange, broker int32, key protocol.ApiKey, version int16, flexible bool) encoder {
	x.key, x.broker, x.corr = key, broker, c.corr.Add(1)
	x.limit = cmp.Or(x.limit, smallResponse)
	e := encoder{b: append(x.out[:0], 0, 0, 0, 0)}
	e.i16(int16(key))
	e.i16(version)
	e.i32(x.corr)
	e.str(c.cfg.ClientID) // the client id has no compact encoding, not even in header v2
	e.flexible = flexible
	e.tags()
	return e
}

// send sends the request that begin started, and reads the response into x. The time limit is the client's timeout plus
// wait. Without a limit, the goroutine of the connection would read for ever if the broker hangs, even after ctx ended.
func (c *Client) send(ctx context.Context, x *exchange, e *encoder, wait time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, c.timeout()+wait)
	defer cancel()
	x.out = e.request()
	broker := x.broker
	if _, err := c.transport.RoundTrip(ctx, c.addr, x); err != nil {
		// A broker closes the connection when it gets a version that it does not know, which happens after an upgrade
		// or a downgrade.
		c.forget(broker)
		return err
	}
	return nil
}

// forget drops the known API versions of a broker.
func (c *Client) forget(broker int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.versions, broker)
}

// version returns the newest version of an API in [lowest, highest] that a broker supports. If it supports none of
// them, the error is Fatal.
func (c *Client) version(ctx context.Context, broker int32, key protocol.ApiKey, lowest, highest int16) (int16, error) {
	c.mu.Lock()
	known, ok := c.versions[broker]
	c.mu.Unlock()
	if !ok {
		var err error
		if known, err = c.requestVersions(ctx, broker); err != nil {
			return 0, fmt.Errorf("ask for API versions: %w", err)
		}
		if broker != anyBroker { // for anyBroker the result is not kept, because the next request may go to another broker
			c.mu.Lock()
			c.versions[broker] = maps.Clone(known)
			c.mu.Unlock()
		}
	}
	r, ok := known[key]
	if v := min(highest, r.max); ok && v >= lowest && v >= r.min {
		return v, nil
	}
	return 0, tooOld(key, r, lowest, highest)
}

// tooOld returns the Fatal error for a broker that supports none of the versions [lowest, highest] of an API.
func tooOld(key protocol.ApiKey, offers versionRange, lowest, highest int16) error {
	return classify.Mark(fmt.Errorf("%w: it offers %v v%d to v%d, needed is v%d to v%d (Kafka 2.8 and newer have it)",
		errVersion, key, offers.min, offers.max, lowest, highest), classify.Fatal)
}

// requestVersions asks a broker for the lowest and highest version of each API that it supports. kafka-go requests them
// on each connection, too, but keeps only the one version that kafka-go itself will use.
func (c *Client) requestVersions(ctx context.Context, broker int32) (map[protocol.ApiKey]versionRange, error) {
	x := &exchange{}
	e := c.begin(x, broker, protocol.ApiVersions, 0, false)
	if err := c.send(ctx, x, &e, 0); err != nil {
		return nil, err
	}
	d := decoder{b: x.in}
	if code := kafka.Error(d.i16()); code != 0 {
		return nil, code
	}
	m := make(map[protocol.ApiKey]versionRange)
	for n := d.array(); n > 0; n-- {
		key := protocol.ApiKey(d.i16())
		m[key] = versionRange{d.i16(), d.i16()}
	}
	return m, d.err
}
