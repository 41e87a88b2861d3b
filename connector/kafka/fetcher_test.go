package kafka

import (
	"log/slog"
	"slices"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"sluice/connector"
)

// TestTake: take moves queued partitions into a request in the order of the queue. It skips outdated entries: of
// partitions that are not wanted, belong to the other queue, or have a later entry. A partition that must be alone gets
// a request without others.
func TestTake(t *testing.T) {
	client, err := NewClient(Config{Brokers: []string{"localhost:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l := NewLog(client, LogConfig{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	f := &fetcher{Log: l, ahead: newQueue(), tail: newQueue()}
	l.fetchers[7] = f
	cursors := make([]*cursor, 7)
	for i := range cursors {
		c := &cursor{leader: 7, wanted: true, behind: true, alone: i == 2 || i == 3}
		c.req.Partition.ID = int32(i)
		cursors[i] = c
		l.enqueue(c)
	}
	l.enqueue(cursors[1])     // queued twice; the second entry is at the end of the queue
	cursors[4].wanted = false // no longer wanted, so its entry is skipped
	cursors[5].behind = false // now belongs to the queue of partitions at their end
	l.enqueue(cursors[5])
	cursors[6].maxBytes = 9 << 20 // more than MaxBytes of a request
	var got [][]int32
	var sizes []int
	for {
		size, _ := f.front(f.ahead)
		if size == 0 {
			break
		}
		var req fetchRequest
		var ids []int32
		for _, flight := range f.take(f.ahead, size, &req, nil) {
			ids = append(ids, flight.c.req.Partition.ID)
			if flight.c.state != inFlight {
				t.Errorf("partition %d is not flying", flight.c.req.Partition.ID)
			}
		}
		got, sizes = append(got, ids), append(sizes, req.maxBytes)
	}
	want := [][]int32{{0}, {2}, {3}, {6, 1}}
	if !slices.EqualFunc(got, want, slices.Equal) || sizes[3] != 9<<20 {
		t.Errorf("%v, sizes %v", got, sizes)
	}
	if size, _ := f.front(f.tail); size != 1<<20 {
		t.Errorf("the tail has %d", size)
	}
}

// TestEnqueueWithoutFetcher: if the leader of a partition has no fetcher, the partition waits for a new lookup of its
// leader.
func TestEnqueueWithoutFetcher(t *testing.T) {
	client, err := NewClient(Config{Brokers: []string{"localhost:1"}})
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	l := NewLog(client, LogConfig{}, slog.New(slog.DiscardHandler), prometheus.NewRegistry())
	p := connector.Partition{Topic: "t"}
	l.Fetch(connector.FetchRequest{Position: connector.Position{Partition: p}})
	if c := l.cursors[p]; c.state != unlocated || len(l.locate) != 1 {
		t.Errorf("%+v", c)
	}
	l.Forget(p)
	if len(l.cursors) != 0 {
		t.Error("it was not forgotten")
	}
}
