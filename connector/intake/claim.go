package intake

import (
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/connector/plan"
	"sluice/reliability/hold"
)

// A claim is a partition that this member works on. Owned by the reader.
type claim struct {
	connector.Partition
	since        time.Time // this member has it
	table        *tableState
	lane         *lane.Lane
	session      uint64
	laneProgress *lane.Progress // of the session

	treatment
	claimState
	openSpan
	fetchQueue
	nextBlock
	progress

	// position is where the table stands, as far as we know: from, or less while a cut is under way. positionEp is the
	// leader epoch before it, -1 unknown.
	position   int64
	positionEp int32
	bounds     connector.Bounds
	target     int64 // until-current: where it may end
}

// treatment is what its topic says of the records of a claim.
type treatment struct {
	refuse  connector.Refusals
	health  *lane.HealthFilter // nil drops nothing
	letters bool               // bad records may become letters
}

// claimState is the state of a claim, and its hold.
type claimState struct {
	state state
	hold  *hold.Hold // shown until records flow again
	ends  endsBy     // what ends the hold
	// inFailedCommit says that a commit with its records found the hold: they will show whether that is over.
	inFailedCommit bool
	checks         time.Time // when a held claim is checked next
	until          time.Time // leaving: when it is read again
	reach          int64     // leaving: how far it is read again before the next batch is closed, soon; 0 if that does not matter
	rechecks       int64     // number of the last request of an operator to check the claim
	fences         int       // how often others moved it since the last won commit of the table
	unmovedChecks  int       // contested: how often the position was seen unmoved
	unmovedAt      int64     // contested: where
}

// openSpan is what a claim has in the batch that fills: offsets [from, next). next is where the next record to enqueue lies, or a
// later one. epoch is the leader epoch before next; earlier are those before places further back in the batch.
type openSpan struct {
	from, next int64
	epoch      int32
	earlier    []plan.EpochUntil
}

// fetchQueue wait to be enqueued, with the parsed records of the first one.
type fetchQueue struct {
	queue    []*lane.FetchResult
	parsed   *lane.Block
	fetching bool  // an answer is asked for
	ahead    int64 // where the next request starts
	aheadEp  int32 // the leader epoch before it
}

// nextBlock is what the next block of a claim waits for.
type nextBlock struct {
	// wantsBytes is how much of the batch pool, 0 if it does not wait for that; since wantsSince. shed says that the block was given up
	// meanwhile for want of memory to fetch with.
	wantsBytes int64
	wantsSince time.Time
	shed       int64
	// keyFull says that the key of the next record has its share queued.
	keyFull bool
}

// progress is how far the records of a claim have come.
type progress struct {
	inFlight []inFlight // blocks that the lane is not done with
	last     time.Time  // when a record was enqueued
	// oldestUncommitted is the least timestamp of records from position on that an earlier session enqueued, newest the greatest one of the rows
	// that this member brought to the table; in milliseconds, 0 if there is none.
	oldestUncommitted, newestCommitted int64
}

// pass notes that everything before next was handed over or passed. epoch is that of the last record batch before it, and
// of the record or the end of a batch at first. Which epoch the offsets between belong to is unknown: they may be markers
// of either, or gone.
func (c *claim) pass(next int64, epoch int32, first int64) {
	if c.epoch != epoch {
		c.earlier = append(c.earlier, plan.EpochUntil{Epoch: c.epoch, Until: c.next})
		if first > c.next {
			c.earlier = append(c.earlier, plan.EpochUntil{Epoch: -1, Until: first})
		}
	}
	c.next, c.epoch = next, epoch
}
