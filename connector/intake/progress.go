package intake

import (
	"time"

	"sluice/connector/lane"
	"sluice/connector/plan"
)

// flight is a block on its way to the lane: where the claim stood before it and behind it, and the least timestamp.
type flight struct{ from, next, oldest int64 }

// flights is how many of them a claim remembers one by one: a lane's queue holds no more.
const flights = lane.LaneQueue + 1

// handed notes a block that was handed over.
func (c *claim) handed(f flight, at time.Time) {
	c.land()
	if n := len(c.flights); n == flights {
		last := &c.flights[n-1]
		last.next, last.oldest = f.next, plan.Earliest(f.oldest, last.oldest)
	} else {
		c.flights = append(c.flights, f)
	}
	c.last = at
}

// land forgets the blocks that the lane is done with.
func (c *claim) land() {
	decoded, n := c.trail.Decoded.Load(), 0
	for n < len(c.flights) && c.flights[n].next <= decoded {
		n++
	}
	c.flights = append(c.flights[:0], c.flights[n:]...)
}

// consumed is the next offset behind the records of a claim that are rows on their way to the table, or in it.
func (c *claim) consumed() int64 {
	if c.next == c.from && !c.table.cuts(c.Partition) {
		return c.position
	}
	at := c.next // with what no reader of committed records sees
	if c.land(); len(c.flights) > 0 {
		at = c.flights[0].from
	}
	if bad := c.trail.Bad.Load(); bad > 0 {
		at = min(at, bad-1)
	}
	return max(at, c.position)
}

// oldest is the least timestamp of the records that were handed over and are not in the table, 0 if there is none.
func (c *claim) oldest() int64 {
	c.land()
	oldest := c.owed
	for _, f := range c.flights { // before the trail: a block that lands is found there
		oldest = plan.Earliest(oldest, f.oldest)
	}
	return plan.Earliest(oldest, c.trail.Oldest())
}

// stamped is a timestamp of records as a time; the zero time for none.
func stamped(ms int64) (at time.Time) {
	if ms > 0 {
		at = time.UnixMilli(ms)
	}
	return at
}
