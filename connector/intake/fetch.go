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

// fetches sends requests to [connector.Log], and queues the fetch results with their claims.
type fetches struct {
	*base

	room  *room
	holds *holds
}

// accept queues a fetch result with its claim. If the claim does not wait for it any more, accept releases it: the
// result is of an earlier session, or does not begin at the offset that was requested last, because shed has moved the
// claim back.
func (fs *fetches) accept(f connector.Fetched) {
	c, ok := fs.claims[f.Partition]
	if !ok || c.session != f.Session || !c.fetching || c.ahead != f.From {
		lane.NewFetchResult(f).Release()
		return
	}
	c.fetching = false
	c.bounds = f.Bounds
	c.queue = append(c.queue, lane.NewFetchResult(f))
	if f.Err == nil {
		c.ahead, c.aheadEpoch = f.Next, f.Epoch
	}
	fs.request(c)
}

// finishResult ends a fetch result after its last record. The claim then passes the control and aborted batches at the
// end of the result, or is held if its log cannot be read further. err is what ended the parsing: io.EOF or the damage.
func (fs *fetches) finishResult(c *claim, f *lane.FetchResult, err error) {
	done := f.Fetched
	c.queue = slices.Delete(c.queue, 0, 1)
	f.Release()
	if !errors.Is(err, io.EOF) { // a damaged batch; the records before it were enqueued
		done.Err = err
	}
	if done.Err != nil {
		fs.holdUnreadable(c, done.Err)
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

// holdUnreadable holds a claim whose log cannot be read beyond its next offset; err says why.
func (fs *fetches) holdUnreadable(c *claim, err error) {
	reason, detail, ok := hold.Of(err)
	if !ok {
		reason, detail = hold.CorruptBatch, err.Error()
	}
	fs.holds.hold(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.next})
}

// maxResults is how many fetch results of a claim may be queued or requested: one to be enqueued, and one to follow.
const maxResults = 2

// request requests the next records of a claim, unless the claim must not have more fetch results now.
func (fs *fetches) request(c *claim) {
	if !c.state.reads() || c.fetching || len(c.queue) >= maxResults || fs.draining || c.table.full || c.shedBytes > 0 {
		return
	}
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return
	}
	c.fetching = true
	fs.Log.Fetch(connector.FetchRequest{Position: connector.Position{Partition: c.Partition, Next: c.ahead, Epoch: c.aheadEpoch}, Session: c.session})
}

// startReading starts to read a claim at a position. A hold of the claim stays until a record or a commit ends it.
func (fs *fetches) startReading(c *claim, at connector.Position) {
	switch {
	case c.hold == nil:
		fs.holds.enter(c, reading)
	case c.ends == byCommit:
		fs.holds.enter(c, proving)
	default:
		fs.holds.enter(c, retrying)
	}
	c.from, c.next, c.epoch, c.earlier, c.position, c.positionEpoch = at.Next, at.Next, at.Epoch, nil, at.Next, at.Epoch
	c.ahead, c.aheadEpoch = at.Next, at.Epoch
	fs.request(c)
}

// isFull reports whether fetching stops for a table, because a sealed batch is being committed and the next one is
// full. It returns false until the barrier has passed all lanes, because until then the counters of the open batch
// include rows of the sealed one. [dispatcher.enqueueBlock] does not wait for that and stops earlier.
func (fs *fetches) isFull(t *tableState) bool {
	return t.sealed != nil && t.sealed.PassedAll(len(fs.lanes)) && fs.room.batchFull(t)
}

// updateFetching requests records again for claims whose table is no longer full. If the fetch pool is short, it drops
// the fetch results of claims whose table is full; their records are fetched again later.
func (fs *fetches) updateFetching() {
	short := fs.Pools.Fetch.Short() && fs.starving()
	for _, t := range fs.tables {
		was := t.full
		if t.full = fs.isFull(t); t.full == was && (!t.full || !short) {
			continue
		}
		for _, c := range t.claims {
			switch {
			case !t.full:
				fs.request(c)
			case short && c.state.reads() && (len(c.queue) > 0 || c.fetching):
				fs.shed(c)
			}
		}
	}
	fs.shedWaiting(short)
}

// shedWaiting drops the fetch results of claims that wait for memory of the batch pool, if the fetch pool is short. It
// spares the claim that gets memory next. It requests the dropped records of a claim again once enough memory for the
// claim will be free soon.
func (fs *fetches) shedWaiting(short bool) {
	if short {
		for _, c := range slices.Clone(fs.room.waiting) {
			wants := c.wantsBytes
			if c == fs.room.first || !c.state.reads() {
				continue
			}
			if fs.shed(c); c.wantsBytes == 0 {
				c.shedBytes, fs.room.anyShed = wants, true
			}
		}
	}
	if !fs.room.anyShed {
		return
	}
	fs.room.anyShed = false
	now := time.Now()
	for _, c := range fs.order {
		switch {
		case c.shedBytes == 0:
		case c.shedBytes <= fs.room.freeable(now, c.patience(now)):
			c.shedBytes = 0
			fs.request(c)
		default:
			fs.room.anyShed = true
		}
	}
}

// starving reports whether a claim whose table is not full waits for a fetch result.
func (fs *fetches) starving() bool {
	for _, c := range fs.claims {
		if c.fetching && !c.table.full {
			return true
		}
	}
	return false
}

// shed drops the fetch results of a claim to release their memory, unless the last of them has an error. The session
// stays the same, and the records are fetched again from next on.
func (fs *fetches) shed(c *claim) {
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return // the last result has an error, and takes hardly any memory
	}
	if len(c.queue) > 0 {
		fs.Metrics.shed.Inc()
	}
	fs.Log.Forget(c.Partition)
	fs.holds.dropQueued(c)
	c.ahead, c.aheadEpoch = c.next, c.epoch
}
