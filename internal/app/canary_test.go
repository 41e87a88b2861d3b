package app

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"sluice/internal/laketest"
	"sluice/sink/delta"
	"sluice/sink/delta/objstore"
)

// TestCanary: the member creates the topic of its canary records, which become rows of a table of their own. The
// pattern .* covers neither this topic nor the canary topic of another pipeline.
func TestCanary(t *testing.T) {
	l := newLake(t, "topics: {all: {pattern: \".*\", deny: []}}\ndefaults: {schema: \"n int\", commit: {every: 200ms}}")
	l = l.as("health: {enabled: false}", "health: {enabled: false, canary: {topic: p-canary, every: 1s}}")
	l.Create("orders", 1)
	l.Create("q-canary", 1)
	l.Produce("orders", 3, 0)
	l.Produce("q-canary", 3, 0)
	s := l.start()
	l.Awaits("orders", laketest.UpTo(3, "orders:0"))
	var first time.Time
	l.Await("a canary is seen", func() bool {
		r := s.Report().Canary
		if r == nil || r.Seen == nil {
			return false
		}
		first = *r.Seen
		return true
	})
	l.Await("another one is", func() bool { return s.Report().Canary.Seen.After(first) })
	r := s.Report()
	if r.Canary.Topic != "p-canary" || *r.Canary.Seconds <= 0 || *r.Canary.Seconds > 60 || r.Canary.Failing != nil {
		t.Errorf("%+v", r.Canary)
	}
	if len(r.Holds) > 0 {
		t.Errorf("holds %v", r.Holds)
	}
	if rows := l.Rows("_sluice/p/canary"); len(rows["p-canary:0"]) < 2 || len(rows) != 1 {
		t.Errorf("canaries %v", rows)
	}
	tables := slices.Collect(maps.Keys(s.tables.byPath))
	if slices.Sort(tables); !slices.Equal(tables, []string{"_sluice/p/canary", "orders"}) {
		t.Errorf("tables %v", tables)
	}

	// A row with the canary's coordinates that was made from another record does not count.
	look := delta.NewRowFinder(objstore.Sub(l.Store, "_sluice/p/canary"))
	if found, err := look.Has(t.Context(), "p-canary", 0, 0, "id", "another"); err != nil || found {
		t.Errorf("%v %v", found, err)
	}
	fetches := kgoFirst(t, l)
	if !strings.Contains(string(fetches.Value), `"member":"`+s.pipeline.Member+`"`) || string(fetches.Key) != s.pipeline.Member {
		t.Errorf("a canary is %s", fetches.Value)
	}
}

// kgoFirst returns the first canary record in Kafka.
func kgoFirst(t *testing.T, l *lake) *kgo.Record {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(laketest.Load(t, l.Config).Kafka.Brokers...), kgo.ConsumeTopics("p-canary"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	fetches := reader.PollRecords(t.Context(), 1)
	if err := fetches.Err(); err != nil {
		t.Fatal(err)
	}
	return fetches.Records()[0]
}

// TestLook: the row finder finds a record once its row is in the table. It does not find a record whose id differs from
// that in the row with its coordinates.
func TestLook(t *testing.T) {
	l := newLake(t, "topics: {orders: {}}")
	look := delta.NewRowFinder(objstore.Sub(l.Store, "orders"))
	has := func(offset int64, text string) bool {
		t.Helper()
		found, err := look.Has(t.Context(), "orders", 0, offset, "_kafka_topic", text)
		if err != nil {
			t.Fatal(err)
		}
		return found
	}
	if has(0, "orders") {
		t.Error("in a table that is not there")
	}
	l.Create("orders", 1)
	l.Produce("orders", 3, 0)
	l.start()
	l.Await("the row is seen", func() bool { return has(2, "orders") })
	look = delta.NewRowFinder(objstore.Sub(l.Store, "orders"))
	if has(3, "orders") || !hasNow(t, l, 1, "orders") || hasNow(t, l, 1, "other") {
		t.Error("the wrong rows are seen")
	}
}

func hasNow(t *testing.T, l *lake, offset int64, text string) bool {
	t.Helper()
	found, err := delta.NewRowFinder(objstore.Sub(l.Store, "orders")).Has(t.Context(), "orders", 0, offset, "_kafka_topic", text)
	if err != nil {
		t.Fatal(err)
	}
	return found
}
