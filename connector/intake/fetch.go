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

// fetches sends requests to [connector.Log] and keeps the fetch results with their claims.
type fetches struct {
	*base

	room  *room
	holds *holds
}

// accept queues a fetch result with its claim. It releases a result that the claim no longer waits for: one of an
// earlier session, or one whose offset is not the requested one, because shed has moved the claim back.
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

// finishResult ends a fetch result after its last record. It passes control and aborted batches at the end, or holds
// the claim if its log cannot be read further. err is what ended the parsing: io.EOF, or the damage.
func (fs *fetches) finishResult(c *claim, f *lane.FetchResult, err error) {
	done := f.Fetched
	c.queue = slices.Delete(c.queue, 0, 1)
	f.Release()
	if !errors.Is(err, io.EOF) { // a damaged batch: the records before it were enqueued
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

// holdUnreadable holds a claim whose log cannot be read further.
func (fs *fetches) holdUnreadable(c *claim, err error) {
	reason, detail, ok := hold.Of(err)
	if !ok {
		reason, detail = hold.CorruptBatch, err.Error()
	}
	fs.holds.hold(c, hold.Hold{Reason: reason, Detail: detail, Offset: c.next})
}

// maxResults is the number of fetch results that a claim may have waiting or requested: one to enqueue, one to follow.
const maxResults = 2

// request requests the next records of a claim, if it may have more fetch results.
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

// isFull reports whether nothing more is fetched for a table: one sealed batch is on its way, and the next one is full.
// Until the barrier has passed all lanes, the counters of the open batch still include rows of the sealed one. So
// isFull returns false until then, although [dispatcher.enqueueBlock] waits already.
func (fs *fetches) isFull(t *tableState) bool {
	return t.sealed != nil && t.sealed.PassedAll(len(fs.lanes)) && fs.room.batchFull(t)
}

// updateFetching resumes requests of claims whose table can take records again. If the fetch pool is short, it drops
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

// shedWaiting drops, if the fetch pool is short, the fetch results of claims that wait for memory of the batch pool,
// except the claim that gets the next memory. It requests their records again once enough memory will be free soon.
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

// starving reports whether a claim waits for records that its table could take.
func (fs *fetches) starving() bool {
	for _, c := range fs.claims {
		if c.fetching && !c.table.full {
			return true
		}
	}
	return false
}

// shed releases the memory of a claim's fetch results, unless the last of them ends with an error. The session
// continues; the claim is fetched again from next on.
func (fs *fetches) shed(c *claim) {
	if n := len(c.queue); n > 0 && c.queue[n-1].Err != nil {
		return // it ends with an error, which takes hardly any memory
	}
	if len(c.queue) > 0 {
		fs.Metrics.shed.Inc()
	}
	fs.Log.Forget(c.Partition)
	fs.holds.dropQueued(c)
	c.ahead, c.aheadEpoch = c.next, c.epoch
}
