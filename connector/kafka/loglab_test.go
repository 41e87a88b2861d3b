//go:build lab

package kafka

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"

	"sluice/connector"
	"sluice/reliability/hold"
)

// TestLogLab runs the conformance list, and tests that need a real broker, on the cluster whose brokers
// SLUICE_TEST_KAFKA names, as host:port with commas between them.
func TestLogLab(t *testing.T) {
	addrs := os.Getenv("SLUICE_TEST_KAFKA")
	if addrs == "" {
		t.Fatal("SLUICE_TEST_KAFKA names no cluster")
	}
	ignore := goleak.IgnoreCurrent()
	t.Cleanup(func() {
		// The broker may answer a request of a stopped reader a little later; until then its goroutine remains.
		err := goleak.Find(ignore)
		for until := time.Now().Add(10 * time.Second); err != nil && time.Now().Before(until); {
			err = goleak.Find(ignore)
		}
		if err != nil {
			t.Error(err)
		}
	})
	for _, tt := range append(slices.Clone(logConformance), []struct {
		name string
		run  func(*testing.T, *cluster)
	}{
		{"JavaCodecs", testLogJavaCodecs},
		{"LongerThanTheLog", testLogLongerThanTheLog},
		{"CompactionHoles", testLogCompactionHoles},
	}...) {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := newScene(t, strings.Split(addrs, ","), (&net.Dialer{}).DialContext)
			w.prefix = fmt.Sprintf("log-%d-%s-", time.Now().UnixNano(), strings.ToLower(tt.name))
			tt.run(t, w)
		})
	}
}

// testLogJavaCodecs: if a topic has a compression.type, the broker compresses with the codecs of Java. The Log reads
// snappy with xerial's framing, and zstd at a level whose window is 128 MiB.
func testLogJavaCodecs(t *testing.T, w *cluster) {
	for codec, configs := range [][]string{
		{"compression.type", "uncompressed", "message.timestamp.type", "LogAppendTime"},
		{"compression.type", "gzip"},
		{"compression.type", "snappy"},
		{"compression.type", "lz4"},
		{"compression.type", "zstd", "compression.zstd.level", "22"},
	} {
		name := fmt.Sprint("codec", codec)
		w.createWith(name, 1, configs...)
		w.produce(name, 0, 5000, "value-")
		r := w.read(LogConfig{})
		p := r.partitions(name)[0]
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.records() == 5000 })
		if !slices.Equal(r.values(p), tagged("value-", 5000)) {
			t.Errorf("%v: other records", configs)
		}
		if at := time.UnixMilli(r.got[p][0].Timestamp); time.Since(at).Abs() > time.Minute {
			t.Errorf("%v: time %v", configs, at)
		}
		raw := r.raw(p)
		if got := int(be.Uint16(raw[21:]) & 7); got != codec {
			t.Errorf("%v: codec %d", configs, got)
		}
		switch codec {
		case 0:
			if be.Uint16(raw[21:])&8 == 0 {
				t.Error("no log append time")
			}
		case 2:
			if string(raw[62:68]) != "SNAPPY" {
				t.Error("no xerial framing")
			}
		case 4:
			var h zstd.Header
			if err := h.Decode(raw[61:]); err != nil || h.WindowSize < 64<<20 {
				t.Errorf("zstd window %d: %v", h.WindowSize, err)
			}
			t.Logf("zstd: window %d, content size known: %v", h.WindowSize, h.HasFCS)
		}
		r.stop()
	}
}

// raw fetches the first bytes of a partition and does not decode their records.
func (r *reader) raw(p connector.Partition) []byte {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), 10*time.Second)
	defer cancel()
	m, err := r.client.metadata(ctx, p.Topic)
	if err != nil {
		r.t.Fatal(err)
	}
	led := m.topic(p.Topic).partition(p.ID)
	var resp fetchResponse
	err = r.client.fetch(ctx, &fetchRequest{
		broker: led.Leader, maxBytes: 1 << 20, limit: 2 << 20,
		spans: []fetchSpan{{topic: p.TopicID, name: p.Topic, id: p.ID, leaderEpoch: led.Epoch, lastEpoch: -1, maxBytes: 1 << 20}},
	}, &resp)
	if err != nil || len(resp.parts) != 1 || resp.parts[0].err != 0 {
		r.t.Fatal(err, resp.parts)
	}
	return resp.parts[0].records
}

// testLogLongerThanTheLog: a position after the end of the log holds the partition. Brokers refuse such a position in
// one way if its leader epoch is known, and in another way if not.
func testLogLongerThanTheLog(t *testing.T, w *cluster) {
	w.create("t", 2)
	w.produce("t", 0, 4, "v")
	w.produce("t", 1, 4, "v")
	r := w.read(LogConfig{})
	parts := r.partitions("t")
	r.from(parts[0], 100, -1)
	r.from(parts[1], 100, 0)
	r.holds(time.Minute, parts[0], hold.AheadOfLogEnd)
	r.holds(time.Minute, parts[1], hold.AheadOfLogEnd)
	if a, b := r.last[parts[0]].Bounds.DivergedAt, r.last[parts[1]].Bounds.DivergedAt; a != -1 || b != 4 {
		t.Errorf("diverged at %d without an epoch, at %d with it", a, b)
	}
	// The log never had this epoch, so the records before the position are not from it.
	r.from(parts[1], 2, 7)
	r.holds(time.Minute, parts[1], hold.Truncated)
}

// testLogCompactionHoles: if compaction has removed the records at the end of batches and at the end of the log, the
// Log continues after these offsets.
func testLogCompactionHoles(t *testing.T, w *cluster) {
	w.createWith("t", 1, "cleanup.policy", "compact", "segment.ms", "100", "segment.bytes", "1048576",
		"min.cleanable.dirty.ratio", "0.001", "max.compaction.lag.ms", "100", "min.compaction.lag.ms", "0")
	cl := w.franz(kgo.ProducerBatchCompression(kgo.Lz4Compression()))
	put := func(n, mod, add int) {
		var recs []*kgo.Record
		for i := range n {
			recs = append(recs, &kgo.Record{Topic: w.prefix + "t", Key: fmt.Appendf(nil, "k%d", i%mod+add), Value: []byte(strings.Repeat("v", 50))})
		}
		if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	put(2000, 2000, 0)
	time.Sleep(300 * time.Millisecond)
	// Writes all but the first ten keys again, so that compaction removes the records at the ends of the first batches.
	put(2000, 1990, 10)
	time.Sleep(300 * time.Millisecond)
	put(1, 1, 0) // makes the broker begin a new segment, because only closed ones are compacted
	for range 120 {
		r := w.read(LogConfig{PartitionBytes: 1})
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.at[p].Next == 4001 })
		r.stop()
		if n := r.records(); n < 2100 {
			t.Logf("%d of 4001 records left, %d answers", n, r.answers)
			return
		}
		time.Sleep(500 * time.Millisecond)
	}
	t.Error("never compacted")
}

// BenchmarkLogLab reads and parses all records of a topic with 8 partitions from the cluster at SLUICE_TEST_KAFKA. The
// records are orders of 386 bytes, and one iteration reads the whole topic.
func BenchmarkLogLab(b *testing.B) {
	addrs := strings.Split(os.Getenv("SLUICE_TEST_KAFKA"), ",")
	for name, codec := range map[string]kgo.CompressionCodec{"lz4": kgo.Lz4Compression(), "zstd": kgo.ZstdCompression()} {
		b.Run(name, func(b *testing.B) {
			const records, partitions = 500_000, 8
			topic := fmt.Sprintf("bench-%d-%s", time.Now().UnixNano(), name)
			cl, err := kgo.NewClient(kgo.SeedBrokers(addrs...), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.DefaultProduceTopic(topic),
				kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(100_000), kgo.ProducerLinger(20*time.Millisecond))
			if err != nil {
				b.Fatal(err)
			}
			defer cl.Close()
			if _, err := kadm.NewClient(cl).CreateTopic(b.Context(), partitions, -1, nil, topic); err != nil {
				b.Fatal(err)
			}
			rnd := rand.New(rand.NewPCG(1, 1))
			note := make([]byte, 200)
			for i := range records {
				for j := range note {
					note[j] = "abcdefghijklmnopqrstuvwxyz      "[rnd.IntN(32)]
				}
				v := fmt.Appendf(nil, `{"order_id":"ord-%012d","customer":"cust-%06d","status":"shipped","created_at":"2026-11-21T10:%02d:%02d.%03dZ",`+
					`"amount":%.2f,"currency":"EUR","qty":%d,"note":"%s"}`,
					rnd.IntN(1e12), rnd.IntN(1e6), rnd.IntN(60), rnd.IntN(60), rnd.IntN(1000), rnd.Float64()*1000, rnd.IntN(9), note)
				cl.Produce(b.Context(), &kgo.Record{Partition: int32(i % partitions), Key: v[13:29], Value: v}, nil)
			}
			if err := cl.Flush(b.Context()); err != nil {
				b.Fatal(err)
			}
			client, err := NewClient(Config{Brokers: addrs})
			if err != nil {
				b.Fatal(err)
			}
			defer client.Close()
			t, err := client.Topic(b.Context(), topic)
			if err != nil {
				b.Fatal(err)
			}
			block := make([]connector.Record, 1000)
			b.ReportAllocs()
			runtime.GC()
			start := cpu()
			for b.Loop() {
				l := NewLog(client, LogConfig{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
				ctx, cancel := context.WithCancel(b.Context())
				ended := make(chan error, 1)
				go func() { ended <- l.Run(ctx) }()
				for _, id := range t.Partitions {
					l.Fetch(connector.FetchRequest{Position: connector.Position{
						Partition: connector.Partition{Cluster: t.Cluster, Topic: topic, TopicID: t.ID, ID: id}, Epoch: -1,
					}})
				}
				for n := 0; n < records; {
					a := <-l.Fetched()
					if a.Err != nil {
						b.Fatal(a.Err)
					}
					l.Fetch(connector.FetchRequest{Position: connector.Position{Partition: a.Partition, Next: a.Next, Epoch: a.Epoch}})
					if a.Records == nil {
						continue
					}
					for {
						got, err := a.Records.Read(block)
						n += got
						if errors.Is(err, io.EOF) {
							break
						}
						if err != nil {
							b.Fatal(err)
						}
					}
					a.Records.Release()
				}
				cancel()
				if err := <-ended; err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)*records/(cpu()-start).Seconds()/1e6, "Mrec/cpu-s")
		})
	}
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
