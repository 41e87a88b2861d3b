package intake

import (
	"slices"
	"time"
)

// drop forgets what a claim has waiting. Blocks that are in lanes stay.
func (r *Reader) drop(c *claim) {
	if c.parsed != nil {
		r.blocks.Put(c.parsed)
	}
	for _, a := range c.queue {
		a.Leave()
	}
	c.queue, c.parsed, c.fetching, c.shed = nil, nil, false, 0
	r.unwait(c)
}

// stuck tells whether a table can take no more for now: one cut is on its way, and behind it one batch is full.
func (r *Reader) stuck(t *tableState) bool {
	return t.cutting != nil && t.cutting.Marked(len(r.lanes)) && r.full(t)
}

// turnToFetching has claims ask again whose table can take more, and sheds what waits for tables that cannot while
// others wait for memory to fetch with. What is shed is read again later.
func (r *Reader) turnToFetching() {
	short := r.Pools.Fetch.Short() && r.starving()
	for _, t := range r.tables {
		was := t.stuck
		if t.stuck = r.stuck(t); t.stuck == was && (!t.stuck || !short) {
			continue
		}
		for _, c := range t.claims {
			switch {
			case !t.stuck:
				r.request(c)
			case short && c.state.reads() && (len(c.queue) > 0 || c.fetching):
				r.shed(c)
			}
		}
	}
	r.turnWaiting(short)
}

// turnWaiting sheds what waits for room in the batch pool that does not become free soon, while others wait for memory to
// fetch with. It is fetched again once there may be room.
func (r *Reader) turnWaiting(short bool) {
	if short {
		for _, c := range slices.Clone(r.waiting) {
			wants := c.wants
			if c == r.first || !c.state.reads() {
				continue
			}
			if r.shed(c); c.wants == 0 {
				c.shed, r.sheds = wants, true
			}
		}
	}
	if !r.sheds {
		return
	}
	r.sheds = false
	now := time.Now()
	for _, c := range r.order {
		switch {
		case c.shed == 0:
		case c.shed <= r.freeable(now, c.patience(now)):
			c.shed = 0
			r.request(c)
		default:
			r.sheds = true
		}
	}
}

// starving tells whether a claim waits for records that its table could take.
func (r *Reader) starving() bool {
	for _, c := range r.claims {
		if c.fetching && !c.table.stuck {
			return true
		}
	}
	return false
}

// shed gives back the memory of what a claim has waiting. Its session goes on: it will be read on from where the
// hand-over stands.
func (r *Reader) shed(c *claim) {
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return // it ends in a finding, which takes no memory to speak of
	}
	if len(c.queue) > 0 {
		r.Metrics.shed.Inc()
	}
	r.Log.Forget(c.Partition)
	r.drop(c)
	c.ahead, c.aheadEp = c.next, c.epoch
}
