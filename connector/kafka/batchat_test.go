package kafka

import (
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/connector/kafka/recordbatch"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
)

func heldFor(err error) hold.Reason {
	held := (*hold.Error)(nil)
	if errors.As(err, &held) {
		return held.Reason
	}
	return ""
}

// testLogBatchAt: BatchAt returns where the batch at an offset begins and ends, whether its records can be read, and
// the record at the offset.
func testLogBatchAt(t *testing.T, w *cluster) {
	w.create("t", 2)
	w.produce("t", 0, 5, "a")
	w.produce("t", 0, 3, "b")
	tx := w.franz(kgo.TransactionalID(w.prefix+"tx"), kgo.ProducerLinger(0))
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	if err := tx.ProduceSync(t.Context(), &kgo.Record{Topic: w.prefix + "t", Partition: 0, Value: []byte("open")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := w.read(LogConfig{})
	parts := r.partitions("t")
	for _, c := range []struct {
		offset, base, last int64
	}{{0, 0, 4}, {3, 0, 4}, {4, 0, 4}, {5, 5, 7}, {7, 5, 7}} {
		got, err := r.BatchAt(t.Context(), parts[0], c.offset)
		if err != nil || got.Base != c.base || got.Last != c.last || got.Unreadable != nil || got.Record == nil || got.Record.Offset != c.offset {
			t.Errorf("offset %d: %+v %v", c.offset, got, err)
		}
	}
	for _, offset := range []int64{8, 9} { // 8 is in an open transaction, 9 is the end
		if got, err := r.BatchAt(t.Context(), parts[0], offset); heldFor(err) != hold.AheadOfLogEnd {
			t.Errorf("offset %d: %+v %v", offset, got, err)
		}
	}
	if err := tx.EndTransaction(t.Context(), kgo.TryAbort); err != nil {
		t.Fatal(err)
	}
	w.until("the transaction is over", func() bool { // the aborted batch and its marker are in the log, but contain no committed record
		got, err := r.BatchAt(t.Context(), parts[0], 8)
		return err == nil && got.Base == 8 && got.Record == nil && got.Unreadable == nil
	})
	if got, err := r.BatchAt(t.Context(), parts[1], 0); heldFor(err) != hold.AheadOfLogEnd {
		t.Errorf("an empty partition: %+v %v", got, err)
	}
	gone := parts[0]
	gone.TopicID[0] ^= 1
	if got, err := r.BatchAt(t.Context(), gone, 0); heldFor(err) != hold.TopicRecreated {
		t.Errorf("another topic: %+v %v", got, err)
	}
	w.deleteRecords("t", 0, 5)
	if got, err := r.BatchAt(t.Context(), parts[0], 4); heldFor(err) != hold.BehindLogStart {
		t.Errorf("a deleted record: %+v %v", got, err)
	}
}

func TestBatchAtOfADamagedBatch(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		damaged := batch(t, 2, "c", "d", "e")
		damaged[len(damaged)-1] ^= 1
		var raw atomic.Pointer[[]byte]
		w.onFetch(func(req *kmsg.FetchRequest) *kmsg.FetchResponse {
			return answer(req, func(_ kmsg.FetchRequestTopicPartition, rp *kmsg.FetchResponseTopicPartition) {
				rp.HighWatermark, rp.LastStableOffset, rp.RecordBatches = 9, 9, *raw.Load()
			})
		})
		r := w.read(LogConfig{Limits: recordbatch.Limits{Batch: 1 << 10, Floor: 1 << 10}})
		p := r.partitions("t")[0]
		large := batch(t, 2, string(make([]byte, 4<<10)))
		for name, c := range map[string]struct {
			raw    []byte
			last   int64
			reason hold.Reason
		}{
			"damaged":              {slices.Concat(damaged, batch(t, 5, "f")), 4, hold.CorruptBatch},
			"larger than may be":   {large, 2, hold.Oversize},
			"and the next is good": {slices.Concat(large, batch(t, 3, "f")), 2, hold.Oversize},
		} {
			raw.Store(&c.raw)
			got, err := r.BatchAt(t.Context(), p, 2)
			if err != nil || got.Base != 2 || got.Last != c.last || heldFor(got.Unreadable) != c.reason {
				t.Errorf("%s: %+v %v", name, got, err)
			}
		}
	})
}

// testLogTimeAt: TimeAt returns the newest timestamp in the batch at an offset, and takes no more memory than its
// limit.
func testLogTimeAt(t *testing.T, w *cluster) {
	w.create("t", 2)
	at := time.UnixMilli(1_700_000_000_000)
	var records []*kgo.Record
	for i := range 5 {
		records = append(records, &kgo.Record{Topic: w.prefix + "t", Value: []byte("v"), Timestamp: at.Add(time.Duration(i) * time.Second)})
	}
	producer := w.franz(kgo.ProducerLinger(50*time.Millisecond), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err := producer.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
	r := w.read(LogConfig{})
	parts := r.partitions("t")
	for _, offset := range []int64{0, 3} {
		if got, err := r.TimeAt(t.Context(), parts[0], offset, 1<<20); err != nil || !got.Equal(at.Add(4*time.Second)) {
			t.Errorf("offset %d: %v %v", offset, got, err)
		}
	}
	if _, err := r.TimeAt(t.Context(), parts[0], 5, 1<<20); heldFor(err) != hold.AheadOfLogEnd {
		t.Errorf("at the end: %v", err)
	}
	w.deleteRecords("t", 0, 2)
	if _, err := r.TimeAt(t.Context(), parts[0], 1, 1<<20); heldFor(err) != hold.BehindLogStart {
		t.Errorf("deleted: %v", err)
	}
	pool := bytepool.New(1 << 20)
	little := w.read(LogConfig{Memory: pool})
	if _, err := little.TimeAt(t.Context(), parts[0], 2, 1<<18); err != nil {
		t.Error(err)
	}
	if used := pool.Used(); used != 0 {
		t.Errorf("%d bytes are kept", used)
	}
	if !pool.TryAcquire(1 << 20) {
		t.Fatal("the pool is not free")
	}
	if _, err := little.TimeAt(t.Context(), parts[0], 2, 1<<18); classify.Of(err) != classify.Transient {
		t.Errorf("without memory: %v", err)
	}
	pool.Release(1 << 20)
}
