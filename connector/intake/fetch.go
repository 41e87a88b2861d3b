package intake

import (
	"errors"
	"io"
	"slices"
	"time"

	"sluice/connector"
	"sluice/connector/lane"
	"sluice/reliability/hold"
)

// fetches are the requests to [connector.Log], and the answers that wait with their claims.
type fetches struct {
	*base

	room  *room
	holds *holds
}

// fetched takes an answer. One of an earlier session, or of a place that was shed, is dropped.
func (fs *fetches) fetched(f connector.Fetched) {
	c, ok := fs.claims[f.Partition]
	if !ok || c.session != f.Session || !c.fetching || c.ahead != f.From {
		lane.NewFetchResult(f).Release()
		return
	}
	c.fetching = false
	c.bounds = f.Bounds
	c.queue = append(c.queue, lane.NewFetchResult(f))
	if f.Err == nil {
		c.ahead, c.aheadEp = f.Next, f.Epoch
	}
	fs.request(c)
}

// finish passes the end of an answer: control and aborted batches behind the last record, or the place where it cannot
// go on.
func (fs *fetches) finish(c *claim, f *lane.FetchResult, err error) {
	done := f.Fetched
	c.queue = slices.Delete(c.queue, 0, 1)
	f.Release()
	if !errors.Is(err, io.EOF) { // a damaged batch: the records before it were handed over
		done.Err = err
	}
	if done.Err != nil {
		fs.cannotRead(c, done.Err)
		return
	}
	if done.Next > c.next {
		c.pass(done.Next, done.Epoch, done.Next-1)
		if c.table.opened.IsZero() {
			c.table.opened = time.Now()
		}
		if c.state == retrying {
			fs.holds.release(c)
		}
	}
	fs.request(c)
}

// cannotRead holds a claim where its log cannot be read on.
func (fs *fetches) cannotRead(c *claim, err error) {
	reason, detail, ok := hold.Of(err)
	if !ok {
		reason, detail = hold.CorruptBatch, err.Error()
	}
	fs.holds.hold(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.next})
}

// wanted is how many answers a claim may have waiting or on their way: one to hand over, one to follow.
const wanted = 2

// request asks for what comes next, if there is room for it.
func (fs *fetches) request(c *claim) {
	if !c.state.reads() || c.fetching || len(c.queue) >= wanted || fs.draining || c.table.stuck || c.shed > 0 {
		return
	}
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return
	}
	c.fetching = true
	fs.Log.Fetch(connector.FetchRequest{Position: connector.Position{Partition: c.Partition, Next: c.ahead, Epoch: c.aheadEp}, Session: c.session})
}

// begin starts a session at a position.
func (fs *fetches) begin(c *claim, at connector.Position) {
	switch {
	case c.hold == nil:
		fs.holds.enter(c, reading)
	case c.ends == byCommit:
		fs.holds.enter(c, proving)
	default:
		fs.holds.enter(c, retrying)
	}
	c.from, c.next, c.epoch, c.earlier, c.position, c.positionEp = at.Next, at.Next, at.Epoch, nil, at.Next, at.Epoch
	c.ahead, c.aheadEp = at.Next, at.Epoch
	fs.request(c)
}

// stuck tells whether a table can take no more for now: one cut is on its way, and behind it one batch is full.
func (fs *fetches) stuck(t *tableState) bool {
	return t.sealed != nil && t.sealed.PassedAll(len(fs.lanes)) && fs.room.full(t)
}

// turnToFetching has claims ask again whose table can take more, and sheds what waits for tables that cannot while
// others wait for memory to fetch with. What is shed is read again later.
func (fs *fetches) turnToFetching() {
	short := fs.Pools.Fetch.Short() && fs.starving()
	for _, t := range fs.tables {
		was := t.stuck
		if t.stuck = fs.stuck(t); t.stuck == was && (!t.stuck || !short) {
			continue
		}
		for _, c := range t.claims {
			switch {
			case !t.stuck:
				fs.request(c)
			case short && c.state.reads() && (len(c.queue) > 0 || c.fetching):
				fs.shed(c)
			}
		}
	}
	fs.turnWaiting(short)
}

// turnWaiting sheds what waits for room in the batch pool that does not become free soon, while others wait for memory to
// fetch with. It is fetched again once there may be room.
func (fs *fetches) turnWaiting(short bool) {
	if short {
		for _, c := range slices.Clone(fs.room.waiting) {
			wants := c.wantsBytes
			if c == fs.room.first || !c.state.reads() {
				continue
			}
			if fs.shed(c); c.wantsBytes == 0 {
				c.shed, fs.room.sheds = wants, true
			}
		}
	}
	if !fs.room.sheds {
		return
	}
	fs.room.sheds = false
	now := time.Now()
	for _, c := range fs.order {
		switch {
		case c.shed == 0:
		case c.shed <= fs.room.freeable(now, c.patience(now)):
			c.shed = 0
			fs.request(c)
		default:
			fs.room.sheds = true
		}
	}
}

// starving tells whether a claim waits for records that its table could take.
func (fs *fetches) starving() bool {
	for _, c := range fs.claims {
		if c.fetching && !c.table.stuck {
			return true
		}
	}
	return false
}

// shed gives back the memory of what a claim has waiting. Its session goes on: it will be read on from where the
// hand-over stands.
func (fs *fetches) shed(c *claim) {
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return // it ends in a finding, which takes no memory to speak of
	}
	if len(c.queue) > 0 {
		fs.Metrics.shed.Inc()
	}
	fs.Log.Forget(c.Partition)
	fs.holds.dropQueued(c)
	c.ahead, c.aheadEp = c.next, c.epoch
}
