package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/reliability/hold"
)

// tableState is the reader's state of a table. Lanes and the writer share the [lane.Table] in it.
type tableState struct {
	lane.Table

	name   string
	writer *commit.Writer
	rare   bool // true if all topics that feed it are rare
	limits connector.Limits
	claims map[connector.Partition]*claim // the claims that feed this table

	schema      connector.Schema // the schema for which lanes build rows
	opened      time.Time        // when the open batch got its first record; zero if it is empty
	sealed      *lane.Barrier    // the sealed batch that is being committed; nil if there is none
	full        bool             // true if fetching stops for the table, see fetches.isFull
	commitPause pause            // the pause of reading while the table is full
	// refetch has, after a failed batch, the offset up to which each of its claims must be read again before the next
	// batch is sealed at once. It is nil if there is no failed batch.
	refetch     map[connector.Partition]int64
	flush       connector.Flush // the newest flush that an operator requested
	comparing   bool            // true while a comparison of idle claims is requested
	vacant      time.Time       // since when the table has no claim; zero if it has one
	nextCompare time.Time       // when idle claims are to be compared next

	// For a run until current: behind has the partitions of the topics, of any member, whose position is before their
	// end; nil if unknown. left has the holds of those that are paused and not claims of this member. measured is when
	// the last result arrived; zero if it is outdated.
	behind    []connector.Position
	left      []hold.Hold
	measuring bool
	measured  time.Time
}

// inSealed reports whether a claim is part of the sealed batch that is being committed.
func (t *tableState) inSealed(p connector.Partition) bool {
	if t.sealed == nil {
		return false
	}
	_, in := t.sealed.Claims[p]
	return in
}

// refetchUntil makes the next batch due as soon as this claim and the others in refetch are read up to their offsets.
// It does nothing if next is 0.
func (t *tableState) refetchUntil(p connector.Partition, next int64) {
	if next == 0 {
		return
	}
	if t.refetch == nil {
		t.refetch = map[connector.Partition]int64{}
	}
	t.refetch[p] = next
}

// refetched reports whether all records of the failed batch have been read again, except those of claims that cannot be
// read now. It returns false if there is no failed batch.
func (t *tableState) refetched() bool {
	for p, next := range t.refetch {
		if c, ours := t.claims[p]; ours && !c.state.isStopped() && c.state != leaving && c.next < next {
			return false
		}
	}
	return t.refetch != nil
}

// commitLate reports whether the sealed batch of a table was sealed longer than patience ago.
func (t *tableState) commitLate(now time.Time, patience time.Duration) bool {
	return t.sealed != nil && now.Sub(t.sealed.Began) >= patience
}

// behindEnd reports whether there are records that the table would get if it were not full.
func (t *tableState) behindEnd() bool {
	for _, c := range t.claims {
		if c.state.reads() && (len(c.queue) > 0 || c.next < c.bounds.LastStable) {
			return true
		}
	}
	return false
}

// measure requests from the writer how far the positions of the whole table are from the ends of its topics.
func (t *tableState) measure() {
	t.measuring = true
	t.writer.Requests.Measure()
}

// waitingSince returns when the oldest uncommitted row or candidate of the table began to wait; the zero time if there
// is none.
func (t *tableState) waitingSince() (since time.Time) {
	for _, c := range t.claims {
		if at := c.laneProgress.Since(); !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}
