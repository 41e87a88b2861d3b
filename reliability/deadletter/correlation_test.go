package deadletter_test

import (
	"testing"

	"sluice/idempotency"
	"sluice/reliability/deadletter"
)

func TestCorrelationIsTheCoordinates(t *testing.T) {
	at := idempotency.Coordinates{
		Partition: idempotency.Partition{Cluster: "c", Topic: "orders", TopicID: idempotency.TopicID{1}, ID: 2}, Offset: 17,
	}
	id := deadletter.Correlation(at)
	if again := deadletter.Correlation(at); id != again || len(id) != 16 {
		t.Fatalf("%q, then %q", id, again)
	}
	seen := map[string]bool{id: true}
	for name, change := range map[string]func(*idempotency.Coordinates){
		"cluster":   func(c *idempotency.Coordinates) { c.Cluster = "d" },
		"topic":     func(c *idempotency.Coordinates) { c.Topic = "order" },
		"topic id":  func(c *idempotency.Coordinates) { c.TopicID[0] = 2 },
		"partition": func(c *idempotency.Coordinates) { c.ID = 21 },
		"offset":    func(c *idempotency.Coordinates) { c.Offset = 7 },
	} {
		other := at
		change(&other)
		if got := deadletter.Correlation(other); seen[got] {
			t.Errorf("another %s, and the id is the same: %s", name, got)
		} else {
			seen[got] = true
		}
	}
}
