package kafka

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/health/liveness"
	"sluice/reliability/bytepool"
	"sluice/reliability/hold"
	"sluice/reliability/pulse"
)

// reader reads through a Log as the pipeline's reader does: after every fetch result it sends the next request.
type reader struct {
	*Log
	t      *testing.T
	client *Client
	reg    *prometheus.Registry
	logs   *logBuffer
	stop   func()
	prefix string // begins the names of the topics

	session  uint64
	at       map[connector.Partition]connector.Position
	got      map[connector.Partition][]connector.Record
	last     map[connector.Partition]connector.Fetched
	held     map[connector.Partition]error
	answers  int
	maxBytes int // the size of the largest result
}

// read starts a Log and a reader of its results. Both end with the test, or when stop is called.
func (w *cluster) read(cfg LogConfig, change ...func(*Config)) *reader {
	w.t.Helper()
	ccfg := Config{Brokers: w.addrs, Dial: w.dial}
	if cfg.Memory == nil {
		cfg.Memory = bytepool.NewScrubbing(128 << 20)
	}
	loops := &pulse.Loops{}
	cfg.Loops = loops
	for _, fn := range change {
		fn(&ccfg)
	}
	client, err := NewClient(ccfg)
	if err != nil {
		w.t.Fatal(err)
	}
	r := &reader{
		t: w.t, prefix: w.prefix, client: client, reg: prometheus.NewRegistry(), logs: &logBuffer{}, session: 1,
		at:   map[connector.Partition]connector.Position{},
		got:  map[connector.Partition][]connector.Record{},
		last: map[connector.Partition]connector.Fetched{},
		held: map[connector.Partition]error{},
	}
	r.Log = NewLog(client, cfg, slog.New(slog.NewTextHandler(r.logs, nil)), r.reg)
	ctx, cancel := context.WithCancel(context.Background())
	ended, watched := make(chan error, 1), make(chan struct{})
	go func() { ended <- r.Run(ctx) }()
	go func() { // runs until the reader stops
		defer close(watched)
		var watch liveness.Watch
		turn := time.NewTicker(liveness.Every)
		defer turn.Stop()
		for ctx.Err() == nil {
			for _, stall := range watch.Check(time.Now(), loops.States()) {
				w.t.Errorf("loop %s has work and has not turned for %v", stall.Loop, stall.For)
			}
			select {
			case <-turn.C:
			case <-ctx.Done():
			}
		}
	}()
	stopped := false
	r.stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			w.t.Error("Run:", err)
		}
		<-watched
		if left := loops.States(); len(left) > 0 {
			w.t.Errorf("loops that have ended are seen: %v", left)
		}
		if n := cfg.Memory.Used(); n != 0 {
			w.t.Errorf("%d bytes of memory were not given back", n)
		}
		client.Close()
	}
	w.t.Cleanup(r.stop)
	return r
}

// partitions returns all partitions of topics as they are now.
func (r *reader) partitions(topics ...string) (all []connector.Partition) {
	r.t.Helper()
	for _, name := range topics {
		t, err := r.Topic(r.t.Context(), r.prefix+name)
		if err != nil {
			r.t.Fatal(err)
		}
		for _, id := range t.Partitions {
			all = append(all, connector.Partition{Cluster: t.Cluster, Topic: t.Name, TopicID: t.ID, ID: id})
		}
	}
	return all
}

// from requests a partition from a position on.
func (r *reader) from(p connector.Partition, next int64, epoch int32) {
	pos := connector.Position{Partition: p, Next: next, Epoch: epoch}
	r.at[p] = pos
	delete(r.held, p)
	r.Fetch(connector.FetchRequest{Position: pos, Session: r.session})
}

// until receives results until done returns true. It fails the test after limit.
func (r *reader) until(limit time.Duration, done func() bool) {
	r.t.Helper()
	if !r.within(limit, done) {
		for p, at := range r.at {
			r.t.Logf("%v at %d, %d records, held by %v", p, at.Next, len(r.got[p]), r.held[p])
		}
		r.t.Fatalf("not done after %v; status %+v\n%s", limit, r.Status(), r.logs)
	}
}

func (r *reader) within(limit time.Duration, done func() bool) bool {
	r.t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for !done() {
		select {
		case a := <-r.Fetched():
			r.take(a)
		case <-timer.C:
			return done()
		}
	}
	return true
}

// take handles one result: it fails the test if the result breaks the contract of connector.Log, keeps the records, and
// sends the next request unless the result has an error.
func (r *reader) take(a connector.Fetched) {
	r.t.Helper()
	p := a.Partition
	at, ok := r.at[p]
	if a.Session != r.session || !ok {
		r.t.Fatalf("answer of session %d for %v, now %d", a.Session, p, r.session)
	}
	r.answers++
	r.last[p] = a
	r.maxBytes = max(r.maxBytes, a.Bytes)
	if a.Next < at.Next || (a.Records != nil) != (a.Bytes > 0) || a.Records != nil && a.Next == at.Next {
		r.t.Fatalf("answer for %v at %d: %+v", p, at.Next, a)
	}
	if a.Records != nil {
		for _, rec := range readRecords(r.t, a.Records) {
			if rec.Offset < at.Next || rec.Offset >= a.Next {
				r.t.Fatalf("%v: offset %d in an answer from %d to %d", p, rec.Offset, at.Next, a.Next)
			}
			at.Next = rec.Offset + 1
			r.got[p] = append(r.got[p], rec)
		}
	}
	r.at[p] = connector.Position{Partition: p, Next: a.Next, Epoch: a.Epoch}
	if a.Err != nil {
		r.held[p] = a.Err
		return
	}
	r.Fetch(connector.FetchRequest{Position: r.at[p], Session: r.session})
}

func readRecords(t *testing.T, records connector.Records) (all []connector.Record) {
	t.Helper()
	defer records.Release() // Release overwrites the memory of the records, except what was copied
	block := make([]connector.Record, 100)
	for {
		n, err := records.Read(block)
		for _, rec := range block[:n] {
			rec.Key, rec.Value = bytes.Clone(rec.Key), bytes.Clone(rec.Value)
			rec.Headers = slices.Clone(rec.Headers)
			for i := range rec.Headers {
				rec.Headers[i].Value = bytes.Clone(rec.Headers[i].Value)
			}
			all = append(all, rec)
		}
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func (r *reader) values(p connector.Partition) (values []string) {
	for _, rec := range r.got[p] {
		values = append(values, string(rec.Value))
	}
	return values
}

// records returns the number of records read from all partitions.
func (r *reader) records() (n int) {
	for _, rec := range r.got {
		n += len(rec)
	}
	return n
}

// reason returns the reason of a partition's hold, "" if it is not held.
func (r *reader) reason(p connector.Partition) hold.Reason {
	if h, ok := errors.AsType[*hold.Error](r.held[p]); ok {
		return h.Reason
	}
	return ""
}

// holds waits until a partition is held, and fails the test if the reason differs from want.
func (r *reader) holds(limit time.Duration, p connector.Partition, want hold.Reason) {
	r.t.Helper()
	r.until(limit, func() bool { return r.held[p] != nil })
	if got := r.reason(p); got != want {
		r.t.Fatalf("held with %q, want %q: %v", got, want, r.held[p])
	}
}

// metric returns the value of a counter. labels alternate names and values.
func (r *reader) metric(name string, labels ...string) float64 {
	r.t.Helper()
	families, err := r.reg.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			has := map[string]string{}
			for _, l := range m.GetLabel() {
				has[l.GetName()] = l.GetValue()
			}
			same := true
			for i := 0; i < len(labels); i += 2 {
				same = same && has[labels[i]] == labels[i+1]
			}
			if same {
				sum += m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// franz returns a client of franz-go, which is closed at the end of the test.
func (w *cluster) franz(opts ...kgo.Opt) *kgo.Client {
	w.t.Helper()
	cl, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(w.addrs...), kgo.Dialer(w.dial), kgo.MetadataMinAge(100 * time.Millisecond), kgo.DisableClientMetrics(),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}, opts...)...)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(cl.Close)
	return cl
}

// produce writes n records "<tag><i>" to a partition in one batch, with its own producer.
func (w *cluster) produce(topic string, partition int32, n int, tag string, opts ...kgo.Opt) {
	w.t.Helper()
	var recs []*kgo.Record
	for i := range n {
		recs = append(recs, &kgo.Record{Topic: w.prefix + topic, Partition: partition, Value: fmt.Appendf(nil, "%s%d", tag, i)})
	}
	cl := w.franz(append([]kgo.Opt{kgo.ProducerBatchCompression(kgo.NoCompression())}, opts...)...)
	defer cl.Close()
	if err := cl.ProduceSync(w.t.Context(), recs...).FirstErr(); err != nil {
		w.t.Fatal(err)
	}
}

func tagged(tag string, n int) (values []string) {
	for i := range n {
		values = append(values, fmt.Sprint(tag, i))
	}
	return values
}
