package kafka

import (
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/connector"
	"sluice/connector/kafka/recordbatch"
	"sluice/reliability/hold"
)

// stage is a network whose brokers the test can stop as SIGSTOP does: connections open and requests are taken, but not
// answered until the broker continues. It can also refuse connections.
type stage struct {
	dial func(ctx context.Context, network, address string) (net.Conn, error)

	mu      sync.Mutex
	stopped map[string]bool // the addresses of stopped brokers
	refused bool
	conns   []*stagedConn
}

type stagedConn struct {
	net.Conn
	stage   *stage
	address string

	backlog []byte // bytes sent while the broker is stopped; guarded by the stage's mutex
}

func (s *stage) connect(ctx context.Context, network, address string) (net.Conn, error) {
	s.mu.Lock()
	refused := s.refused
	s.mu.Unlock()
	if refused {
		return nil, &net.OpError{Op: "dial", Net: network, Err: errors.New("connection refused")}
	}
	conn, err := s.dial(ctx, network, address)
	if err != nil {
		return nil, err
	}
	c := &stagedConn{Conn: conn, stage: s, address: address}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.conns = append(s.conns, c)
	return c, nil
}

// Write keeps bytes for a stopped broker in the backlog.
func (c *stagedConn) Write(b []byte) (int, error) {
	c.stage.mu.Lock()
	if c.stage.stopped[c.address] {
		c.backlog = append(c.backlog, b...)
		c.stage.mu.Unlock()
		return len(b), nil
	}
	c.stage.mu.Unlock()
	return c.Conn.Write(b)
}

func (s *stage) stop(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.stopped[address] = true
}

func (s *stage) resume(address string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.stopped, address)
	for _, c := range s.conns {
		if c.address == address && len(c.backlog) > 0 {
			go func() { _, _ = c.Conn.Write(c.backlog) }()
		}
	}
}

// refuse makes the network refuse connections and closes the open ones if yes is true; if not, it allows them again.
func (s *stage) refuse(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refused = yes
	if yes {
		for _, c := range s.conns {
			_ = c.Close()
		}
	}
}

// readStaged starts a reader with a session timeout of 6 s. It also returns the stage, by which the test can stop
// brokers.
func (w *cluster) readStaged(cfg LogConfig) (*reader, *stage) {
	s := &stage{dial: w.dial, stopped: map[string]bool{}}
	return w.read(cfg, func(c *Config) { c.Dial, c.Session = s.connect, 6*time.Second }), s
}

func (w *cluster) leader(p connector.Partition) (address string) {
	return w.addrs[w.fake.LeaderFor(p.Topic, p.ID)]
}

// TestLogHungBroker: if a broker hangs, only the partitions that it leads wait, until the request times out. Meanwhile
// Status shows the trouble.
func TestLogHungBroker(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 4)
		for p := range int32(4) {
			if err := w.fake.MoveTopicPartition("t", p, p%2); err != nil {
				t.Fatal(err)
			}
		}
		r, s := w.readStaged(LogConfig{})
		parts := r.partitions("t")
		for _, p := range parts {
			r.from(p, 0, -1)
		}
		r.until(time.Minute, func() bool { return r.answers == 4 })
		s.stop(w.leader(parts[0]))
		for round := range 10 {
			for _, p := range parts {
				w.produce("t", p.ID, 10, fmt.Sprint(round, "-"))
			}
			r.until(1500*time.Millisecond, func() bool {
				return len(r.got[parts[1]]) == 10*(round+1) && len(r.got[parts[3]]) == 10*(round+1)
			})
			r.within(time.Second, func() bool { return false })
		}
		hung := w.fake.LeaderFor("t", 0)
		// When the broker continues, it answers a request that had reached it, with the first records of one or of both
		// partitions.
		if n := r.records(); n != 200 && n != 210 && n != 220 {
			t.Errorf("%d records", n)
		}
		status := r.Status()
		if !slices.ContainsFunc(status, func(s Trouble) bool {
			return s.Broker == hung && s.Reason == hold.KafkaDown && s.Err != nil && time.Since(s.Since) > time.Second
		}) {
			t.Errorf("status %+v", status)
		}
		if r.metric("sluice_fetch_errors_total", "kind", "timeout") == 0 {
			t.Error("no timeout counted")
		}
		s.resume(w.leader(parts[0]))
		began := time.Now()
		r.until(20*time.Second, func() bool { return r.records() == 400 })
		t.Logf("all read %v after it went on", time.Since(began))
		r.until(20*time.Second, func() bool { return r.Status() == nil })
	})
}

// TestLogKafkaDown: while no broker can be reached, which lasts an hour, Status shows trouble with the reason
// kafka_down, and there are few log lines. Once the brokers are back, reading continues without an operator.
func TestLogKafkaDown(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 2)
		r, s := w.readStaged(LogConfig{})
		parts := r.partitions("t")
		for _, p := range parts {
			r.from(p, 0, -1)
		}
		r.until(time.Minute, func() bool { return r.answers == 2 })
		down := time.Now()
		s.refuse(true)
		if r.within(time.Hour, func() bool { return r.answers > 2 }) {
			t.Fatal("an answer")
		}
		status := r.Status()
		if len(status) == 0 || status[0].Broker != -1 || status[0].Reason != hold.KafkaDown ||
			status[0].Since.Sub(down) > 10*time.Second {
			t.Fatalf("status %+v", status)
		}
		if n := strings.Count(r.logs.String(), "level=WARN"); n > 5 {
			t.Errorf("%d warnings", n)
		}
		if n := r.metric("sluice_fetch_errors_total"); n > 4*3600/(0.75*retryMax.Seconds()) {
			t.Errorf("%v tries in an hour", n)
		}
		began := time.Now()
		if _, err := r.Bounds(t.Context(), ends(parts)); err == nil || time.Since(began) > 30*time.Second {
			t.Errorf("bounds: %v after %v", err, time.Since(began))
		}
		s.refuse(false)
		w.produce("t", 0, 10, "v")
		r.until(15*time.Second, func() bool { return r.records() == 10 })
		r.until(15*time.Second, func() bool { return r.Status() == nil })
	})
}

// TestLogDenied: Status shows denied access to a topic as trouble, and the Log tries again each minute. Other topics
// continue.
func TestLogDenied(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("secret", 1)
		w.create("open", 1)
		w.produce("secret", 0, 10, "s")
		w.produce("open", 0, 10, "o")
		fault := w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.Fetch}, Topic: "secret", Err: kerr.TopicAuthorizationFailed, Count: -1})
		r := w.read(LogConfig{})
		for _, p := range r.partitions("secret", "open") {
			r.from(p, 0, -1)
		}
		r.until(time.Minute, func() bool { return r.records() == 10 })
		r.within(10*time.Minute, func() bool { return false })
		if n := fault.Hits(); n < 7 || n > 15 {
			t.Errorf("%d tries in ten minutes", n)
		}
		status := r.Status()
		if len(status) != 1 || status[0].Partition.Topic != "secret" || status[0].Reason != hold.KafkaDenied {
			t.Errorf("status %+v", status)
		}
		fault.Remove()
		r.until(2*time.Minute, func() bool { return r.records() == 20 && r.Status() == nil })
	})
}

// TestLogCorruptBatch: if a record batch is damaged at both readings, the Log delivers the records before it, and holds
// the partition at the batch's first offset. The other partitions continue.
func TestLogCorruptBatch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 2)
		w.produce("t", 1, 10, "v")
		good := batch(t, 0, "a", "b")
		bad := batch(t, 2, "c")
		bad[len(bad)-1] ^= 1
		var damaged atomic.Bool
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			if len(req.Topics) != 1 || len(req.Topics[0].Partitions) != 1 || req.Topics[0].Partitions[0].Partition != 0 {
				return nil
			}
			return answer(req, func(p kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
				rp.HighWatermark, rp.LastStableOffset = 3, 3
				switch p.FetchOffset {
				case 0:
					rp.RecordBatches = slices.Concat(good, bad)
				case 2:
					rp.RecordBatches = slices.Clone(bad)
					if !damaged.Load() {
						rp.RecordBatches = batch(t, 2, "c")
					}
				}
			})
		})
		r := w.read(LogConfig{})
		parts := r.partitions("t")

		damaged.Store(true)
		began := time.Now()
		r.from(parts[0], 0, -1)
		r.holds(time.Minute, parts[0], hold.CorruptBatch)
		if since := time.Since(began); since < confirm {
			t.Errorf("held after %v: nobody looked twice", since)
		}
		if !slices.Equal(r.values(parts[0]), []string{"a", "b"}) || r.at[parts[0]].Next != 2 {
			t.Errorf("%q, next %d", r.values(parts[0]), r.at[parts[0]].Next)
		}
		if !strings.Contains(r.held[parts[0]].Error(), "offset 2") {
			t.Error(r.held[parts[0]])
		}
		r.from(parts[1], 0, -1)
		r.until(time.Minute, func() bool { return len(r.got[parts[1]]) == 10 })

		// If the bytes were damaged only in transit, the next reading is good.
		damaged.Store(false)
		r.got[parts[0]] = nil
		r.session++
		r.Forget(parts[0])
		r.Forget(parts[1])
		r.from(parts[0], 0, -1)
		r.until(time.Minute, func() bool { return len(r.got[parts[0]]) == 3 })
	})
}

// batch encodes records as one record batch that begins at the offset base.
func batch(t *testing.T, base int64, values ...string) []byte {
	t.Helper()
	b := kmsg.RecordBatch{
		FirstOffset: base, PartitionLeaderEpoch: 0, Magic: 2, LastOffsetDelta: int32(len(values) - 1), FirstTimestamp: 1_700_000_000_000,
		MaxTimestamp: 1_700_000_000_000, ProducerID: -1, ProducerEpoch: -1, FirstSequence: -1, NumRecords: int32(len(values)),
	}
	for i, v := range values {
		r := kmsg.Record{OffsetDelta: int32(i), Value: []byte(v)}
		r.Length = int32(len(r.AppendTo(nil)) - 1) // the encoding begins with the length, which is one byte while it is zero
		b.Records = r.AppendTo(b.Records)
	}
	raw := b.AppendTo(nil)
	be.PutUint32(raw[8:], uint32(len(raw)-12))
	be.PutUint32(raw[17:], crc32.Checksum(raw[21:], crc32.MakeTable(crc32.Castagnoli)))
	return raw
}

// TestLogLargeBatches: a batch larger than PartitionBytes is fetched nevertheless. A batch above the limit for batches
// is a hold.
func TestLogLargeBatches(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 3)
		for p := range int32(3) {
			if err := w.fake.MoveTopicPartition("t", p, 0); err != nil {
				t.Fatal(err)
			}
		}
		var mu sync.Mutex
		raw := batch(t, 0, strings.Repeat("x", 300<<10))
		w.produce("t", 2, 10, "v")
		asked := map[int32][]int32{}
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			mu.Lock()
			defer mu.Unlock()
			// Kafka cuts off a batch that does not fit, except the first of the response; kfake does not.
			first := true
			return answer(req, func(p kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
				asked[p.Partition] = append(asked[p.Partition], p.PartitionMaxBytes)
				if p.Partition == 2 || p.FetchOffset > 0 {
					return
				}
				rp.HighWatermark, rp.LastStableOffset = 1, 1
				room := int(p.PartitionMaxBytes)
				if first {
					room = len(raw)
				}
				first = false
				rp.RecordBatches = raw[:min(len(raw), room)]
			})
		})
		r := w.read(LogConfig{PartitionBytes: 1000, MaxBytes: 2000})
		parts := r.partitions("t")
		for _, p := range parts {
			r.from(p, 0, -1)
		}
		r.until(time.Minute, func() bool { return r.records() == 2 })
		mu.Lock()
		if n := int32(len(raw)); !slices.Contains(slices.Concat(asked[0], asked[1]), n) {
			t.Errorf("nobody asked for %d bytes", n)
		}
		mu.Unlock()
		r.stop()

		for _, tt := range []struct {
			name        string
			size, limit int
		}{
			{"larger than is opened", 300 << 10, 100 << 10},
			{"larger than any response", 2 << 20, 1}, // 2 MiB is also more than a response may have beside its batches
		} {
			mu.Lock()
			raw = batch(t, 0, strings.Repeat("x", tt.size))
			mu.Unlock()
			r = w.read(LogConfig{PartitionBytes: 1000, MaxBytes: 2000, Limits: recordbatch.Limits{Batch: tt.limit}})
			for _, p := range parts {
				r.from(p, 0, -1)
			}
			r.holds(time.Minute, parts[0], hold.Oversize)
			r.holds(time.Minute, parts[1], hold.Oversize)
			if r.held[parts[2]] != nil {
				t.Errorf("%s: %v", tt.name, r.held[parts[2]])
			}
			r.stop()
		}
	})
}

// TestLogThrottle: if a response says that the broker throttles this client, the client sends that broker no fetch
// request until the throttle time is over.
func TestLogThrottle(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		var mu sync.Mutex
		var times []time.Time
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			mu.Lock()
			times = append(times, time.Now())
			mu.Unlock()
			resp := answer(req, func(p kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
				rp.RecordBatches = batch(t, p.FetchOffset, "v")
				rp.HighWatermark, rp.LastStableOffset = 1000, 1000
			})
			resp.ThrottleMillis = 3000
			return resp
		})
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.records() == 5 })
		mu.Lock()
		defer mu.Unlock()
		for i := range times[1:] {
			if gap := times[i+1].Sub(times[i]); gap < 3*time.Second {
				t.Errorf("a request %v after the one before", gap)
			}
		}
		if got := r.metric("sluice_fetch_throttled_seconds_total"); got < 12 {
			t.Errorf("%v s throttled", got)
		}
	})
}

// TestLogFollowsReplica: if the configuration has a rack, a partition is read from the replica that its leader names.
// After an error of the replica it is read from the leader again.
func TestLogFollowsReplica(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		leader := w.fake.LeaderFor("t", 0)
		w.fake.SetFollowers("t", 0, []int32{1 - leader})
		var leaders atomic.Int32
		var fail atomic.Bool
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			node := w.fake.CurrentNode()
			if node == leader {
				leaders.Add(1)
			}
			if req.Rack != "r1" {
				t.Errorf("rack %q", req.Rack)
			}
			switch {
			case node == leader && !fail.Load():
				return answer(req, func(_ kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
					rp.PreferredReadReplica = 1 - leader
				})
			case node != leader && fail.Load():
				return answer(req, func(_ kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
					rp.ErrorCode = kerr.NotLeaderForPartition.Code
				})
			}
			return nil
		})
		r := w.read(LogConfig{Rack: "r1"})
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		r.until(time.Second, func() bool { return r.records() == 10 })
		if n := leaders.Load(); n != 1 {
			t.Errorf("the leader was asked %d times", n)
		}
		fail.Store(true)
		w.produce("t", 0, 10, "w")
		r.until(time.Minute, func() bool { return r.records() == 20 })
	})
}

// TestLogReplicaLags: if the replica that the leader names lags or cannot be reached, the partition is read from the
// leader without a missing record. While leader and replica send the client back and forth, there are pauses between
// requests.
func TestLogReplicaLags(t *testing.T) {
	for _, code := range []*kerr.Error{kerr.OffsetNotAvailable, kerr.OffsetOutOfRange, kerr.NotLeaderForPartition, nil} {
		name := "away"
		if code != nil {
			name = code.Message
		}
		t.Run(name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, w *cluster) {
				w.create("t", 1)
				leader := w.fake.LeaderFor("t", 0)
				w.fake.SetFollowers("t", 0, []int32{1 - leader})
				var requests atomic.Int32
				lags := time.Now().Add(30 * time.Second)
				w.fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
					w.fake.KeepControl()
					requests.Add(1)
					fetch := req.(*kmsg.FetchRequest)
					switch {
					case fetch.Rack == "":
						t.Error("a request without the rack")
					case w.fake.CurrentNode() == leader:
						return answer(fetch, func(_ kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
							rp.PreferredReadReplica = 1 - leader
						}), nil, true
					case time.Now().After(lags):
						return nil, nil, false
					case code == nil:
						return nil, errors.New("gone"), true
					}
					return answer(fetch, func(_ kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
						rp.ErrorCode = code.Code
					}), nil, true
				})
				w.produce("t", 0, 10, "v")
				r := w.read(LogConfig{Rack: "r1"})
				p := r.partitions("t")[0]
				r.from(p, 0, -1)
				r.within(30*time.Second, func() bool { return false })
				if n := requests.Load(); n > 60 {
					t.Errorf("%d requests in 30 s", n)
				}
				if r.held[p] != nil {
					t.Fatal(r.held[p])
				}
				r.until(30*time.Second, func() bool { return r.records() == 10 })
			})
		})
	}
}

// TestLogCancel: Run ends at once while requests are in flight, and late responses are dropped. The bubble fails if a
// goroutine remains.
func TestLogCancel(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 4)
		for range 10 {
			r := w.read(LogConfig{})
			for _, p := range r.partitions("t") {
				r.from(p, 0, -1)
			}
			r.until(time.Minute, func() bool { return r.answers == 4 })
			time.Sleep(10 * time.Millisecond)
			began := time.Now()
			r.stop()
			if since := time.Since(began); since > 10*time.Millisecond {
				t.Errorf("ended after %v", since)
			}
			if _, err := r.Topic(t.Context(), "t"); !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
}

// TestBounds: Bounds returns the start, the last stable offset and the end of each log, also with an open transaction.
// It needs only one reading, also for a position outside of the log. A partition of another topic id, or one that does
// not exist, is missing in the result.
func TestBounds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 3)
		for p := range int32(3) {
			w.produce("t", p, 10, "v")
			w.produce("t", p, 10, "v")
		}
		if err := w.fake.DeleteRecords("t", 1, 10); err != nil {
			t.Fatal(err)
		}
		tx := w.franz(kgo.TransactionalID("tx"), kgo.ProducerLinger(0))
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 2, Value: []byte("open")}).FirstErr(); err != nil {
			t.Fatal(err)
		}
		r := w.read(LogConfig{})
		parts := r.partitions("t")
		foreign := parts[0]
		foreign.TopicID[0] ^= 1
		beyond := parts[0]
		beyond.ID = 9

		began := time.Now()
		got, err := r.Bounds(t.Context(), ends(parts))
		if err != nil || time.Since(began) > time.Second {
			t.Fatal(err, time.Since(began))
		}
		for i, want := range []connector.Bounds{
			{LogStart: 0, LastStable: 20, HighWatermark: 20, DivergedAt: -1},
			{LogStart: 10, LastStable: 20, HighWatermark: 20, DivergedAt: -1},
			{LogStart: 0, LastStable: 20, HighWatermark: 21, DivergedAt: -1},
		} {
			if got[parts[i]] != want {
				t.Errorf("%v: %+v, want %+v", parts[i], got[parts[i]], want)
			}
		}
		// A position inside the log whose epoch the leader knows needs only one reading.
		got, err = r.Bounds(t.Context(), []connector.Position{{Partition: parts[0], Next: 20, Epoch: 0}, {Partition: parts[1], Next: 10, Epoch: 0}})
		if err != nil || len(got) != 2 || got[parts[0]].DivergedAt != -1 || got[parts[1]].DivergedAt != -1 || time.Since(began) > time.Second {
			t.Fatal(got, err, time.Since(began))
		}
		// For a position outside of the log, Bounds returns the bounds without delay. It returns none for a partition
		// of another topic id.
		for name, p := range map[string]connector.Position{
			"before":  {Partition: parts[1], Next: 9, Epoch: -1},
			"behind":  {Partition: parts[0], Next: 21, Epoch: -1},
			"foreign": {Partition: foreign, Next: 0, Epoch: -1},
			"beyond":  {Partition: beyond, Next: 0, Epoch: -1},
		} {
			began = time.Now()
			got, err = r.Bounds(t.Context(), []connector.Position{p, {Partition: parts[2], Next: 0, Epoch: -1}})
			_, there := got[p.Partition]
			if err != nil || there != (name == "before" || name == "behind") || got[parts[2]].HighWatermark != 21 || time.Since(began) > time.Second {
				t.Errorf("%s: %v %v after %v", name, got, err, time.Since(began))
			}
		}
		// The leader moves while Bounds asks it.
		w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "t", Err: kerr.NotLeaderForPartition, Count: 3})
		if got, err = r.Bounds(t.Context(), ends(parts)); err != nil || len(got) != 3 {
			t.Error(got, err)
		}
		if err := tx.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
	})
}

func TestDiverged(t *testing.T) {
	for _, tt := range []struct {
		name        string
		next        int64
		epoch       int32
		leaderEpoch int32
		answer      offsetAt
		want        int64
	}{
		{"same epoch, log goes on", 10, 3, 3, offsetAt{epoch: 3, offset: 20}, -1},
		{"read to the end of an older epoch", 10, 3, 5, offsetAt{epoch: 3, offset: 10}, -1},
		{"the epoch ends below", 10, 3, 5, offsetAt{epoch: 3, offset: 8}, 8},
		{"the epoch is not there, an older one ends below", 10, 3, 5, offsetAt{epoch: 2, offset: 8}, 8},
		{"the epoch is not there, an older one reaches further", 10, 3, 5, offsetAt{epoch: 2, offset: 12}, 9},
		{"the leader has no history", 10, 3, 5, offsetAt{epoch: -1, offset: -1}, -1},
		{"an epoch that has never been", 10, 9, 5, offsetAt{epoch: -1, offset: -1}, 9},
	} {
		p := connector.Position{Next: tt.next, Epoch: tt.epoch}
		if got := diverged(p, tt.leaderEpoch, tt.answer); got != tt.want {
			t.Errorf("%s: %d, want %d", tt.name, got, tt.want)
		}
	}
}

// TestBounds_PartitionWithoutLeader: Bounds returns the bounds of the other partitions soon, and the error names the
// partition without a leader.
func TestBounds_PartitionWithoutLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 3)
		for p := range int32(3) {
			w.produce("t", p, 10, "v")
		}
		r := w.read(LogConfig{})
		parts := r.partitions("t")
		w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "t", Partitions: []int32{1}, Err: kerr.LeaderNotAvailable, Count: -1})
		began := time.Now()
		got, err := r.Bounds(t.Context(), ends(parts))
		var unread *connector.UnreadError
		if !errors.As(err, &unread) || len(unread.Causes) != 1 || !errors.Is(unread.Causes[parts[1]], kafka.LeaderNotAvailable) || classify.Of(err) != classify.Transient {
			t.Fatalf("%v, which is %v", err, classify.Of(err))
		}
		if len(got) != 2 || got[parts[0]].HighWatermark != 10 || got[parts[2]].HighWatermark != 10 {
			t.Errorf("%+v", got)
		}
		if took := time.Since(began); took < boundsRetryFor || took > 2*boundsRetryFor {
			t.Errorf("after %v", took)
		}
	})
}

// naming returns metadata in which the leader of partition 0 is a broker that led it before, with its old leader epoch.
func naming(req kmsg.Request, p connector.Partition, leader int32) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.MetadataResponse)
	resp.ClusterID = &p.Cluster
	mt, mp := kmsg.NewMetadataResponseTopic(), kmsg.NewMetadataResponseTopicPartition()
	mt.Topic, mt.TopicID = &p.Topic, p.TopicID
	mp.Leader, mp.LeaderEpoch = leader, 0
	mt.Partitions = append(mt.Partitions, mp)
	resp.Topics = append(resp.Topics, mt)
	return resp
}

// TestBounds_OldMetadata: a broker with old metadata names a deposed leader, which may not know that it was deposed.
// Bounds sends no request to it.
func TestBounds_OldMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		old := w.fake.LeaderFor("t", 0)
		if err := w.fake.MoveTopicPartition("t", 0, 1-old); err != nil {
			t.Fatal(err)
		}
		got, err := r.Bounds(t.Context(), ends(r.partitions("t")))
		if err != nil || got[p].LeaderEpoch != 1 {
			t.Fatal(got, err)
		}
		until := time.Now().Add(3 * time.Second)
		w.fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			if req.GetVersion() < metadataVersion || time.Now().After(until) {
				return nil, nil, false
			}
			return naming(req, p, old), nil, true
		})
		w.fake.ControlKey(int16(kmsg.ListOffsets), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			if w.fake.CurrentNode() == old {
				t.Error("the deposed leader was asked")
			}
			return nil, nil, false
		})
		began := time.Now()
		got, err = r.Bounds(t.Context(), []connector.Position{{Partition: p, Next: -1, Epoch: -1}})
		if err != nil || got[p].LeaderEpoch != 1 || time.Since(began) < 2*time.Second {
			t.Errorf("%+v, %v after %v", got, err, time.Since(began))
		}
	})
}

// TestBounds_DeposedLeader: if a leader was deposed before it responded to Bounds, its response does not count.
func TestBounds_DeposedLeader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		old := w.fake.LeaderFor("t", 0)
		if err := w.fake.MoveTopicPartition("t", 0, 1-old); err != nil {
			t.Fatal(err)
		}
		var asked atomic.Int32
		w.fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			if req.GetVersion() < metadataVersion || asked.Load() > 0 {
				return nil, nil, false
			}
			return naming(req, p, old), nil, true
		})
		w.fake.ControlKey(int16(kmsg.ListOffsets), func(req kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl()
			if w.fake.CurrentNode() != old {
				return nil, nil, false
			}
			asked.Add(1)
			resp := req.ResponseKind().(*kmsg.ListOffsetsResponse)
			rt, rp := kmsg.NewListOffsetsResponseTopic(), kmsg.NewListOffsetsResponseTopicPartition()
			rt.Topic, rp.Offset = "t", 5 // the deposed leader has a shorter log and does not know of the election
			rt.Partitions = append(rt.Partitions, rp)
			resp.Topics = append(resp.Topics, rt)
			return resp, nil, true
		})
		got, err := r.Bounds(t.Context(), []connector.Position{{Partition: p, Next: -1, Epoch: -1}})
		if err != nil || got[p].HighWatermark != 10 || got[p].LeaderEpoch != 1 || asked.Load() != 3 {
			t.Errorf("%+v, %v; the deposed leader was asked %d times", got, err, asked.Load())
		}
	})
}
