package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go/protocol"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka/dial"
)

// change returns the bytes that the client gets instead of a response; nil means that it gets the response unchanged.
// frame is the whole response, which begins with its size.
type change func(key protocol.ApiKey, version int16, frame []byte) []byte

// hostileConn is a connection to a broker whose responses the test changes in transit.
type hostileConn struct {
	net.Conn
	lie change

	opened   bool // true once a response to ApiVersions has arrived: package dial opens a connection with that request
	mu       sync.Mutex
	request  []byte // the request that the client is writing
	asked    [][2]int16
	response []byte // the part of the changed response that the client has not read
}

func (l *hostileConn) Write(b []byte) (int, error) {
	l.mu.Lock()
	l.request = append(l.request, b...)
	for len(l.request) >= 8 && len(l.request) >= 4+int(be.Uint32(l.request)) {
		l.asked = append(l.asked, [2]int16{int16(be.Uint16(l.request[4:])), int16(be.Uint16(l.request[6:]))})
		l.request = l.request[4+be.Uint32(l.request):]
	}
	l.mu.Unlock()
	return l.Conn.Write(b)
}

func (l *hostileConn) Read(b []byte) (int, error) {
	if len(l.response) == 0 {
		var size [4]byte
		if _, err := io.ReadFull(l.Conn, size[:]); err != nil {
			return 0, err
		}
		frame := make([]byte, 4+be.Uint32(size[:]))
		copy(frame, size[:])
		if _, err := io.ReadFull(l.Conn, frame[4:]); err != nil {
			return 0, err
		}
		l.mu.Lock()
		to := l.asked[0]
		l.asked = l.asked[1:]
		l.mu.Unlock()
		key := protocol.ApiKey(to[0])
		if l.opened || key != protocol.ApiVersions {
			if changed := l.lie(key, to[1], frame); changed != nil {
				frame = changed
			}
		}
		l.opened = l.opened || key == protocol.ApiVersions
		l.response = frame
	}
	n := copy(b, l.response)
	l.response = l.response[n:]
	return n, nil
}

// tamper makes every new connection of the client one whose responses l changes.
func tamper(cfg *Config, l change) {
	inner := cfg.Dial
	cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := inner(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &hostileConn{Conn: conn, lie: l}, nil
	}
}

// count overwrites the four bytes at the offset at of a response's body with an absurd count, and returns the response.
func count(frame []byte, at int) []byte { copy(frame[8+at:], "\x7f\xff\xff\xff"); return frame }

// absurd overwrites, in a response of the given API, the first number by which kafka-go sizes an allocation, for
// example a count, with an absurd one. It returns nil for all other APIs.
func absurd(key protocol.ApiKey, version int16, frame []byte) []byte {
	throttle := 4
	switch key {
	case protocol.ApiVersions, protocol.SyncGroup:
		return count(frame, 2)
	case protocol.Metadata, protocol.DescribeConfigs, protocol.OffsetCommit:
		return count(frame, throttle)
	case protocol.OffsetFetch:
		if version < 3 {
			throttle = 0
		}
		return count(frame, throttle)
	case protocol.JoinGroup:
		at := throttle + 2 + 4
		for range 3 { // the three strings before the count
			at += 2 + int(be.Uint16(frame[8+at:]))
		}
		return count(frame, at)
	case protocol.FindCoordinator: // the response ends with a host and a port; the host's length becomes absurd
		copy(frame[8:], "\x7f\xff\x7f\xff\x7f\xff\x7f\xff\x7f\xff\x7f\xff\x7f\xff\x7f\xff")
		return frame
	case protocol.Heartbeat, protocol.LeaveGroup: // their responses have no counts, so the response is cut short
		be.PutUint32(frame, 5)
		return frame[:9]
	case protocol.DescribeGroups: // a count of variable length, greater than the number of bytes
		copy(frame[8+1+throttle:], "\xff\xff\xff\xff\x0f")
		return frame
	default:
		return nil
	}
}

// endless sets the size of a response to 2 GiB.
func endless(_ protocol.ApiKey, _ int16, frame []byte) []byte {
	copy(frame, "\x7f\xff\xff\xff")
	return frame
}

// assigned puts an absurd count into the bytes of an assignment, which kafka-go decodes separately.
func assigned(_ protocol.ApiKey, _ int16, frame []byte) []byte { return count(frame, 2+4+2) }

// allocates fails the test if fn allocates more memory than a few responses of the largest allowed size.
func allocates(t *testing.T, fn func()) {
	t.Helper()
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	fn()
	runtime.ReadMemStats(&after)
	if n := after.TotalAlloc - before.TotalAlloc; n > 128<<20 {
		t.Errorf("%d MiB were allocated", n>>20)
	}
}

// TestGroup_AbsurdResponses: a response with an absurd count costs the member the connection and nothing else. The
// member joins once the brokers' responses are correct again, and its log names the API of the response.
func TestGroup_AbsurdResponses(t *testing.T) {
	for _, tt := range []struct {
		name string
		key  protocol.ApiKey
		lie  change
	}{
		{"ApiVersions", protocol.ApiVersions, absurd},
		{"Metadata", protocol.Metadata, absurd},
		{"FindCoordinator", protocol.FindCoordinator, absurd},
		{"JoinGroup", protocol.JoinGroup, absurd},
		{"SyncGroup", protocol.SyncGroup, absurd},
		{"SyncGroup's assignment", protocol.SyncGroup, assigned},
		{"OffsetFetch", protocol.OffsetFetch, absurd},
		{"Heartbeat", protocol.Heartbeat, absurd},
		{"endless Metadata", protocol.Metadata, endless},
		{"endless JoinGroup", protocol.JoinGroup, endless},
		{"endless SyncGroup", protocol.SyncGroup, endless},
		{"endless Heartbeat", protocol.Heartbeat, endless},
	} {
		t.Run(tt.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, s *cluster) {
				s.create("t", 2)
				var lies atomic.Int32
				const most = 3
				allocates(t, func() {
					m := s.start(func(cfg *Config, _ *GroupConfig) {
						tamper(cfg, func(key protocol.ApiKey, version int16, frame []byte) []byte {
							opening := key == protocol.Metadata && (version == 1 || version >= metadataVersion) // package dial and this package send them when they open a connection
							if key != tt.key || opening || lies.Add(1) > most {
								return nil
							}
							return tt.lie(key, version, frame)
						})
					}, "t")
					s.until("the lies", func() bool { return lies.Load() > most })
					s.until("joined", m.has(2))
					m.stop()
				})
			})
		})
	}
}

// TestClient_AbsurdResponses: if the response has an absurd count or a size of 2 GiB, the request fails with a
// Transient error that names the API of the response.
func TestClient_AbsurdResponses(t *testing.T) {
	offsets := map[connector.Partition]connector.GroupOffset{}
	for _, tt := range []struct {
		key protocol.ApiKey
		ask func(ctx context.Context, m *member) error
	}{
		{protocol.OffsetFetch, func(ctx context.Context, m *member) error { _, err := m.Offsets(ctx, "t"); return err }},
		{protocol.FindCoordinator, func(ctx context.Context, m *member) error { _, err := m.Offsets(ctx, "t"); return err }},
		{protocol.OffsetCommit, func(ctx context.Context, m *member) error { return m.CommitOffsets(ctx, offsets) }},
		{protocol.DescribeConfigs, func(ctx context.Context, m *member) error { _, err := m.client.TopicSettings(ctx, "t"); return err }},
		{protocol.DescribeGroups, func(ctx context.Context, m *member) error { _, err := m.State(ctx); return err }},
		{protocol.LeaveGroup, func(ctx context.Context, m *member) error { return m.remove(ctx, "stranger") }},
	} {
		for name, l := range map[string]change{"absurd": absurd, "endless": endless} {
			t.Run(tt.key.String()+" "+name, func(t *testing.T) {
				inBubble(t, func(t *testing.T, s *cluster) {
					s.create("t", 2)
					var on atomic.Bool
					m := s.start(func(cfg *Config, _ *GroupConfig) {
						tamper(cfg, func(key protocol.ApiKey, version int16, frame []byte) []byte {
							if !on.Load() || key != tt.key {
								return nil
							}
							return l(key, version, frame)
						})
					}, "t")
					s.until("joined", m.has(2))
					for _, p := range m.now().Partitions {
						offsets[p] = connector.GroupOffset{Next: 1}
					}
					on.Store(true)
					var err error
					allocates(t, func() { err = tt.ask(t.Context(), m) })
					bad, ok := errors.AsType[*dial.Error](Classify(err))
					if !ok || bad.Cause != dial.Malformed || !strings.Contains(err.Error(), tt.key.String()+" v") || classify.Of(Classify(err)) != classify.Transient {
						t.Errorf("class %v: %v", classify.Of(Classify(err)), err)
					}
					if n := m.logs.count("refused a malformed response"); n != 0 { // the connection's logger is that of the client, which this test does not set
						t.Errorf("%d lines", n)
					}
					on.Store(false)
					if err := tt.ask(t.Context(), m); err != nil {
						t.Errorf("afterwards: %v", err)
					}
					m.stop()
				})
			})
		}
	}
}

// TestLog_EndlessResponses: if a response that this package decodes itself claims a size of 2 GiB, the Log allocates
// little memory, and continues once the responses are correct again.
func TestLog_EndlessResponses(t *testing.T) {
	for _, key := range []protocol.ApiKey{protocol.Fetch, protocol.Metadata} {
		t.Run(key.String(), func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cluster) {
				w.create("t", 1)
				w.produce("t", 0, 1, "v")
				var lies atomic.Int32
				const most = 3
				allocates(t, func() {
					r := w.read(LogConfig{}, func(cfg *Config) {
						tamper(cfg, func(asked protocol.ApiKey, version int16, frame []byte) []byte {
							if asked != key || asked == protocol.Metadata && version < metadataVersion || lies.Add(1) > most {
								return nil
							}
							return endless(asked, version, frame)
						})
					})
					for {
						_, err := r.Topic(t.Context(), "t")
						if err == nil {
							break
						}
						if classify.Of(err) != classify.Transient || !errors.Is(err, errResponseSize) {
							t.Fatalf("class %v: %v", classify.Of(err), err)
						}
					}
					p := r.partitions("t")[0]
					r.from(p, 0, -1)
					r.until(time.Minute, func() bool {
						if r.held[p] != nil { // it looks like a record batch that is too large
							r.from(p, 0, -1)
						}
						return r.records() == 1 && lies.Load() > most
					})
				})
			})
		})
	}
}
