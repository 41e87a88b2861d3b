//go:build lab

package e2e

import "testing"

// TestReplay_Archived deletes dead letters from the dead-letter topic after members have copied them to the letter
// table: in some partitions all, in others half, in the rest none. `connector deadletters list` must count the same as
// before. A replay must make one row of each record, and a second replay none.
func TestReplay_Archived(t *testing.T) {
	t.Parallel()
	const n = 3000
	s := newScene(t, 4).strict()
	for range 2 {
		p := s.correctable(n / 2)
		if err := p.Run(s.ctx, s.ledger); err != nil {
			t.Fatal(err)
		}
		s.untilCurrent(refusing) // the records become dead letters
		s.untilCurrent(refusing) // the dead letters become rows of the letter table
	}
	before := s.countLetters(refusing)
	if before.Distinct != n || before.Unresolved != n {
		t.Fatalf("list says %+v, want %d dead letters", before, n)
	}
	ends, err := s.admin().ListEndOffsets(s.ctx, s.deadLetters())
	if err != nil {
		t.Fatal(err)
	}
	var deleted int64
	for id, end := range ends[s.deadLetters()] {
		to := []int64{end.Offset, end.Offset / 2, 0}[id%3]
		if deleted += to; to == 0 {
			continue
		}
		if err := shared.kafka.DeleteRecords(s.ctx, s.deadLetters(), id, to); err != nil {
			t.Fatal(err)
		}
	}
	if deleted == 0 || deleted >= n {
		t.Fatalf("%d of %d dead letters were deleted", deleted, n)
	}
	t.Logf("deleted %d of %d dead letters from their topic", deleted, n)
	if after := s.countLetters(refusing); after != before {
		t.Errorf("list says %+v, and said %+v", after, before)
	}
	if r := s.replays(nil, withoutFlood).ended(0); r.Rows != n {
		t.Errorf("%+v, want %d rows", r, n)
	}
	if r := s.replays(nil, withoutFlood).ended(0); r.Rows != 0 {
		t.Errorf("a second replay: %+v", r)
	}
	if c := s.countLetters(withoutFlood); c.Replayed != n || c.Unresolved != 0 {
		t.Errorf("list says %+v, want %d replayed dead letters", c, n)
	}
	s.checkSets("--readers", "deltalake,duckdb", "--no-order") // the rows of replays come after those of newer records
	s.wants(0, "verify", "--kafka")
	s.wants(0, "audit", "verify")
}
