package lookup_test

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/connector"
	"sluice/idempotency/offsets"
	"sluice/internal/laketest"
	"sluice/internal/lookup"
)

// TestReader_At reads records at random offsets: it calls do for each of them that the partition still has, in order,
// and for no other one.
func TestReader_At(t *testing.T) {
	const records = 400
	l := laketest.New(t, "topics: {orders: {}}")
	config := laketest.Load(t, l.Config)
	config.Kafka.Fetch.MaxBytes = 4096 // several fetch results
	l.Create("orders", 1)
	for i := range records { // a record batch each
		r := &kgo.Record{Topic: "orders", Value: []byte(strings.Repeat("x", 100+i))}
		if err := l.Client.ProduceSync(t.Context(), r).FirstErr(); err != nil {
			t.Fatal(err)
		}
	}
	topic, err := l.PartitionsOf("orders")
	if err != nil {
		t.Fatal(err)
	}
	p := connector.Partition{Cluster: topic.Cluster, Topic: topic.Name, TopicID: topic.ID}
	r, end, err := lookup.NewReader(t.Context(), config, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	defer end()
	reads := func(at []int64, start int64) {
		t.Helper()
		var got []int64
		err := r.At(t.Context(), p, offsets.Of(at...), func(record *connector.Record) error {
			if len(record.Value) != 100+int(record.Offset) {
				t.Errorf("offset %d has %d bytes", record.Offset, len(record.Value))
			}
			got = append(got, record.Offset)
			return nil
		})
		want := slices.DeleteFunc(slices.Compact(slices.Sorted(slices.Values(at))), func(offset int64) bool { return offset < start })
		if d := cmp.Diff(want, got); err != nil || d != "" {
			t.Errorf("%v: %v (-want +got):\n%s", at, err, d)
		}
	}
	random := rand.New(rand.NewPCG(1, 1))
	some := func(n int) (at []int64) {
		for range n {
			at = append(at, random.Int64N(records))
		}
		return at
	}
	for _, n := range []int{1, 2, 20, 300} {
		reads(some(n), 0)
	}
	reads([]int64{0, records - 1}, 0)
	l.DeleteTo("orders", 150)
	reads(append(some(30), 3, 149, 150), 150)
	failed := errors.New("enough")
	if err := r.At(t.Context(), p, offsets.Of(200, 201), func(*connector.Record) error { return failed }); !errors.Is(err, failed) {
		t.Error(err)
	}
}
