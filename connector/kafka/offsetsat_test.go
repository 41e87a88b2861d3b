package kafka

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/connector"
)

// testLogOffsetsAt: OffsetsAt returns the offset of the first committed record whose timestamp is at least the given
// time, to the millisecond. It leaves out partitions without such a record.
func testLogOffsetsAt(t *testing.T, w *cluster) {
	w.create("t", 3)
	base := time.UnixMilli(1_700_000_000_000)
	produce := func(client *kgo.Client, partition int32, times ...int) {
		t.Helper()
		for _, ms := range times { // each record in its own batch
			r := &kgo.Record{Topic: w.prefix + "t", Partition: partition, Value: []byte("v"), Timestamp: base.Add(time.Duration(ms) * time.Millisecond)}
			if err := client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
				t.Fatal(err)
			}
		}
	}
	plain := w.franz(kgo.ProducerLinger(0))
	produce(plain, 0, 0, 100, 200, 300)
	produce(plain, 1, 300, 100, 200) // the timestamp of the second record is older than that of the first
	tx := w.franz(kgo.TransactionalID(w.prefix+"tx"), kgo.ProducerLinger(0))
	if err := tx.BeginTransaction(); err != nil {
		t.Fatal(err)
	}
	produce(tx, 0, 400)
	r := w.read(LogConfig{})
	parts := r.partitions("t")
	gone := parts[2]
	gone.TopicID[0] ^= 1
	for _, c := range []struct {
		at   time.Time
		want map[connector.Partition]int64
	}{
		{time.Time{}, map[connector.Partition]int64{parts[0]: 0, parts[1]: 0}},
		{base.Add(100 * time.Millisecond), map[connector.Partition]int64{parts[0]: 1, parts[1]: 0}},
		{base.Add(100*time.Millisecond + 1), map[connector.Partition]int64{parts[0]: 2, parts[1]: 0}},
		{base.Add(300 * time.Millisecond), map[connector.Partition]int64{parts[0]: 3, parts[1]: 0}},
		{base.Add(301 * time.Millisecond), map[connector.Partition]int64{}}, // an uncommitted record does not count
		{base.Add(time.Hour), map[connector.Partition]int64{}},
	} {
		got, err := r.OffsetsAt(t.Context(), append([]connector.Partition{gone}, parts...), c.at)
		if d := cmp.Diff(c.want, got); d != "" || err != nil {
			t.Errorf("at %v: error %v (-want +got):\n%s", c.at, err, d)
		}
	}
	if err := tx.EndTransaction(t.Context(), kgo.TryCommit); err != nil {
		t.Fatal(err)
	}
	w.until("the transaction shows", func() bool {
		got, err := r.OffsetsAt(t.Context(), parts, base.Add(400*time.Millisecond))
		return err == nil && cmp.Equal(got, map[connector.Partition]int64{parts[0]: 4})
	})
}

func TestOffsetsAtFails(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		r := w.read(LogConfig{})
		parts := r.partitions("t")
		w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "t", Err: kerr.NotLeaderForPartition, Count: 1})
		if got, err := r.OffsetsAt(t.Context(), parts, time.Now()); classify.Of(err) != classify.Transient || got != nil {
			t.Errorf("%v, %v: want a transient error", got, err)
		}
		w.fake.Fault(kfake.Fault{Keys: []kmsg.Key{kmsg.ListOffsets}, Topic: "t", Err: kerr.TopicAuthorizationFailed, Count: 1})
		if _, err := r.OffsetsAt(t.Context(), parts, time.Now()); classify.Of(err) != classify.Fatal {
			t.Errorf("%v: want a fatal error", err)
		}
	})
}
