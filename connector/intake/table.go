package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/commit"
	"sluice/connector/lane"
	"sluice/reliability/hold"
)

// tableState is what the reader knows of a table. Lanes and the writer share the [lane.Table] in it.
type tableState struct {
	lane.Table

	name   string
	writer *commit.Writer
	rare   bool // hardly ever fed
	limits connector.Limits
	claims map[connector.Partition]*claim // of this table

	schema  connector.Schema // that lanes build for
	opened  time.Time        // when the batch that fills got its first record; zero if it has none
	sealed  *lane.Barrier    // the cut on its way, nil if there is none
	stuck   bool             // it can take no more for now
	stopped pause            // of reading for it, while it is stuck
	// refetch is how far claims were in a cut whose records are to be tried once more, soon; nil if there is none.
	refetch   map[connector.Partition]int64
	comparing bool
	vacant    time.Time // since when it has no claim
	checks    time.Time // when idle claims are looked at again

	// Of a run until current: the partitions of the topics that are behind their ends, of whichever member, nil if unknown; those
	// of them that are left, since they are paused and not ours; and when that was asked last.
	behind    []connector.Position
	left      []hold.Hold
	measuring bool
	measured  time.Time
}

// inSealed tells whether a claim is part of the cut on its way.
func (t *tableState) inSealed(p connector.Partition) bool {
	if t.sealed == nil {
		return false
	}
	_, in := t.sealed.Claims[p]
	return in
}

// refetchUntil has the next batch closed as soon as a claim is read up to next, which is no offset if it is 0.
func (t *tableState) refetchUntil(p connector.Partition, next int64) {
	if next == 0 {
		return
	}
	if t.refetch == nil {
		t.refetch = map[connector.Partition]int64{}
	}
	t.refetch[p] = next
}

// refetched tells whether everything that is to be tried once more is read again, as far as it can be.
func (t *tableState) refetched() bool {
	for p, next := range t.refetch {
		if c, ours := t.claims[p]; ours && !c.state.stands() && c.state != leaving && c.next < next {
			return false
		}
	}
	return t.refetch != nil
}

// commitLate tells whether the cut of a table has been on its way for longer than patience.
func (t *tableState) commitLate(now time.Time, patience time.Duration) bool {
	return t.sealed != nil && now.Sub(t.sealed.Began) >= patience
}

// behindEnd tells whether a table would get more records if it could take them.
func (t *tableState) behindEnd() bool {
	for _, c := range t.claims {
		if c.state.reads() && (len(c.queue) > 0 || c.next < c.bounds.LastStable) {
			return true
		}
	}
	return false
}

// measure asks the writer how far the whole table is.
func (t *tableState) measure() {
	t.measuring = true
	t.writer.Requests.Measure()
}

// waitingSince is since when rows of a table wait for their commit, the zero time if none do.
func (t *tableState) waitingSince() (since time.Time) {
	for _, c := range t.claims {
		if at := c.laneProgress.Since(); !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}
