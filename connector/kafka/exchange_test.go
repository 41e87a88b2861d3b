package kafka

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/twmb/franz-go/pkg/kfake"
	"github.com/twmb/franz-go/pkg/kmsg"

	"sluice/classify"
	"sluice/idempotency"
	"sluice/reliability/hold"
)

// TestExchangeRefuses: a response with an absurd size, a wrong correlation id or missing bytes is an error. The client
// never allocates a large buffer because of the size field alone, also not if the size is the first bytes of an HTTP
// response.
func TestExchangeRefuses(t *testing.T) {
	for _, tt := range []struct {
		answer string
		want   error
	}{
		{"HTTP/1.1 400 Bad Request\r\n\r\n", errResponseSize},
		{"\xff\xff\xff\xff\x00\x00\x00\x05", errResponseSize},
		{"\x00\x00\x00\x08\x00\x00\x00\x06late", errMalformed},
		{"\x00\x00\x00\x08\x00\x00\x00\x05cut", io.ErrUnexpectedEOF},
	} {
		x := &exchange{corr: 5, limit: 1 << 20}
		_, err := x.RawExchange(struct {
			io.Reader
			io.Writer
		}{strings.NewReader(tt.answer), io.Discard})
		if !errors.Is(err, tt.want) || cap(x.in) > 10 {
			t.Errorf("%q: %v, buffer of %d", tt.answer, err, cap(x.in))
		}
	}
}

// TestExchangeDeadline: every exchange ends at its deadline, even if the broker does not answer and the caller has set
// no deadline.
func TestExchangeDeadline(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		r, s := w.readStaged(LogConfig{})
		if _, err := r.Topic(t.Context(), "t"); err != nil {
			t.Fatal(err)
		}
		for _, a := range w.addrs {
			s.stop(a)
		}
		began := time.Now()
		_, err := r.Topic(context.WithoutCancel(t.Context()), "t")
		if err == nil || classify.Of(err) != classify.Transient || time.Since(began) > r.client.timeout() {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		for _, a := range w.addrs {
			s.resume(a)
		}
		if _, err := r.Topic(t.Context(), "t"); err != nil {
			t.Error(err)
		}
	})
}

// TestVersionsAreForgotten: if a broker is downgraded while a client is connected, the client asks it again for the
// versions that it supports.
func TestVersionsAreForgotten(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		w.produce("t", 0, 1, "v")
		r := w.read(LogConfig{})
		p := r.partitions("t")[0]
		broker := w.fake.LeaderFor("t", 0)
		if _, err := r.client.version(t.Context(), broker, protocol.Fetch, 13, 13); err != nil {
			t.Fatal(err)
		}
		w.fake.ControlKey(int16(kmsg.Fetch), func(req kmsg.Request) (kmsg.Response, error, bool) {
			resp := req.ResponseKind().(*kmsg.FetchResponse)
			resp.ErrorCode = int16(kafka.UnsupportedVersion)
			return resp, nil, true
		})
		known := func() bool {
			r.client.mu.Lock()
			defer r.client.mu.Unlock()
			return r.client.versions[broker] != nil
		}
		var resp fetchResponse
		err := r.client.fetch(t.Context(), &fetchRequest{broker: broker, limit: 1 << 20, spans: []fetchSpan{{topic: p.TopicID}}}, &resp)
		if !errors.Is(err, kafka.UnsupportedVersion) || known() {
			t.Errorf("%v, its versions are still believed: %v", err, known())
		}
		r.from(p, 0, -1)
		r.until(time.Minute, func() bool { return r.records() == 1 && known() })
		// The broker closes the connection when it gets a version that it does not know.
		w.fake.ControlKey(int16(kmsg.Fetch), func(kmsg.Request) (kmsg.Response, error, bool) {
			w.fake.KeepControl() // the reader of the test sends fetch requests as well
			return nil, errors.New("close"), true
		})
		err = r.client.fetch(t.Context(), &fetchRequest{broker: broker, limit: 1 << 20, spans: []fetchSpan{{topic: p.TopicID}}}, &resp)
		if err == nil || known() {
			t.Errorf("%v, its versions are still believed: %v", err, known())
		}
	})
}

// TestMetadata: the metadata have the cluster id, topics, topic ids, leaders and leader epochs. A missing topic is
// reported as missing and is not created.
func TestMetadata(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		id := w.create("a", 3)
		w.create("b", 2)
		if err := w.fake.MoveTopicPartition("a", 1, 1-w.fake.LeaderFor("a", 1)); err != nil {
			t.Fatal(err)
		}
		r := w.read(LogConfig{})
		m, err := r.client.metadata(t.Context(), "a", "none", "b")
		if err != nil {
			t.Fatal(err)
		}
		a := m.topic("a")
		if m.Cluster == "" || len(m.Brokers) != 2 || m.Brokers[0].Host == "" || m.Brokers[0].Port == 0 || a.ID != id ||
			len(a.Partitions) != 3 || m.topic("b").ID == id || !m.topic("none").missing() || m.topic("other") != nil {
			t.Fatalf("%+v", m)
		}
		if p := a.partition(1); p.Leader != w.fake.LeaderFor("a", 1) || p.Epoch != 1 || a.partition(3) != nil || a.partition(-1) != nil {
			t.Errorf("%+v", a.Partitions)
		}
		if none, err := r.client.metadata(t.Context()); err != nil || len(none.Topics) != 0 || len(none.Brokers) != 2 {
			t.Errorf("%+v %v", none, err)
		}
		topic, err := r.Topic(t.Context(), "a")
		if err != nil || topic.ID != id || topic.Cluster != m.Cluster || len(topic.Partitions) != 3 || topic.Name != "a" {
			t.Errorf("%+v %v", topic, err)
		}
		_, err = r.Topic(t.Context(), "none")
		var h *hold.Error
		if !errors.As(err, &h) || h.Reason != hold.TopicMissing {
			t.Error(err)
		}
		time.Sleep(time.Minute) // kafka-go refreshes its own metadata in this time
		if w.exists("none") {
			t.Error("the topic was created")
		}
	}, kfake.AllowAutoTopicCreation())
}

// TestTransportAsksForBrokersOnly: kafka-go's own metadata requests name no topic, because a cluster can have a
// hundred thousand topics.
func TestTransportAsksForBrokersOnly(t *testing.T) {
	inBubble(t, func(t *testing.T, w *cluster) {
		w.create("t", 1)
		var all int
		w.fake.ControlKey(int16(kmsg.Metadata), func(req kmsg.Request) (kmsg.Response, error, bool) {
			if m := req.(*kmsg.MetadataRequest); m.Version < metadataVersion && m.Topics == nil {
				all++
			}
			return nil, nil, false
		})
		r := w.read(LogConfig{})
		r.from(r.partitions("t")[0], 0, -1)
		r.within(time.Minute, func() bool { return false })
		r.stop()
		if all > 0 {
			t.Errorf("all topics were asked for %d times", all)
		}
	})
}

func TestNewClientChecks(t *testing.T) {
	for _, brokers := range [][]string{nil, {"host"}, {"host:1", "::1"}} {
		if _, err := NewClient(Config{Brokers: brokers}); err == nil {
			t.Errorf("%q passed", brokers)
		}
	}
	c, err := NewClient(Config{Brokers: []string{"[::1]:9092"}})
	if err != nil || c.timeout() != 15*time.Second {
		t.Fatal(err)
	}
	c.Close()
	if _, err := c.metadata(t.Context()); !errors.Is(err, net.ErrClosed) {
		t.Error(err)
	}
}

// FuzzResponse gives any bytes to the decoders of responses: they must neither panic nor trust a count that exceeds
// the bytes.
func FuzzResponse(f *testing.F) {
	id := idempotency.TopicID{1}
	req := &fetchRequest{spans: []fetchSpan{{topic: id, name: "t", id: 0}, {topic: id, name: "t", id: 1}}}
	rt := kmsg.NewFetchResponseTopic()
	rt.Topic, rt.TopicID = "t", id
	for i := range req.spans {
		rp := kmsg.NewFetchResponseTopicPartition()
		rp.Partition = req.spans[i].id
		rp.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{{ProducerID: 1, FirstOffset: 2}}
		rp.RecordBatches = []byte("records")
		rp.DivergingEpoch.EndOffset = 3
		rt.Partitions = append(rt.Partitions, rp)
	}
	for v := int16(fetchOldest); v <= fetchVersion; v++ {
		resp := kmsg.FetchResponse{Version: v, Topics: []kmsg.FetchResponseTopic{rt}}
		var header []byte
		if v >= fetchEpochs {
			header = []byte{0}
		}
		f.Add(append(header, resp.AppendTo(nil)...))
	}
	meta := kmsg.MetadataResponse{Version: metadataVersion}
	mt := kmsg.NewMetadataResponseTopic()
	mt.Partitions = append(mt.Partitions, kmsg.NewMetadataResponseTopicPartition())
	meta.Topics, meta.Brokers = append(meta.Topics, mt), append(meta.Brokers, kmsg.NewMetadataResponseBroker())
	f.Add(append([]byte{0}, meta.AppendTo(nil)...))
	f.Fuzz(func(t *testing.T, b []byte) {
		for v := int16(fetchOldest); v <= fetchVersion; v++ {
			resp := fetchResponse{version: v}
			if err := resp.decode(b, req); err != nil {
				continue
			}
			for _, p := range resp.parts {
				if p.index < 0 || p.index >= len(req.spans) || len(p.records) > len(b) || len(p.aborted) > len(b) {
					t.Errorf("%+v", p)
				}
			}
		}
		if m, err := decodeMetadata(b); err == nil && len(m.Topics) > len(b) {
			t.Errorf("%d topics in %d bytes", len(m.Topics), len(b))
		}
	})
}
