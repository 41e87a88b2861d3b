//go:build lab

package e2e

import (
	"fmt"
	"testing"

	"sluice/test/tablelog"
)

// TestTopicsAndPartitionsAreAdded adds partitions to a topic, and a topic that a pattern matches, while members with
// start latest run. The new partitions and the new topic must be read from their first record. The test also deletes a
// topic, which must not disturb the other topics.
func TestTopicsAndPartitionsAreAdded(t *testing.T) {
	t.Parallel()
	s := newScene(t, 4)
	gone := s.name + ".gone"
	if err := shared.kafka.CreateTopic(s.ctx, gone, 1, nil); err != nil {
		t.Fatal(err)
	}
	matching := alsoReads(fmt.Sprintf(`added: {pattern: '%s\..+', deny: []}`, s.name))
	members := []*member{s.start(from("latest"), matching), s.start(from("latest"), matching)}
	claims := func(n int) func() (bool, error) {
		return func() (bool, error) {
			sum := 0
			for _, m := range members {
				r, err := m.health()
				if err != nil {
					return false, err
				}
				if !r.Ready || len(r.Holds) > 0 {
					return false, nil
				}
				sum += len(r.Partitions)
			}
			return sum == n, nil
		}
	}
	s.await("the members own 5 partitions", claims(5))

	end := s.stream(200)
	s.produced = 200_000 // far above the numbers of the records that stream produces
	s.awaitRows(200)
	if err := shared.kafka.AddPartitions(s.ctx, s.name, 16); err != nil {
		t.Fatal(err)
	}
	s.produce(8_000)
	added := *s // a scene for the new topic, which the same members read
	added.name = s.name + ".new"
	added.ledger = s.newLedger("new.csv")
	added.log = &tablelog.Log{Store: shared.bucket, Table: s.name + "/" + added.name}
	if err := shared.kafka.CreateTopic(s.ctx, added.name, 3, nil); err != nil {
		t.Fatal(err)
	}
	added.produce(5_000)
	if err := shared.kafka.DeleteTopic(s.ctx, gone); err != nil {
		t.Fatal(err)
	}
	s.await("the members own the 19 remaining partitions", claims(19))
	end()
	s.awaitRows(s.ledger.Len())
	added.awaitRows(added.ledger.Len())
	for _, m := range members {
		m.drain()
	}
	if n := len(tablelog.Positions(s.commits())); n != 16 {
		t.Errorf("%d partitions have a position, want 16", n)
	}
	s.check()
	added.checkSets()
}
