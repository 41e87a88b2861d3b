package lane

import (
	"log/slog"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
	"sluice/connector/connectortest"
	"sluice/connector/plan"
	"sluice/idempotency"
	"sluice/reliability/bytepool"
	"sluice/reliability/origin"
)

// TestLane_Origins: the lane keeps authentic origins and gives their rows runs of their own. It counts forged origins and
// those of another pipeline or partition. It releases the memory of origins.
func TestLane_Origins(t *testing.T) {
	keys, err := origin.ParseKeys([]byte(strings.Repeat("k", origin.MinKeyBytes)))
	if err != nil {
		t.Fatal(err)
	}
	p := connectortest.Partition(0)
	signed := func(pipeline string, of idempotency.Partition, value string) connector.Record {
		o := origin.Origin{Pipeline: pipeline, TableID: "T", Record: idempotency.Coordinates{Partition: of, Offset: 3}, Intent: 7, Number: 2, Replays: 1}
		return connector.Record{Value: []byte(value), Headers: []connector.Header{{Key: "a"}, {Key: origin.Header, Value: keys.Sign(o, nil, []byte(value))}, {Key: "b"}}}
	}
	live := connector.Record{Value: []byte("r"), Headers: []connector.Header{{Key: "a"}}}
	forged := signed("p", p, "r")
	forged.Value = []byte("s")
	hidden := signed("p", p, "r") // the last header counts
	hidden.Headers = append(hidden.Headers, connector.Header{Key: origin.Header, Value: []byte("x")})
	records := []connector.Record{
		live, live, signed("p", p, "r"), signed("p", p, "r"), live, forged, hidden, signed("q", p, "r"), signed("p", connectortest.Partition(1), "r"),
		signed("p", p, "b"), live,
		{},
		{Value: []byte("r"), Headers: []connector.Header{{Key: origin.Header}}}, // forged: an origin without a value
	}
	records[11].Headers = []connector.Header{{Key: origin.Header, Value: keys.Sign(origin.Origin{
		Pipeline: "p", TableID: "T", Record: idempotency.Coordinates{Partition: p, Offset: 3}, Intent: 7, Number: 9, Replays: 1,
	}, nil, nil)}}
	pool, m := bytepool.New(1<<30), NewMetrics(prometheus.NewRegistry())
	v := NewBackpressure(connector.QueueConfig{PauseAt: 100, ResumeAt: 5, PerKey: 100})
	l := &Lane{
		progress: make(chan struct{}, 1), backpressure: v, Blocks: NewBlocks(1), metrics: m, batch: pool, chunk: &ChunkLimit{},
		records: NewRecordLog(slog.New(slog.DiscardHandler)), open: map[*Table]*openPart{},
	}
	l.chunk.Store(chunkBytes)
	tab := &Table{Decoder: copiers{}}
	b := l.Blocks.Get(NewFetchResult(connector.Fetched{}))
	b.Table, b.Schema, b.Partition, b.Session, b.Letters, b.Progress = tab, &connectortest.Schema{}, p, 1, true, &Progress{}
	b.Origins = NewOriginReader("orders", "p", func() origin.Keys { return keys }, slog.New(slog.DiscardHandler), m)
	for i, r := range records {
		r.Offset = int64(i)
		b.Records, b.Taken = append(b.Records, r), append(b.Taken, 0)
		v.Reserve(0)
	}
	l.decode(t.Context(), b)
	part, _ := l.close(tab, true)
	var want []plan.Origin
	for _, at := range []int64{2, 3, 9, 11} {
		number := int64(2)
		if at == 11 {
			number = 9 // a record without a value, which makes no row
		}
		want = append(want, plan.Origin{Partition: p, Session: 1, Offset: at, TableID: "T", Intent: 7, Number: number})
	}
	if diff := cmp.Diff(want, part.Origins); diff != "" {
		t.Errorf("-want +got\n%s", diff)
	}
	var runs [][2]int64
	for _, c := range part.Chunks {
		for _, r := range c.Runs {
			runs = append(runs, [2]int64{r.First, r.Last})
		}
	}
	if diff := cmp.Diff([][2]int64{{0, 1}, {2, 2}, {3, 3}, {4, 8}, {10, 10}, {12, 12}}, runs); diff != "" {
		t.Errorf("runs: -want +got\n%s", diff)
	}
	if f, s := countedBy(t, m.origins.WithLabelValues("orders", "forged")), countedBy(t, m.origins.WithLabelValues("orders", "unknown")); f != 3 || s != 2 {
		t.Errorf("%v forged, %v unknown", f, s)
	}
	if part.Release(pool); pool.Used() != 0 {
		t.Errorf("the pool holds %d bytes", pool.Used())
	}
}

func TestNewOriginReader_WithoutKeys(t *testing.T) {
	if r := NewOriginReader("orders", "p", nil, slog.New(slog.DiscardHandler), NewMetrics(nil)); r != nil {
		t.Error("a reader without keys")
	}
}
