package kafka

import (
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/klauspost/compress/zstd"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/connector"
)

var _ connector.Log = (*Log)(nil)

// onFetch calls fn for every fetch request after this call. If fn returns a response, the client gets it instead of the
// cluster's.
func (w *cluster) onFetch(fn func(*kmsg.FetchRequest) *kmsg.FetchResponse) {
	w.fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
		w.fake.KeepControl()
		if resp := fn(req.(*kmsg.FetchRequest)); resp != nil {
			return resp, nil, true
		}
		return nil, nil, false
	})
}

// answer returns a response to req with every requested partition, each completed by fill.
func answer(req *kmsg.FetchRequest, fill func(kmsg.FetchRequestTopicPartition, *kmsg.FetchResponseTopicPartition)) *kmsg.FetchResponse {
	resp := req.ResponseKind().(*kmsg.FetchResponse)
	for _, t := range req.Topics {
		rt := kmsg.NewFetchResponseTopic()
		rt.Topic, rt.TopicID = t.Topic, t.TopicID
		for _, p := range t.Partitions {
			rp := kmsg.NewFetchResponseTopicPartition()
			rp.Partition = p.Partition
			rp.RecordBatches = []byte{}
			fill(p, &rp)
			rt.Partitions = append(rt.Partitions, rp)
		}
		resp.Topics = append(resp.Topics, rt)
	}
	return resp
}

// logConformance lists tests of a Log that must pass on every cluster. TestLog runs them on the in-process cluster in
// virtual time, TestLogLab on a real one.
var logConformance = []struct {
	name string
	run  func(*testing.T, *cluster)
}{
	{"Reads", testLogReads},
	{"Transactions", testLogTransactions},
	{"RecreatedTopic", testLogRecreatedTopic},
	{"OutOfRange", testLogOutOfRange},
	{"OffsetsAt", testLogOffsetsAt},
	{"BatchAt", testLogBatchAt},
	{"TimeAt", testLogTimeAt},
}

func TestLog(t *testing.T) {
	for _, tt := range logConformance {
		t.Run(tt.name, func(t *testing.T) { inBubble(t, tt.run) })
	}
}

// deleteRecords deletes the records of a partition before the offset to, which becomes the start of the log.
func (w *cluster) deleteRecords(topic string, partition int32, to int64) {
	w.t.Helper()
	offsets := kadm.Offsets{}
	offsets.Add(kadm.Offset{Topic: w.prefix + topic, Partition: partition, At: to})
	if _, err := w.admin.DeleteRecords(w.t.Context(), offsets); err != nil {
		w.t.Fatal(err)
	}
}

// testLogReads: two topics on two brokers, with batches of every codec, are read completely and in order, with many
// partitions per request.
func testLogReads(t *testing.T, w *cluster) {
	w.create("a", 6)
	w.create("b", 3)
	codecs := []kgo.CompressionCodec{
		kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression(),
	}
	for p := range int32(6) {
		for round := range 3 {
			w.produce("a", p, 100, fmt.Sprint("a", round, "-"), kgo.ProducerBatchCompression(codecs[int(p)%5]))
		}
	}
	w.produce("b", 2, 5, "b")
	var most atomic.Int64
	if w.fake != nil {
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			n := 0
			for _, t := range req.Topics {
				n += len(t.Partitions)
			}
			most.Store(max(most.Load(), int64(n)))
			return nil
		})
	}
	r := w.read(LogConfig{})
	for _, p := range r.partitions("a", "b") {
		r.from(p, 0, -1)
	}
	r.until(time.Minute, func() bool { return r.records() == 6*300+5 && r.answers >= 9 })
	for _, p := range r.partitions("a") {
		want := slices.Concat(tagged("a0-", 100), tagged("a1-", 100), tagged("a2-", 100))
		if !slices.Equal(r.values(p), want) || r.at[p].Next != 300 {
			t.Errorf("%v: %d records, next %d", p, len(r.got[p]), r.at[p].Next)
		}
		want2 := connector.Bounds{HighWatermark: 300, LastStable: 300, DivergedAt: -1}
		if b := r.last[p].Bounds; b != want2 {
			t.Errorf("%v: %+v", p, b)
		}
	}
	if n := most.Load(); n < 3 && w.fake != nil {
		t.Errorf("%d partitions in a request at most", n)
	}
	empty := r.partitions("b")[0]
	if a := r.last[empty]; a.Next != 0 || a.Records != nil || a.Epoch != -1 || a.Bounds.DivergedAt != -1 {
		t.Errorf("an empty partition: %+v", a)
	}
}

// testLogTransactions: the log has interleaved transactions, of which a third are aborted, with every codec. For
// several values of PartitionBytes, the Log delivers the same records as franz-go.
func testLogTransactions(t *testing.T, w *cluster) {
	w.create("t", 2)
	rnd := rand.New(rand.NewPCG(7, 7))
	codecs := []kgo.CompressionCodec{kgo.NoCompression(), kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()}
	var producers []*kgo.Client
	for i := range codecs {
		producers = append(producers, w.franz(kgo.TransactionalID(fmt.Sprint(w.prefix, "tx", i)), kgo.ProducerBatchCompression(codecs[i]), kgo.ProducerLinger(0)))
	}
	open := make([]bool, len(producers))
	committed, aborted, pending := 0, 0, make([]int, len(producers))
	end := func(i int, commit bool) {
		if err := producers[i].EndTransaction(t.Context(), kgo.TransactionEndTry(commit)); err != nil {
			t.Fatal(err)
		}
		if commit {
			committed += pending[i]
		} else {
			aborted += pending[i]
		}
		open[i], pending[i] = false, 0
	}
	for step := range 150 {
		i := rnd.IntN(len(producers))
		if !open[i] {
			if err := producers[i].BeginTransaction(); err != nil {
				t.Fatal(err)
			}
			open[i] = true
		}
		for part := range int32(2) {
			var recs []*kgo.Record
			for range 1 + rnd.IntN(5) {
				recs = append(recs, &kgo.Record{
					Topic: w.prefix + "t", Partition: part,
					Key: fmt.Appendf(nil, "%d", step), Value: []byte(strings.Repeat("x", rnd.IntN(300))),
					Headers: []kgo.RecordHeader{{Key: "codec", Value: []byte{byte(i)}}},
				})
			}
			if err := producers[i].ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
			pending[i] += len(recs)
		}
		if rnd.IntN(3) == 0 {
			end(i, rnd.IntN(3) > 0)
		}
	}
	for i := range producers {
		if open[i] {
			end(i, false)
		}
	}
	if committed == 0 || aborted == 0 {
		t.Fatal(committed, aborted)
	}
	want := w.oracle("t", committed)
	for _, size := range []int{1 << 20, 5000, 300, 1} {
		// kfake leaves out aborted transactions where a response reaches MaxBytes, so MaxBytes stays large here.
		r := w.read(LogConfig{PartitionBytes: size})
		ends, err := r.Bounds(t.Context(), ends(r.partitions("t")))
		if err != nil {
			t.Fatal(err)
		}
		for p := range ends {
			r.from(p, 0, -1)
		}
		r.until(time.Minute, func() bool {
			for p, b := range ends {
				if r.at[p].Next < b.LastStable {
					return false
				}
			}
			return true
		})
		for p := range ends {
			if got := sums(r.got[p]); !slices.Equal(got, want[p.ID]) {
				t.Errorf("%d bytes: %v differs: %d records, franz-go has %d", size, p, len(got), len(want[p.ID]))
			}
		}
		if r.records() != committed {
			t.Errorf("%d bytes: %d of %d records", size, r.records(), committed)
		}
		t.Logf("%d bytes: %d committed records exact in %d answers, %d aborted ones dropped", size, committed, r.answers, aborted)
		r.stop()
	}
}

// ends returns a position with Next -1 for each partition. For such a position, Bounds returns the bounds of the
// partition and does not check the position.
func ends(partitions []connector.Partition) (positions []connector.Position) {
	for _, p := range partitions {
		positions = append(positions, connector.Position{Partition: p, Next: -1, Epoch: -1})
	}
	return positions
}

// sums returns a hash of each record: offset, timestamp, key, value and headers.
func sums(records []connector.Record) (sums []uint64) {
	for _, r := range records {
		h := fnv.New64a()
		fmt.Fprintf(h, "%d %d %q %v %q %v", r.Offset, r.Timestamp, r.Key, r.Key == nil, r.Value, r.Value == nil)
		for _, x := range r.Headers {
			fmt.Fprintf(h, "%q=%q", x.Key, x.Value)
		}
		sums = append(sums, h.Sum64())
	}
	return sums
}

// oracle reads n committed records of a topic with franz-go and returns their hashes, by partition.
func (w *cluster) oracle(topic string, n int) map[int32][]uint64 {
	w.t.Helper()
	got := map[int32][]connector.Record{}
	cl := w.franz(kgo.ConsumeTopics(w.prefix+topic), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.WithDecompressor(decompressor{kgo.DefaultDecompressor()}), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	defer cl.Close()
	for seen := 0; seen < n; {
		fetches := cl.PollFetches(w.t.Context())
		if err := fetches.Err(); err != nil {
			w.t.Fatalf("franz-go after %d of %d: %v", seen, n, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			rec := connector.Record{Offset: r.Offset, Timestamp: r.Timestamp.UnixMilli(), Key: r.Key, Value: r.Value}
			for _, h := range r.Headers {
				rec.Headers = append(rec.Headers, connector.Header{Key: h.Key, Value: h.Value})
			}
			got[r.Partition] = append(got[r.Partition], rec)
			seen++
		})
	}
	all := map[int32][]uint64{}
	for p, recs := range got {
		all[p] = sums(recs)
	}
	return all
}

// decompressor is the decompressor of franz-go, except that it makes and closes a zstd decoder for each call. A zstd
// decoder of franz-go has a finalizer, which closes a channel of the test's bubble, perhaps outside of the bubble.
type decompressor struct{ kgo.Decompressor }

func (d decompressor) Decompress(src []byte, codec kgo.CompressionCodecType) ([]byte, error) {
	if codec != kgo.CodecZstd {
		return d.Decompressor.Decompress(src, codec)
	}
	z, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	return z.DecodeAll(src, nil)
}

// TestLogCompacted: if compaction has removed records, reading continues after the missing offsets and reaches the end
// of the log.
func TestLogCompacted(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		policy := "compact"
		small := "4096"
		if _, err := w.admin.CreateTopic(t.Context(), 1, -1, map[string]*string{"cleanup.policy": &policy, "segment.bytes": &small}, "t"); err != nil {
			t.Fatal(err)
		}
		cl := w.franz(kgo.ProducerBatchCompression(kgo.Lz4Compression()), kgo.ProducerLinger(0))
		for i := range 100 {
			var recs []*kgo.Record
			for k := range 20 { // the first key is written only once, so compaction leaves the start of the log where it was
				recs = append(recs, &kgo.Record{Topic: "t", Key: fmt.Appendf(nil, "k%d", min(i*20+k, 1+(i*7+k)%50)), Value: []byte(strings.Repeat("v", 50))})
			}
			if err := cl.ProduceSync(t.Context(), recs...).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(time.Hour)
		w.fake.Compact()
		r := w.read(LogConfig{PartitionBytes: 1})
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.at[p].Next == 2000 })
		if n := r.records(); n >= 2000 || n < 50 {
			t.Errorf("%d records", n)
		} else {
			t.Logf("%d of 2000 records left, %d answers", n, r.answers)
		}
	})
}

// TestLogIdlePartitions: while other partitions are idle, a newly requested partition is read at once; it does not wait
// until the long poll of the idle ones ends. The idle partitions cause few requests.
func TestLogIdlePartitions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 40)
		w.produce("t", 7, 10, "v")
		var requests atomic.Int32
		w.onFetch(func(*kmsg.FetchRequest) *kmsg.FetchResponse { requests.Add(1); return nil })
		r := w.read(LogConfig{})
		parts := r.partitions("t")
		for _, p := range parts {
			if p.ID != 7 {
				r.from(p, 0, -1)
			}
		}
		if r.within(10*time.Second, func() bool { return r.answers > 39 }) || r.answers != 39 {
			t.Fatalf("%d answers", r.answers)
		}
		if n := requests.Load(); n > 2*(1+20+2)+10 {
			t.Errorf("%d requests in ten idle seconds", n)
		}
		t.Logf("%d requests in ten idle seconds of 39 partitions", requests.Load())
		began := time.Now()
		r.from(parts[7], 0, -1)
		r.until(time.Second, func() bool { return r.records() == 10 })
		if since := time.Since(began); since > 50*time.Millisecond {
			t.Errorf("the newcomer waited for %v", since)
		}
		// A record that arrives at an idle partition is delivered after at most one long poll.
		began = time.Now()
		w.produce("t", 3, 1, "w")
		r.until(time.Second, func() bool { return r.records() == 11 })
		if since := time.Since(began); since > 600*time.Millisecond {
			t.Errorf("the record waited for %v", since)
		}
	})
}

// TestLogTellsBounds: if only the end of the log changes, a result without records reports it, at most once per second.
func TestLogTellsBounds(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 10, "v")
		r := w.read(LogConfig{MinBytes: 1})
		p := r.partitions("t")[0]
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.records() == 10 })
		tx := w.franz(kgo.TransactionalID("tx"), kgo.ProducerLinger(0))
		if err := tx.BeginTransaction(); err != nil {
			t.Fatal(err)
		}
		answers, began := r.answers, time.Now()
		for range 50 {
			if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("open")}).FirstErr(); err != nil {
				t.Fatal(err)
			}
			r.within(100*time.Millisecond, func() bool { return false })
		}
		r.until(2*time.Second, func() bool { return r.last[p].Bounds.HighWatermark == 60 })
		if b := r.last[p].Bounds; b.LastStable != 10 || r.last[p].Next != 10 {
			t.Errorf("%+v", r.last[p])
		}
		if told, most := r.answers-answers, int(time.Since(began)/time.Second)+1; told > most || told < 2 {
			t.Errorf("%d answers in %v", told, time.Since(began))
		}
		if err := tx.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
			t.Fatal(err)
		}
		r.until(2*time.Second, func() bool { return r.at[p].Next == 61 })
		if r.records() != 10 {
			t.Errorf("%d records", r.records())
		}
	})
}

// TestLogSessions: a fetch result has the session of its request. Results of a request that was forgotten or replaced
// are not delivered.
func TestLogSessions(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 2)
		w.produce("t", 0, 10, "v")
		w.produce("t", 1, 10, "v")
		r := w.read(LogConfig{})
		parts := r.partitions("t")
		ask := func(p connector.Partition, next int64, session uint64) {
			r.Fetch(connector.FetchRequest{Position: connector.Position{Partition: p, Next: next, Epoch: -1}, Session: session})
		}
		ask(parts[0], 0, 1)
		ask(parts[1], 0, 1)
		synctest.Wait() // the Log has both results and is delivering one of them
		ask(parts[0], 5, 2)
		r.Forget(parts[1])
		synctest.Wait()
		var got []string
		for range 2 {
			select {
			case a := <-r.Fetched():
				n := 0
				if a.Records != nil {
					n = len(readRecords(t, a.Records))
				}
				got = append(got, fmt.Sprintf("%v session %d: %d", a.Partition, a.Session, n))
			case <-time.After(10 * time.Second):
			}
		}
		slices.Sort(got)
		// A result whose delivery has begun may still arrive after its request was replaced or forgotten.
		late := []string{"t:0 session 1: 10", "t:1 session 1: 10"}
		got = slices.DeleteFunc(got, func(s string) bool { return slices.Contains(late, s) })
		if !slices.Equal(got, []string{"t:0 session 2: 5"}) {
			t.Error(got)
		}
		// The partition is forgotten while its request is in flight, and then requested from another position.
		ask(parts[0], 10, 3)
		<-r.Fetched() // wait for a result that has bounds and no records
		ask(parts[0], 10, 3)
		time.Sleep(100 * time.Millisecond)
		r.Forget(parts[0])
		ask(parts[0], 7, 4)
		a := <-r.Fetched()
		if a.Session != 4 || a.Next != 10 || len(readRecords(t, a.Records)) != 3 {
			t.Errorf("%+v", a)
		}
		// The request is replaced while it is in flight. Then the broker answers it with a record, which is not a
		// result for the new position.
		ask(parts[0], 10, 4)
		time.Sleep(100 * time.Millisecond)
		ask(parts[0], 5, 5)
		w.produce("t", 0, 1, "late")
		a = <-r.Fetched()
		if a.Session != 5 || a.Next != 11 || len(readRecords(t, a.Records)) != 6 {
			t.Errorf("%+v", a)
		}
	})
}

// TestLogWithoutReader: if the reader takes no results, the Log keeps one per partition and sends no more requests.
func TestLogWithoutReader(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 8)
		for p := range int32(8) {
			w.produce("t", p, 10, "v")
			w.produce("t", p, 10, "v")
		}
		var requests atomic.Int32
		w.onFetch(func(*kmsg.FetchRequest) *kmsg.FetchResponse { requests.Add(1); return nil })
		r := w.read(LogConfig{PartitionBytes: 1})
		for _, p := range r.partitions("t") {
			r.from(p, 0, -1)
		}
		time.Sleep(time.Minute)
		if n := requests.Load(); n > 8 {
			t.Errorf("%d requests", n)
		}
		r.until(time.Minute, func() bool { return r.records() == 160 })
	})
}
