package kafka

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/classify"
	"sluice/connector"
	"sluice/reliability"
)

// TestProducer: records come to their partition in their order, in as many batches as the topic needs. A topic that was
// created again is refused.
func TestProducer(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.createWith("t", 2, "max.message.bytes", "3000")
		client, err := NewClient(Config{Brokers: w.addrs, Dial: w.dial})
		if err != nil {
			t.Fatal(err)
		}
		defer client.Close()
		guard := reliability.NewGuard("kafka", reliability.Config{
			Backoff: reliability.Backoff{Initial: 100 * time.Millisecond, Max: time.Second, Jitter: 0.25}, Failures: 5, OpenFor: 2 * time.Second, Successes: 3,
		}, slog.New(slog.DiscardHandler), nil)
		topic, err := NewLog(client, LogConfig{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry()).Topic(t.Context(), w.prefix+"t")
		if err != nil {
			t.Fatal(err)
		}
		to := topic.All()[1]
		var records []connector.Record
		for i := range 20 {
			records = append(records, connector.Record{
				Timestamp: time.Now().UnixMilli(), Key: []byte("k"), Value: []byte(fmt.Sprint(i, strings.Repeat("v", 500))), Headers: []connector.Header{{Key: "h", Value: []byte{1}}},
			})
		}
		p := NewProducer(client, guard)
		if err := p.Produce(t.Context(), to, records); err != nil {
			t.Fatal(err)
		}
		got := w.consume(to.Topic, to.ID, len(records))
		for i, r := range got {
			if string(r.Key) != "k" || string(r.Value) != string(records[i].Value) || len(r.Headers) != 1 || r.Headers[0].Key != "h" || r.Partition != to.ID {
				t.Errorf("record %d: %s", i, r.Value)
			}
		}
		large := []connector.Record{{Value: make([]byte, 5000)}}
		if err := p.Produce(t.Context(), to, large); classify.Of(err) == classify.Transient || err == nil {
			t.Errorf("too large: %v", err)
		}
		again := to
		again.TopicID[0]++
		if err := p.Produce(t.Context(), again, records[:1]); err == nil || !strings.Contains(err.Error(), "was created again") {
			t.Errorf("%v", err)
		}
		none := to
		none.ID = 7
		if err := p.Produce(t.Context(), none, records[:1]); err == nil || !strings.Contains(err.Error(), "no partition 7") {
			t.Errorf("%v", err)
		}
	})
}

// consume returns the first n records of a partition.
func (w *cluster) consume(topic string, partition int32, n int) (all []*kgo.Record) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	c, err := kgo.NewClient(kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.dial),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		w.t.Fatal(err)
	}
	defer c.Close()
	for len(all) < n {
		f := c.PollFetches(ctx)
		if err := f.Err(); err != nil {
			w.t.Fatal(err)
		}
		all = append(all, f.Records()...)
	}
	return all
}
