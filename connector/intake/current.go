package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/commit"
)

// untilCurrent decides when a run until current is done: the tables have all records that the topics had at the start
// of the run. A run with held claims ends without their records, and does not wait for the partitions of other members.
type untilCurrent struct{ *base }

// reached reports whether every claim has been read up to its target or is held. It returns false while this member is
// in no generation, and while records wait for a lane.
func (cu *untilCurrent) reached() bool {
	if !cu.joined || cu.backpressure.Queued.Load() > 0 {
		return false
	}
	for _, c := range cu.claims {
		if c.hold == nil && (c.target < 0 || c.next < c.target) {
			return false
		}
	}
	return true
}

// done reports whether a run until current is done. It always returns false for other runs.
func (cu *untilCurrent) done() bool {
	if !cu.UntilCurrent || !cu.reached() {
		return false
	}
	for _, t := range cu.tables {
		if t.sealed != nil || t.OpenBatch.Records() > 0 {
			return false
		}
	}
	holds := false
	for _, c := range cu.claims {
		if c.hold == nil && c.position < c.target {
			return false
		}
		holds = holds || c.hold != nil
	}
	if holds {
		return true // the run is done as well; its exit code reports the holds
	}
	// All claims of this member are done. But a table is current only when the claims of all members are, and those of
	// a member that has died will be assigned to this one soon.
	all := true
	for _, t := range cu.tables {
		if cu.complete(t) {
			continue
		}
		if all = false; !t.measuring && time.Since(t.measured) >= cu.measureEvery() {
			t.measure()
		}
	}
	return all
}

// complete reports whether, by the last measurement, the table has reached the ends that its topics had at the start.
// The partitions of all members must have reached them, except paused partitions of other members, whose holds complete
// stores in t.left. The ends do not change, so a complete table stays complete.
func (cu *untilCurrent) complete(t *tableState) bool {
	if t.measured.IsZero() || t.behind == nil {
		return false
	}
	t.left = nil
	for _, at := range t.behind {
		h := cu.Decisions.Paused(at.Partition)
		if _, ours := cu.claims[at.Partition]; h == nil || ours {
			return false
		}
		left := *h
		left.Partition, left.Offset = at.Partition, at.Next
		t.left = append(t.left, left)
	}
	return true
}

// measureEvery returns how often a run until current measures each table. The interval grows with the number of tables,
// because a measurement reads the log of a table.
func (cu *untilCurrent) measureEvery() time.Duration {
	return max(time.Second, time.Duration(len(cu.tables))*10*time.Millisecond)
}

// measured stores the result of a measurement in t. If Kafka or the table could not be read, it sets t.behind to nil.
func (cu *untilCurrent) measured(t *tableState, o commit.Outcome) {
	t.measuring, t.measured = false, time.Now()
	if t.behind = o.Behind; t.behind == nil && !o.Unknown {
		t.behind = []connector.Position{}
	}
}
