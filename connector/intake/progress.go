package intake

import (
	"time"

	"sluice/connector/lane"
	"sluice/connector/plan"
)

// inFlight is a block on its way to the lane: where the claim stood before it and behind it, and the least timestamp.
type inFlight struct{ from, next, oldest int64 }

// maxInFlight is how many of them a claim remembers one by one: a lane's queue holds no more.
const maxInFlight = lane.LaneQueue + 1

// enqueued notes a block that was handed over.
func (c *claim) enqueued(f inFlight, at time.Time) {
	c.dropDecoded()
	if n := len(c.inFlight); n == maxInFlight {
		last := &c.inFlight[n-1]
		last.next, last.oldest = f.next, plan.Earliest(f.oldest, last.oldest)
	} else {
		c.inFlight = append(c.inFlight, f)
	}
	c.last = at
}

// dropDecoded forgets the blocks that the lane is done with.
func (c *claim) dropDecoded() {
	decoded, n := c.laneProgress.Decoded.Load(), 0
	for n < len(c.inFlight) && c.inFlight[n].next <= decoded {
		n++
	}
	c.inFlight = append(c.inFlight[:0], c.inFlight[n:]...)
}

// consumed is the next offset behind the records of a claim that are rows on their way to the table, or in it.
func (c *claim) consumed() int64 {
	if c.next == c.from && !c.table.inSealed(c.Partition) {
		return c.position
	}
	at := c.next // with what no reader of committed records sees
	if c.dropDecoded(); len(c.inFlight) > 0 {
		at = c.inFlight[0].from
	}
	if bad := c.laneProgress.Bad.Load(); bad > 0 {
		at = min(at, bad-1)
	}
	return max(at, c.position)
}

// oldest is the least timestamp of the records that were handed over and are not in the table, 0 if there is none.
func (c *claim) oldest() int64 {
	c.dropDecoded()
	oldest := c.oldestUncommitted
	for _, f := range c.inFlight { // before the trail: a block that lands is found there
		oldest = plan.Earliest(oldest, f.oldest)
	}
	return plan.Earliest(oldest, c.laneProgress.Oldest())
}

// stamped is a timestamp of records as a time; the zero time for none.
func stamped(ms int64) (at time.Time) {
	if ms > 0 {
		at = time.UnixMilli(ms)
	}
	return at
}
