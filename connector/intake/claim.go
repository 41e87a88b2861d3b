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
	since        time.Time // when this member got the claim
	table        *tableState
	lane         *lane.Lane
	session      uint64
	laneProgress *lane.Progress // how far the lane has come in the current session

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
	target        int64 // only in a run until current: the offset to reach; -1 before the first resume
}

// recordRules are the rules that lanes apply to the records of the claim's topic.
type recordRules struct {
	refuse  connector.Refusals
	health  *lane.HealthFilter // the filter for health checks; nil drops nothing
	origins *lane.OriginReader // the reader of origins; nil knows no origins
	letters bool               // true if bad records may become dead letters
}

// claimState is the state of a claim and its hold.
type claimState struct {
	state state
	hold  *hold.Hold // the hold that is shown; it may still be shown while records are fetched again
	ends  endEvent   // the event that ends the hold
	// inFailedCommit is true if a commit with records of this claim failed, and the claim is held because of that. As
	// long as it is true for any claim of the table, only a successful commit ends the holds that the failed commit
	// caused.
	inFailedCommit bool
	nextCheck      time.Time // when a held claim is checked next
	until          time.Time // in state leaving: when the claim is read again
	// In state leaving: the next batch is sealed once the claim was read up to this offset again; 0 if it is sealed as
	// usual.
	refetchTo     int64
	rechecks      int64 // the number of the last request of an operator to check the claim
	flushesBefore int64 // the number of the last request of an operator to flush its table when this member got the claim
	fences        int   // how often others have moved the position since the last successful commit of the table
	unmovedChecks int   // if contested: the number of consecutive checks that have found the same position
	unmovedAt     int64 // if contested: that position
}

// openSpan is what the open batch covers of a claim: offsets [from, next), each of which was enqueued or skipped. epoch
// is the leader epoch of the last record batch before next, -1 if unknown. earlier has the epochs at smaller offsets of
// the batch.
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
	fetching   bool  // true while a request is in flight
	ahead      int64 // the offset at which the next request starts
	aheadEpoch int32 // the leader epoch of the last record batch before ahead
}

// nextBlock says for what the next block of a claim waits.
type nextBlock struct {
	// wantsBytes is the memory of the batch pool for which the claim has waited since wantsSince; 0 if it does not
	// wait. If the fetch pool was short meanwhile, the claim's fetch results were dropped: shedBytes is the memory of
	// the batch pool that must be free before the claim is fetched again; 0 if they were not dropped.
	wantsBytes int64
	wantsSince time.Time
	shedBytes  int64
	// keyFull is true if as many records with the key of the next record are queued as a key may have.
	keyFull bool
}

// progress shows how far the records of a claim have come.
type progress struct {
	inFlight []inFlight // the blocks that the lane has not decoded yet
	last     time.Time  // when a record was last enqueued
	// oldestUncommitted is the smallest timestamp of records that earlier sessions enqueued and that are not in the
	// table. newestCommitted is the largest timestamp of the rows that this member committed. In milliseconds, 0 if
	// there is none.
	oldestUncommitted, newestCommitted int64
}

// pass notes that every offset before next was enqueued or skipped. epoch is the leader epoch of the last record batch
// before next. It holds for positions after first, which is the offset of the first enqueued record, or next - 1 at the
// end of a fetch result. From the old next up to first the epoch is unknown, because control records of either epoch or
// no records may lie there.
func (c *claim) pass(next int64, epoch int32, first int64) {
	if c.epoch != epoch {
		c.earlier = append(c.earlier, plan.EpochUntil{Epoch: c.epoch, Until: c.next})
		if first > c.next {
			c.earlier = append(c.earlier, plan.EpochUntil{Epoch: -1, Until: first})
		}
	}
	c.next, c.epoch = next, epoch
}
