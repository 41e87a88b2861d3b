package kafka

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
)

// letters returns n random characters, which a codec cannot compress well.
func letters(rnd *rand.Rand, n int) string {
	b := make([]byte, n)
	for i := range b {
		b[i] = "abcdefghijklmnopqrstuvwxyz0123456789"[rnd.IntN(36)]
	}
	return string(b)
}

// TestLogInLittleMemory: with a pool for a few batches all records arrive, in order and unchanged. The test releases a
// result only when a request waits for memory, and at the end the pool must be empty.
func TestLogInLittleMemory(t *testing.T) {
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	for _, size := range []int64{160 << 10, 300 << 10, 1 << 20} {
		inBubble(t, func(t *testing.T, w *cluster) {
			rnd := rand.New(rand.NewPCG(uint64(size), 1))
			w.create("t", 8)
			want := map[int32][]string{}
			for i := range 160 {
				p := int32(i % 8)
				v := letters(rnd, 1+rnd.IntN(40<<10))
				if rnd.IntN(4) == 0 {
					v = strings.Repeat(v[:min(9, len(v))], 5000) // compresses well, so the batch grows when it is decompressed
				}
				w.produceValue("t", p, v, codecs[rnd.IntN(len(codecs))])
				want[p] = append(want[p], v)
			}
			pool := bytepool.NewScrubbing(size)
			r := w.read(LogConfig{Memory: pool})
			got := map[int32][]string{}
			var kept []connector.Records
			release := func() {
				for _, k := range kept {
					k.Release()
				}
				kept = nil
			}
			for _, p := range r.partitions("t") {
				r.from(p, 0, -1)
			}
			end := time.After(10 * time.Minute)
			most := int64(0)
			for n := 0; n < 160; {
				select {
				case a := <-r.Fetched():
					if a.Err != nil {
						t.Fatal(a.Err)
					}
					most = max(most, pool.Used())
					if a.Records != nil {
						block := make([]connector.Record, 100)
						for {
							k, err := a.Records.Read(block)
							for _, rec := range block[:k] {
								got[a.Partition.ID] = append(got[a.Partition.ID], strings.Clone(string(rec.Value)))
							}
							if n += k; err != nil {
								break
							}
						}
						kept = append(kept, a.Records)
					}
					r.Fetch(connector.FetchRequest{Position: connector.Position{Partition: a.Partition, Next: a.Next, Epoch: a.Epoch}, Session: r.session})
				case <-pool.Pressed():
					release()
				case <-time.After(time.Second):
					release()
				case <-end:
					t.Fatalf("pool of %d: %d of 160 after ten minutes; %d used", size, n, pool.Used())
				}
			}
			for p, values := range want {
				if !slices.Equal(got[p], values) {
					t.Errorf("pool of %d: partition %d has %d values of %d, or other ones", size, p, len(got[p]), len(values))
				}
			}
			if most > size || most < size/2 {
				t.Errorf("pool of %d: %d used at most", size, most)
			}
			release()
			t.Logf("pool of %d: %d used at most, %v batches put back", size, most, r.metric("sluice_fetch_errors_total", "kind", "memory"))
		})
	}
}

// produceValue writes one record in a batch of its own.
func (w *cluster) produceValue(topic string, partition int32, value string, codec kgo.CompressionCodec) {
	w.t.Helper()
	cl := w.franz(kgo.ProducerBatchCompression(codec), kgo.ProducerBatchMaxBytes(64<<20), kgo.MaxBufferedRecords(1))
	defer cl.Close()
	rec := &kgo.Record{Topic: w.prefix + topic, Partition: partition, Value: []byte(value)}
	if err := cl.ProduceSync(w.t.Context(), rec).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

// TestLogOversize: a batch that needs nearly the whole fetch pool is delivered. One that needs more than the pool holds
// its partition, with a detail that says what the operator can do. The other partitions continue.
func TestLogOversize(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		rnd := rand.New(rand.NewPCG(1, 1))
		w.create("t", 3)
		for p := range int32(3) {
			if err := w.fake.MoveTopicPartition("t", p, 0); err != nil {
				t.Fatal(err)
			}
		}
		large := letters(rnd, 580<<10)
		w.produceValue("t", 0, large, kgo.NoCompression())
		// Decompresses to 1.6 MiB, more than the pool.
		w.produceValue("t", 1, strings.Repeat("0123456789abcdef", 100<<10), kgo.ZstdCompression())
		w.produce("t", 2, 50, "v")
		r := w.read(LogConfig{Memory: bytepool.NewScrubbing(1500 << 10)})
		parts := r.partitions("t")
		for _, p := range parts {
			r.from(p, 0, -1)
		}
		r.until(time.Minute, func() bool { return len(r.got[parts[0]]) == 1 && len(r.got[parts[2]]) == 50 })
		if got := string(r.got[parts[0]][0].Value); got != large {
			t.Error("the large value is another one")
		}
		r.holds(time.Minute, parts[1], hold.Oversize)
		if text := fmt.Sprint(r.held[parts[1]]); !strings.Contains(text, "offset 0 does not fit") || !strings.Contains(text, "memory.limit: raise that") {
			t.Error(text)
		}
		w.produce("t", 2, 50, "w")
		r.until(time.Minute, func() bool { return len(r.got[parts[2]]) == 100 })
	})
}
