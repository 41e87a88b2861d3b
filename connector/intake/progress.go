package intake

import (
	"time"

	"sluice/connector/lane"
	"sluice/connector/plan"
)

// inFlight is a block on its way to the lane: offsets [from, next) of the claim, and the smallest timestamp of its
// records.
type inFlight struct{ from, next, oldest int64 }

// maxInFlight is for how many blocks a claim keeps separate entries: as many as a lane can have queued and be decoding.
// If there were more, they would be merged with the last entry.
const maxInFlight = lane.QueueLength + 1

// enqueued notes that a block was enqueued at a time.
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

// dropDecoded removes the blocks that the lane has decoded.
func (c *claim) dropDecoded() {
	decoded, n := c.laneProgress.Decoded.Load(), 0
	for n < len(c.inFlight) && c.inFlight[n].next <= decoded {
		n++
	}
	c.inFlight = append(c.inFlight[:0], c.inFlight[n:]...)
}

// consumed returns the offset up to which the records of the claim are in the table, in the sealed or the open batch,
// or were left out: see [connector.ClaimStatus].
func (c *claim) consumed() int64 {
	if c.next == c.from && !c.table.inSealed(c.Partition) {
		return c.position
	}
	at := c.next // next includes offsets that a read_committed consumer does not see
	if c.dropDecoded(); len(c.inFlight) > 0 {
		at = c.inFlight[0].from
	}
	if bad := c.laneProgress.Bad.Load(); bad > 0 {
		at = min(at, bad-1)
	}
	return max(at, c.position)
}

// oldest returns the smallest timestamp of the enqueued records that are not in the table, 0 if there is none.
func (c *claim) oldest() int64 {
	c.dropDecoded()
	oldest := c.oldestUncommitted
	// Read inFlight before laneProgress: a block that the lane decodes meanwhile is then found in at least one of them.
	for _, f := range c.inFlight {
		oldest = plan.Earliest(oldest, f.oldest)
	}
	return plan.Earliest(oldest, c.laneProgress.Oldest())
}

// timeOf returns a timestamp in milliseconds as a time; the zero time if the timestamp is not positive.
func timeOf(ms int64) (at time.Time) {
	if ms > 0 {
		at = time.UnixMilli(ms)
	}
	return at
}
