package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/reliability/hold"
)

// A claim is a partition that this member works on. Only the reader uses it.
type claim struct {
	connector.Partition
	since        time.Time // when this member got it
	table        *tableState
	lane         *lane.Lane
	session      uint64
	laneProgress *lane.Progress // of the current session

	recordRules
	claimState
	openSpan
	fetchQueue
	nextBlock
	progress

	// position is the last known position in the table. It equals from, or is smaller while a sealed batch is on its
	// way. positionEpoch is the leader epoch of the last record before it, -1 if unknown.
	position      int64
	positionEpoch int32
	bounds        connector.Bounds
	target        int64 // in a run until current: the offset to reach; -1 before the first resume
}

// recordRules are the rules of the claim's topic that lanes apply to its records.
type recordRules struct {
	refuse  connector.Refusals
	health  *lane.HealthFilter // nil drops nothing
	letters bool               // bad records may become dead letters
}

// claimState is the state of a claim and its hold.
type claimState struct {
	state state
	hold  *hold.Hold // shown until records flow again
	ends  endEvent   // what ends the hold
	// inFailedCommit is true if a commit that contained records of this claim failed with the hold. As long as it is
	// true for a claim of the table, only a successful commit ends the holds that the failed commit caused.
	inFailedCommit bool
	nextCheck      time.Time // when a held claim is checked next
	until          time.Time // leaving: when it is read again
	refetchTo      int64     // leaving: the next batch is sealed once the claim is read up to here again; 0: as usual
	rechecks       int64     // number of the last request of an operator to check the claim
	flushesBefore  int64     // number of the last request of an operator to flush its table when this member got the claim
	fences         int       // how often its position was moved by others since the last successful commit of the table
	unmovedChecks  int       // contested: consecutive checks with the same position
	unmovedAt      int64     // contested: that position
}

// openSpan is the part of a claim in the open batch: offsets [from, next). Every offset before next was enqueued or
// skipped. epoch is the leader epoch of the last record batch before next, -1 if unknown; earlier lists the epochs
// before smaller offsets of the batch.
type openSpan struct {
	from, next int64
	epoch      int32
	earlier    []plan.EpochUntil
}

// fetchQueue has the fetch results that wait to be enqueued, and the next block, which was parsed from the first of
// them.
type fetchQueue struct {
	queue      []*lane.FetchResult
	parsed     *lane.Block
	fetching   bool  // a request is under way
	ahead      int64 // where the next request starts
	aheadEpoch int32 // the leader epoch of the last record batch before ahead
}

// nextBlock says what the next block of a claim waits for.
type nextBlock struct {
	// wantsBytes is the memory of the batch pool that the claim has waited for since wantsSince, 0 if it does not wait.
	// shedBytes is the memory of the batch pool that the claim needs before it is fetched again: its fetch results were
	// dropped while it waited, because the fetch pool was short. 0 if none were dropped.
	wantsBytes int64
	wantsSince time.Time
	shedBytes  int64
	// keyFull is true if the key of the next record has as many records queued as a key may have.
	keyFull bool
}

// progress shows how far the records of a claim have come.
type progress struct {
	inFlight []inFlight // blocks that the lane has not decoded yet
	last     time.Time  // when a record was enqueued
	// oldestUncommitted is the smallest timestamp of records that earlier sessions enqueued and that are not in the
	// table. newestCommitted is the largest timestamp of the rows that this member committed. In milliseconds, 0 if
	// there is none.
	oldestUncommitted, newestCommitted int64
}

// pass notes that every offset before next was enqueued or skipped. epoch is the leader epoch of the last record batch
// before next. It applies to positions after first, which is the offset of the first enqueued record, or next - 1 at
// the end of a fetch result. At positions after the old next, up to first, the epoch is unknown: control records of
// either epoch may lie there, or no records at all.
func (c *claim) pass(next int64, epoch int32, first int64) {
	if c.epoch != epoch {
		c.earlier = append(c.earlier, plan.EpochUntil{Epoch: c.epoch, Until: c.next})
		if first > c.next {
			c.earlier = append(c.earlier, plan.EpochUntil{Epoch: -1, Until: first})
		}
	}
	c.next, c.epoch = next, epoch
}
