package connector

import (
	"slices"
	"sync/atomic"
	"time"
)

// An answer is what was fetched on its way to the lanes. The reader and the blocks that hold its records share its
// memory: whoever is last gives it back.
type answer struct {
	Fetched
	read  bool // to its end
	users atomic.Int32
}

func newAnswer(f Fetched) *answer {
	a := &answer{Fetched: f}
	a.users.Store(1) // the reader, as long as it is in a claim's queue
	return a
}

// share adds a user.
func (a *answer) share() { a.users.Add(1) }

// leave ends the use of one user, who may not touch any record of the answer afterwards.
func (a *answer) leave() {
	if a.users.Add(-1) == 0 && a.Records != nil {
		a.Records.Release()
	}
}

// drop forgets what a claim has waiting. Blocks that are in lanes stay.
func (r *reader) drop(c *claim) {
	if c.parsed != nil {
		r.blocks.put(c.parsed)
	}
	for _, a := range c.queue {
		a.leave()
	}
	c.queue, c.parsed, c.fetching, c.shed = nil, nil, false, 0
	r.unwait(c)
}

// stuck tells whether a table can take no more for now: one cut is on its way, and behind it one batch is full.
func (r *reader) stuck(t *tableState) bool {
	return t.cutting != nil && t.cutting.marked(len(r.lanes)) && r.full(t)
}

// turnToFetching has claims ask again whose table can take more, and sheds what waits for tables that cannot while
// others wait for memory to fetch with. What is shed is read again later.
func (r *reader) turnToFetching() {
	short := r.pools.Fetch.Short() && r.starving()
	for _, t := range r.tables {
		was := t.stuck
		if t.stuck = r.stuck(t); t.stuck == was && (!t.stuck || !short) {
			continue
		}
		for _, c := range t.claims {
			switch {
			case !t.stuck:
				r.request(c)
			case short && c.state == reading && (len(c.queue) > 0 || c.fetching):
				r.shed(c)
			}
		}
	}
	r.turnWaiting(short)
}

// turnWaiting sheds what waits for room in the batch pool that does not become free soon, while others wait for memory to
// fetch with. It is fetched again once there may be room.
func (r *reader) turnWaiting(short bool) {
	if short {
		for _, c := range slices.Clone(r.waiting) {
			wants := c.wants
			if c == r.first || c.state != reading {
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
func (r *reader) starving() bool {
	for _, c := range r.claims {
		if c.fetching && !c.table.stuck {
			return true
		}
	}
	return false
}

// shed gives back the memory of what a claim has waiting. Its session goes on: it will be read on from where the
// hand-over stands.
func (r *reader) shed(c *claim) {
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return // it ends in a finding, which takes no memory to speak of
	}
	if len(c.queue) > 0 {
		r.metrics.shed.Inc()
	}
	r.log.Forget(c.Partition)
	r.drop(c)
	c.ahead, c.aheadEp = c.next, c.epoch
}
